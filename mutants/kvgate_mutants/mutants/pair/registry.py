"""The zoo of two nodes, in the order of the areas."""

from __future__ import annotations

from kvgate_mutants.mutants.mutant import Mutant
from kvgate_mutants.mutants.pair import connector, schedulers

_AREAS = (schedulers, connector)

ZOO: tuple[Mutant, ...] = tuple(
    mutant for area in _AREAS for mutant in vars(area).values() if isinstance(mutant, Mutant)
)
"""Every mutant of two nodes; no two have the same name."""
