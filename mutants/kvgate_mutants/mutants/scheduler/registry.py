"""The scheduler's zoo: all mutants of vLLM's scheduler, in the order of the areas."""

from __future__ import annotations

from kvgate_mutants.mutants.mutant import mutants_in
from kvgate_mutants.mutants.scheduler import (
    admission,
    answers,
    asynchronous,
    budget,
    chunks,
    clients,
    finishing,
    grammars,
    preemption,
    queues,
    scheduler_output,
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
    finishing,
    scheduler_output,
    grammars,
    transfers,
    asynchronous,
)

ZOO = mutants_in(_AREAS)
"""Every mutant of the scheduler; no two have the same name."""
