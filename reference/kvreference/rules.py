"""Rules of the reference that a delta can change, one at a time.

A published system can differ from the reference in one rule and follow all the others. A delta says so: it is given the
reference's own rule and the arguments, and answers in its place. Only deltas read the arguments that a rule deletes.
So a delta changes what it is about and nothing else; where the rule itself is wrong, the delta is wrong with it.
Several deltas of one rule apply in turn, each to what the ones before it have made of the rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ParamSpec, TypeVar

from attrs import frozen

P = ParamSpec("P")
T = TypeVar("T")


@frozen
class Delta:
    """A change of one rule."""

    rule: str
    """The name of the rule, a function of the reference."""
    answer: Callable[..., Any]
    """Takes the rule and its arguments."""


@frozen
class Rules:
    """The rules of the reference, with the deltas of a system: none by default."""

    deltas: Sequence[Delta] = ()

    def ask(self, rule: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What ``rule`` answers, or the deltas of it."""
        for delta in self.deltas:
            if delta.rule == rule.__name__:
                rule = _named(partial(delta.answer, rule), delta.rule)
        return rule(*args, **kwargs)


def _named(rule: Callable[P, T], name: str) -> Callable[P, T]:
    rule.__name__ = name
    return rule


OWN_RULES = Rules()
"""Without a delta."""
