"""Who judges an engine, by name."""

from __future__ import annotations

MONITORS = ("ghost", "leak", "work", "scheduler", "batch", "line", "progress")
"""What judges without the reference: what the worker reads, what remains, what a step costs, the scheduler's books,
what the worker is told, who is next, and whether anybody gets on."""
GATE = ("lockstep", *MONITORS)
"""Everything that can find a defect of a scheduler."""
