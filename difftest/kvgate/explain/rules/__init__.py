"""The rules, in the order in which their causes are printed: what is certain first."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import evolve

from kvgate.explain.cause import Case, Cause, Effect, Rule
from kvgate.explain.rules import failing, geometry, releases, retaining

RULES: tuple[Rule, ...] = (*releases.RULES, *geometry.RULES, *retaining.RULES, *failing.RULES)


def causes(case: Case) -> list[Cause]:
    """What is there of causes, the worst for the hit rate first."""
    order = list(Effect)
    found = [cause for rule in RULES for cause in _applied(rule, case)]
    found += releases.findings_that_act(case)
    found.sort(key=lambda cause: order.index(cause.effect))
    if case.cached is None:
        return found
    # With caching off nothing else matters yet; the causes after the first remedy are listed next.
    once_cached = [evolve(cause, says=f"once prefix caching is on: {cause.says}") for cause in causes(case.cached)]
    ids = {cause.id for cause in once_cached}
    certain = [cause for cause in found if cause.effect is Effect.ALWAYS_ZERO]
    return [*certain, *once_cached, *(cause for cause in found if cause not in certain and cause.id not in ids)]


def _applied(rule: Rule, case: Case) -> Iterator[Cause]:
    cause = rule(case)
    if cause is not None:
        yield cause
