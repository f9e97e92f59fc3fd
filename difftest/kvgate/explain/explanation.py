"""The explanation: what there is, what can be hit, why hits are lost, and what to do."""

from __future__ import annotations

from attrs import evolve, frozen

from kvgate.errors import UsageError
from kvgate.explain.best_hit import shortest_prompt
from kvgate.explain.cause import Case, Cause, Effect
from kvgate.explain.figures import Figures, figures_of
from kvgate.explain.load import load
from kvgate.explain.rules import causes

_ZERO = (Effect.ALWAYS_ZERO, Effect.ZERO_IF)
_FINER_BLOCKS = (32, 64, 16)


@frozen
class Explanation:
    """All that is told."""

    case: Case
    figures: Figures
    causes: tuple[Cause, ...]
    """The worst for the hit rate first."""
    recommended: tuple[str, ...]
    """Flags, each with what it brings."""

    @property
    def zero_causes(self) -> tuple[Cause, ...]:
        """Those that can make the hit rate zero."""
        return tuple(cause for cause in self.causes if cause.effect in _ZERO)


def explain(case: Case) -> Explanation:
    """Explain a case."""
    found = causes(case)
    return Explanation(case, figures_of(case), tuple(found), tuple(_recommended(case, found)))


def _recommended(case: Case, found: list[Cause]) -> list[str]:
    """What the causes ask for, and a block size that is finer, if there is one."""
    remedies = [cause.remedy for cause in found if cause.effect is not Effect.ZERO_IF or case.prompts is not None]
    remedies += [cause.remedy for cause in found if cause.effect is Effect.ZERO_IF and case.prompts is None]
    return list(dict.fromkeys(remedies))


def finer(name: str, case: Case) -> str | None:
    """The block size with which the shortest prompt that can hit is shortest, if it is another; with both figures."""
    before = shortest_prompt(case.settings)
    best, flag = before, None
    for size in _FINER_BLOCKS:
        try:
            other = evolve(case.serving, block_size=size)
            tokens = shortest_prompt(Case(load(name, other), other).settings)
        except UsageError:
            continue
        if tokens < best:
            best, flag = tokens, f"--block-size {size}: prompts of {tokens} tokens can hit, instead of {before}"
    return flag
