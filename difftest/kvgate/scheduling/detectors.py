"""Who judges an engine, by name."""

from __future__ import annotations

MONITORS = ("ghost", "leak", "scheduler", "batch", "line", "progress")
"""What judges without the reference: what the worker reads, what remains, the scheduler's books, what the worker is
told, who is next, and whether anybody gets on."""
GATE = ("lockstep", *MONITORS)
"""Everything that can find a defect of a scheduler."""
