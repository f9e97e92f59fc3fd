"""The mutants of vLLM 0.33.0's own code, in blocks.txt, scheduler.txt and tiers.txt: edits of what is new in it.

Those in lmcache.txt are of LMCache 0.5.6, whose connector runs under its scheduler.
"""

from __future__ import annotations

from importlib.resources import files

from kvgate_mutants.mutants.mutant import Mutant, mutants_of


def _of(name: str, root: str) -> tuple[Mutant, ...]:
    return tuple(mutants_of(files(__package__).joinpath(f"{name}.txt").read_text("utf-8"), root))


MUTANTS = {
    "blocks": _of("blocks", "vllm.v1."),
    "scheduler": _of("scheduler", "vllm.v1."),
    "tiers": (*_of("tiers", "vllm."), *_of("lmcache", "lmcache.")),
}
"""By the level that shows them."""


def named(name: str) -> Mutant:
    """The mutant of that name, at any level."""
    return next(mutant for mutants in MUTANTS.values() for mutant in mutants if mutant.name == name)
