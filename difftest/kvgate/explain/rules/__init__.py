"""The rules, in the order in which their causes are told: what is certain first."""

from __future__ import annotations

from collections.abc import Iterator

from kvgate.explain.cause import Case, Cause, Effect, Rule
from kvgate.explain.rules import failing, geometry, releases, retaining

RULES: tuple[Rule, ...] = (*releases.RULES, *geometry.RULES, *retaining.RULES, *failing.RULES)


def causes(case: Case) -> list[Cause]:
    """What is there of causes, the worst for the hit rate first."""
    order = list(Effect)
    found = [cause for rule in RULES for cause in _applied(rule, case)]
    return sorted(found, key=lambda cause: order.index(cause.effect))


def _applied(rule: Rule, case: Case) -> Iterator[Cause]:
    cause = rule(case)
    if cause is not None:
        yield cause
