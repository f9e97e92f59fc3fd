"""Code on terms.

Goal: a run on terms means what the run on numbers means, and what cannot be expressed raises. Method: small functions
on every execution path, each compared with what Python says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import z3

from kvspec import formulas, symbolic
from kvspec.symbolic import (
    ImpossibleError,
    NotDecidableError,
    Term,
    Truth,
    all_paths,
    current_path,
    either,
    implies,
    negated,
)

X, Y, Z = z3.Ints("x y z")


def results(function: Callable[[], Any]) -> list[Any]:
    """The results of ``function``, path by path."""
    return [result for _, result in all_paths(function, by_lemmas=True)]


def values_of(function: Callable[[Any, Any], Any], x: int, y: int) -> list[int]:
    """The values of a function of two terms, path by path, where they are ``x`` and ``y``."""

    def run() -> Any:
        for term, value in ((X, x), (Y, y)):
            current_path().assume(term == value)
        return function(Term(X), Term(Y))

    found = []
    for path, result in all_paths(run, by_lemmas=False):
        assert path.solver.check() == z3.sat
        expression = symbolic.expression_of(result)
        found.append(path.solver.model().eval(expression, model_completion=True).as_long())
    return found


SAME: dict[str, Callable[[Any, Any], Any]] = {
    "sum": lambda x, y: 3 + x + y - 1,
    "difference": lambda x, y: 5 - x - y,
    "product": lambda x, y: 2 * x * y * 3,
    "opposite": lambda x, y: -x * y,
    "quotient": lambda x, y: x // y,
    "quotient by a number": lambda x, y: x // 3,
    "quotient of a number": lambda x, y: 7 // y,
    "ceiling": lambda x, y: -(-x // y),
    "remainder": lambda x, y: x % y,
    "remainder of a number": lambda x, y: -7 % y,
    "larger": lambda x, y: max(0, x, y - 3),
    "smaller": lambda x, y: min(x, y, 2),
    "comparisons": lambda x, y: 1 if x < y <= 3 or not x >= 2 else 2 if x == y else 3,
    "truth of a number": lambda x, y: x or y,
    "unlike": lambda x, y: 1 if x != y else 0,
    "without a fork": lambda x, y: either(implies(x < y, x == 1) & negated(y == 2) | (x > 3), 1, 0),
}


@pytest.mark.parametrize("name", SAME)
def test_terms_mean_what_numbers_mean(name: str) -> None:
    """One value on one way, and Python's: negative dividends, ceilings and ties among them."""
    for x in range(-5, 6):
        for y in range(1, 5):
            assert [SAME[name](x, y)] == values_of(SAME[name], x, y), (x, y)


def test_every_way_is_taken_once() -> None:
    """Three questions, of which two exclude each other: six paths."""

    def run() -> tuple[bool, bool, bool]:
        return bool(Term(X) > 3), bool(Term(X) < 2), bool(Term(Y) == 0)

    expected = [(a, b, c) for a, b in ((True, False), (False, True), (False, False)) for c in (True, False)]
    assert expected == results(run)


def test_a_way_that_cannot_be_is_not_taken() -> None:
    """Neither a path that contradicts an earlier assumption, nor any if the assumptions contradict each other."""

    def run() -> bool:
        current_path().assume(X > 3)
        return bool(Term(X) > 2)

    def never() -> bool:
        current_path().assume(z3.And(X > 3, X < 2))
        return bool(Term(X) > 2)

    assert [True] == results(run)
    assert [] == results(never)


def test_what_is_seen_to_be_false_ends_a_way() -> None:
    """Without asking z3."""

    def run() -> None:
        with pytest.raises(ImpossibleError):
            current_path().assume(z3.IntVal(1) > 2)

    assert [None] == results(run)


def test_what_was_said_before_a_fork_is_known_in_both_branches() -> None:
    """It is said once, and so is what a branch says; that is unknown in the other."""

    def run() -> tuple[bool, bool]:
        current_path().assume(Y == 1)
        first = bool(Term(X) > 3)
        current_path().assume(Y > 0 if first else X == 0)
        return first, bool(Term(X) == 0)

    found = [(result, len(path.solver.assertions())) for path, result in all_paths(run, by_lemmas=True)]
    assert [((True, False), 4), ((False, True), 4)] == found


@pytest.mark.parametrize("then", ["xz", ""], ids=["another", "fewer"])
def test_code_that_does_not_repeat_itself_is_rejected(then: str) -> None:
    """What is known of a way would be of another one. Method: questions that differ from run to run."""
    runs = ["xy", then]

    def run() -> list[bool]:
        return [bool(Term(z3.Int(name)) > 3) for name in runs.pop(0)]

    with pytest.raises(NotDecidableError, match="the code does not repeat itself"):
        results(run)


@pytest.mark.parametrize("then", [2, 0], ids=["more", "fewer"])
def test_code_that_says_something_else_is_rejected(then: int) -> None:
    """A fact of the first way is not said again on the next: it would be missing there, or too much."""
    counts = [1, then]

    def run() -> bool:
        for _ in range(counts.pop(0)):
            current_path().fact(X >= 0)
        return bool(Term(Y) > 3)

    with pytest.raises(NotDecidableError, match="it says more or less"):
        results(run)


def test_an_index_has_a_way_for_each_value() -> None:
    """Within a bound; the values come in order."""

    def run() -> str:
        current_path().assume(z3.And(X >= 1, X <= 3))
        return "abcde"[Term(X)]

    assert ["b", "c", "d"] == results(run)
    assert [0, 1, 2] == [len(range(each)) for each in results(lambda: _between(0, 2))]


def _between(least: int, most: int) -> int:
    current_path().assume(z3.And(X >= least, X <= most))
    return Term(X).__index__()


def test_an_index_without_a_bound_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would have no last way."""
    monkeypatch.setattr(symbolic, "VALUES_MAX", 4)
    with pytest.raises(NotDecidableError, match="more than 4 values"):
        results(lambda: _between(0, 9))
    assert 4 == len(results(lambda: _between(0, 3)))


def test_a_division_that_may_be_by_zero_is_rejected() -> None:
    """And by what may be negative: Python and z3 round differently there."""
    with pytest.raises(NotDecidableError, match="may be zero"):
        results(lambda: Term(X) // Term(Y))
    with pytest.raises(NotDecidableError, match="may be zero"):
        results(lambda: Term(X) % -2)


def test_the_same_division_is_the_same_number() -> None:
    """Else nothing could be said of a quotient that is asked for twice."""

    def run() -> Truth:
        current_path().assume(Y > 0)
        first, second = Term(X) // Term(Y), Term(X) // Term(Y)
        same: Truth = first == second
        return same

    for path, same in all_paths(run, by_lemmas=True):
        assert path.solver.check(z3.Not(same.z3)) == z3.unsat


def test_too_many_paths_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit on everything."""
    monkeypatch.setattr("kvspec.symbolic.PATHS_MAX", 3)
    with pytest.raises(NotDecidableError, match="more than 3 paths"):
        results(lambda: (bool(Term(X) > 0), bool(Term(Y) > 0)))


def test_nothing_is_asked_outside_of_a_proof() -> None:
    """A term that leaks into other code must not be taken for a number there."""
    with pytest.raises(NotDecidableError, match="outside of a proof"):
        bool(Term(X) > 0)
    with pytest.raises(TypeError):
        {Term(X)}
    with pytest.raises(TypeError):
        {Term(X) > 0}


def test_two_truths_are_compared_as_truths() -> None:
    """Comparing a bool with a truth is not silently false."""

    def run() -> bool:
        current_path().assume(X == 2)
        # The comparisons are what is tested.
        return bool((Term(X) > 1) == True) and not bool((Term(X) > 1) != True) and bool(True == (Term(X) > 1))  # noqa: E712

    assert [True] == results(run)


def test_what_is_said_twice_is_known_wherever_it_is_said() -> None:
    """It is asserted once on a way, and again on each way that did not say it before its fork."""

    def run() -> bool:
        first = bool(Term(X) > 3)
        for _ in range(2):
            current_path().fact(Y == (1 if first else 2))
            current_path().assume(Z >= 7)
        return first

    for path, first in all_paths(run, by_lemmas=True):
        assert 3 == len(path.solver.assertions())
        assert z3.unsat == path.solver.check(z3.Or(Y != (1 if first else 2), Z < 7))
        assert z3.sat == path.solver.check()


def test_what_is_remembered_is_made_once_for_all_ways_of_a_run() -> None:
    """And anew for the next run, which may be with other code."""
    made: list[int] = []

    def make() -> int:
        made.append(len(made))
        return made[-1]

    def run() -> int:
        assert bool(Term(X) > 3) in (True, False)
        return symbolic.remembered("key", make)

    assert [0, 0] == results(run)
    assert [1, 1] == results(run)
    assert 2 == symbolic.remembered("key", make)
    assert 3 == symbolic.remembered("key", make)


def test_a_term_is_made_once() -> None:
    """The same term is found again; what differs in an operand, its order or its operation is another one."""
    one, other = formulas.unknown("x"), formulas.unknown("y")
    assert formulas.plus(one, other) is formulas.plus(formulas.unknown("x"), other)
    made = [
        *(formulas.plus(one, other), formulas.plus(other, one), formulas.minus(one, other), formulas.times(one, other)),
        *(formulas.quotient(one, other), formulas.remainder(one, other), formulas.negative(one)),
        *(formulas.applied("f", one), formulas.applied("g", one), formulas.applied("f", one, other)),
        *(formulas.number(0), formulas.number(1), one, other),
    ]
    truths = [make(one, other) for make in (formulas.less, formulas.at_most, formulas.at_least, formulas.equal)]
    for terms in (made, truths):
        assert len(terms) == len({each.sexpr() for each in terms})
    x, y = z3.Ints("x y")
    assert ["x + y", "y + x", "x - y", "x*y", "x/y", "x%y", "-x"] == [str(each) for each in made[:7]]
    assert all(map(formulas.is_same, truths, (x < y, x <= y, x >= y, x == y)))
    assert not formulas.is_same(truths[0], truths[1])


@pytest.mark.parametrize(("formula", "truth"), [(X == X, True), (X != X, False), (X > 3, None)], ids=str)
def test_what_is_known_without_a_search(formula: z3.BoolRef, truth: bool | None) -> None:
    """And in values that z3 found, every truth and every number is known."""
    assert truth is formulas.truth_if_known(formula)
    solver = z3.Solver()
    assert z3.sat == formulas.answer(solver, X == -5)
    assert z3.unsat == formulas.answer(solver, z3.And(X == -5, X > 3))
    solver.add(X == -5)
    assert z3.sat == solver.check()
    assert (truth is True) == formulas.is_so(formula, solver.model())
    assert -5 == formulas.value(X, solver.model())
