"""The explanation: what there is, what can be hit, why hits are lost, and what to do."""

from __future__ import annotations

from attrs import frozen

from kvgate.explain.cause import Case, Cause, Effect
from kvgate.explain.figures import Figures, figures_of
from kvgate.explain.rules import causes

_ZERO = (Effect.ALWAYS_ZERO, Effect.ZERO_IF)


@frozen
class Explanation:
    """All that is told."""

    case: Case
    figures: Figures
    causes: tuple[Cause, ...]
    """The worst for the hit rate first."""
    recommended: tuple[str, ...]
    """What to do, the most important first."""

    @property
    def zero_causes(self) -> tuple[Cause, ...]:
        """Those that can make the hit rate zero."""
        return tuple(cause for cause in self.causes if cause.effect in _ZERO)


def explain(case: Case) -> Explanation:
    """Explain a case."""
    found = causes(case)
    return Explanation(case, figures_of(case), tuple(found), tuple(_recommended(found)))


def _recommended(found: list[Cause]) -> list[str]:
    """What the causes ask for, but for those that cost a little and cannot be helped."""
    return list(dict.fromkeys(cause.remedy for cause in found if cause.effect is not Effect.LESS))
