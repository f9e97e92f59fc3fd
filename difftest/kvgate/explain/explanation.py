"""The explanation: what there is, what can be hit, why hits are lost, and what to do."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from attrs import evolve, frozen

from kvgate.explain.best_hit import Prompts
from kvgate.explain.cause import Case, Cause, Effect
from kvgate.explain.figures import Figures, Point, curve, figures_of
from kvgate.explain.layout import Layout
from kvgate.explain.rules import causes
from kvgate.explain.serving import Serving
from kvgate.kernel.errors import UsageError

_ZERO = (Effect.ALWAYS_ZERO, Effect.ZERO_IF)


@frozen
class Explanation:
    """All that is explained."""

    case: Case
    figures: Figures
    causes: tuple[Cause, ...]
    """The worst for the hit rate first."""
    recommended: tuple[str, ...]
    """What to do, the most important first."""

    @cached_property
    def curve(self) -> tuple[Point, ...]:
        """How much of a prompt of each length can hit when it is sent again: most of the work, on request only."""
        return curve(self.case)

    @property
    def zero_causes(self) -> tuple[Cause, ...]:
        """Those that can make the hit rate zero."""
        return tuple(cause for cause in self.causes if cause.effect in _ZERO)


def case_of(layout_of: Callable[[Serving], Layout], serving: Serving, prompts: Prompts | None = None) -> Case:
    """The case; where prefix caching is off and could be on, with what it would be then.

    Raises:
        UsageError: the layout is unknown, or the prompts are longer than a request may be.
    """
    case = Case(layout_of(serving), serving, prompts)
    allowed = case.settings.tokens_max
    if prompts is not None and max(prompts.first_tokens, prompts.second_tokens) > allowed:
        raise UsageError(
            f"--prompt-tokens {max(prompts.first_tokens, prompts.second_tokens)}: a request may have {allowed} tokens "
            "here; give shorter prompts, or the --max-model-len that is served with"
        )
    if case.layout.caches:
        return case
    asked = evolve(serving, enable_prefix_caching=True)
    layout = layout_of(asked)
    return evolve(case, cached=Case(layout, asked, prompts)) if layout.caches else case


def explain(case: Case, tier_blocks: int | None = None) -> Explanation:
    """Explain a case, with a tier on the host of so many blocks."""
    found = causes(case)
    return Explanation(case, figures_of(case, tier_blocks), tuple(found), tuple(_recommended(found)))


def _recommended(found: list[Cause]) -> list[str]:
    """What the causes ask for, but for those that cost a little and cannot be helped."""
    return list(dict.fromkeys(cause.remedy for cause in found if cause.effect is not Effect.LESS))
