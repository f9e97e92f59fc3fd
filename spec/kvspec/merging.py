"""Code that forks, as one formula: all its ways at once, so that its caller does not fork.

The code must not multiply or divide by what is not known: a way is told by what was decided on it, and by nothing else.
On numbers there is one way, and nothing to be told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import z3

from kvspec.paths import all_paths
from kvspec.symbolic import Condition, NotDecidableError, Number, Truth, current_path, either, formula_of

Said = TypeVar("Said")


def _ways(says: Callable[[], Said], given: Condition) -> Iterator[tuple[Condition, Said]]:
    """Per way, when it is taken, and what is said on it. Only where ``given`` is so do they say anything."""

    def run() -> Said:
        current_path().assume(formula_of(given))
        return says()

    for path, said in all_paths(run, by_lemmas=True):
        if path.names_something:
            raise NotDecidableError("code that is folded into a formula multiplies or divides by what is not known")
        when = z3.simplify(z3.And(*path.solver.assertions()))
        yield (True if z3.is_true(when) else Truth(when)), said


def truth_of(says: Callable[[], bool], given: Condition) -> Condition:
    """What ``says`` says, where ``given`` is so."""
    truth: Condition = False
    for when, said in _ways(says, given):
        truth = when | truth if said else truth
    return truth


def number_of(says: Callable[[], Number], given: Condition) -> Number:
    """What ``says`` comes to, where ``given`` is so."""
    number: Number = -1
    for when, said in _ways(says, given):
        number = either(when, said, number)
    return number
