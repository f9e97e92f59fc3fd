"""Who judges an engine, by name."""

from __future__ import annotations

MONITORS = ("ghost", "leak", "work", "scheduler", "clients", "batch", "line", "chunks", "progress")
"""What judges without the reference: what the worker reads, what remains, what a step costs, the scheduler's books,
what the clients and the worker are told, who is next and how much of it is computed, and whether anybody gets on."""
GATE = ("lockstep", *MONITORS)
"""Everything that can find a defect of a scheduler."""
