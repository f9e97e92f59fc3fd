"""The zoo: all mutants, in the order of the areas."""

from __future__ import annotations

from kvgate.mutants import (
    admission_gate,
    allocation,
    answers,
    block_pool,
    cached_map,
    caching,
    chunked_local,
    content,
    ends,
    events,
    free_queue,
    hit_lookup,
    sliding_window,
    work,
)
from kvgate.mutants.mutant import mutants_in

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
    ends,
    events,
    answers,
    work,
)

ZOO = mutants_in(_AREAS)
"""Every mutant; no two have the same name."""
