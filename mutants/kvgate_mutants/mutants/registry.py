"""The zoo: all mutants, in the order of the areas."""

from __future__ import annotations

from collections.abc import Sequence

from kvgate.kernel.errors import UsageError
from kvgate_mutants.mutants import (
    admission_gate,
    allocation,
    answers,
    block_pool,
    cached_map,
    caching,
    chunked_local,
    content,
    events,
    finishing,
    free_queue,
    hit_lookup,
    sliding_window,
    work,
)
from kvgate_mutants.mutants.mutant import Mutant, mutants_in

_AREAS = (
    free_queue,
    block_pool,
    cached_map,
    content,
    hit_lookup,
    admission_gate,
    allocation,
    caching,
    sliding_window,
    chunked_local,
    finishing,
    events,
    answers,
    work,
)

ZOO = mutants_in(_AREAS)
"""Every mutant; no two have the same name."""


def mutants_named(names: Sequence[str]) -> list[Mutant]:
    """The mutants of vLLM's block manager with these names.

    Raises:
        UsageError: there is no mutant of that name.
    """
    known = {mutant.name: mutant for mutant in ZOO}
    for name in names:
        if name not in known:
            raise UsageError(f"there is no mutant {name!r}; kvgate mutants --list lists them")
    return [known[name] for name in names]
