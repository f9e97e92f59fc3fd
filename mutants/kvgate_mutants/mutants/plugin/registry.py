"""The plug-in's zoo: all mutants of its code, in the order of the areas."""

from __future__ import annotations

from kvgate_mutants.mutants.mutant import mutants_in
from kvgate_mutants.mutants.plugin import (
    caching,
    compressed,
    dispatch,
    free_queue,
    installing,
    newer_keywords,
    partial_hits,
    pinned_tier,
    reachable,
)

_AREAS = (reachable, caching, free_queue, pinned_tier, partial_hits, dispatch, compressed, newer_keywords, installing)

ZOO = mutants_in(_AREAS)
"""Every mutant of the plug-in; no two have the same name."""
