"""The zoo: all mutants, in the order of the areas."""

from __future__ import annotations

from kvgate.mutants import (
    admission_gate,
    allocation,
    answers,
    block_pool,
    cached_map,
    caching,
    content,
    ends,
    events,
    free_queue,
    hit_lookup,
    sliding_window,
    work,
)
from kvgate.mutants.mutant import Mutant

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
    ends,
    events,
    answers,
    work,
)

ZOO: tuple[Mutant, ...] = tuple(
    mutant for area in _AREAS for mutant in vars(area).values() if isinstance(mutant, Mutant)
)
"""Every mutant; no two have the same name."""
