"""The mutants of our own code: edits of the reference and of the checkers, in reference_mutants.txt and its like.

An entry has the form of ``scheduler/features.txt``; in place of needs it has its probes, what is run to show it.
"""

from __future__ import annotations

from importlib.resources import files

from kvgate_mutants.mutants.mutant import Mutant, mutants_of


def _mutants_in(name: str) -> tuple[Mutant, ...]:
    return tuple(mutants_of(files(__package__).joinpath(name).read_text("utf-8"), words="probes"))


REFERENCE_MUTANTS = _mutants_in("reference_mutants.txt")
INDEPENDENT_MUTANTS = _mutants_in("independent_mutants.txt")
CHECKER_MUTANTS = _mutants_in("checker_mutants.txt")
