"""The scheduler's zoo: all mutants of vLLM's scheduler, in the order of the areas."""

from __future__ import annotations

from kvgate.mutants.mutant import Mutant
from kvgate.mutants.scheduler import (
    admission,
    answers,
    asynchronous,
    budget,
    chunks,
    clients,
    ends,
    grammars,
    preemption,
    queues,
    told,
    transfers,
)

_AREAS = (
    budget,
    chunks,
    queues,
    admission,
    preemption,
    answers,
    clients,
    ends,
    told,
    grammars,
    transfers,
    asynchronous,
)

ZOO: tuple[Mutant, ...] = tuple(
    mutant for area in _AREAS for mutant in vars(area).values() if isinstance(mutant, Mutant)
)
"""Every mutant of the scheduler; no two have the same name."""
