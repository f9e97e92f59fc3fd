"""The scheduler's zoo: all mutants of vLLM's scheduler, in the order of the areas."""

from __future__ import annotations

from kvgate.mutants.mutant import mutants_in
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

ZOO = mutants_in(_AREAS)
"""Every mutant of the scheduler; no two have the same name."""
