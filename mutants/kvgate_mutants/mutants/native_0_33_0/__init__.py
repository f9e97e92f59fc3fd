"""The mutants of vLLM 0.33.0's own code, in blocks.txt, scheduler.txt and tiers.txt: edits of what is new in it."""

from __future__ import annotations

from importlib.resources import files

from kvgate_mutants.mutants.mutant import Mutant, mutants_of

MUTANTS = {
    level: tuple(mutants_of(files(__package__).joinpath(f"{level}.txt").read_text("utf-8"), root))
    for level, root in (("blocks", "vllm.v1."), ("scheduler", "vllm.v1."), ("tiers", "vllm."))
}
"""By the level that shows them."""


def named(name: str) -> Mutant:
    """The mutant of that name, at any level."""
    return next(mutant for mutants in MUTANTS.values() for mutant in mutants if mutant.name == name)
