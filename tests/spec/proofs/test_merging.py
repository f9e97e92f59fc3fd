"""Code that forks, merged into one formula.

Goal: the formula says what the code says, on every way. Method: statements about code that forks, of which one is so
and one is not, and the same code on numbers.
"""

from __future__ import annotations

from typing import Any

import pytest

from kvspec.obligation import Count, Obligation
from kvspec.prover import Verdict, prove
from kvspec.symbolic import number_of, truth_of


def distance(first: Any, second: Any) -> Any:
    """Forks."""
    return first - second if first > second else second - first


def close(first: Any, second: Any) -> bool:
    """Forks, and answers with a bool."""
    if first > second:
        return bool(first - second <= 2)
    return bool(second - first <= 2)


def said(claim: Any, most: int | None = None) -> tuple[Verdict, int, Any]:
    """The verdict on a statement about two numbers, how many execution paths were tried, and the counterexample."""
    unknowns = {"first": Count(0, most), "second": Count(0, most)}
    proof = prove(Obligation("merging.test", (), "A statement.", unknowns, claim, {}, ()))
    return proof.verdict, proof.ways, proof.counterexample


def test_a_merged_number_is_the_number() -> None:
    """On one path; a false claim is refuted."""
    assert (Verdict.PROVED, 1, None) == said(
        lambda u: (
            number_of(lambda: distance(u.first, u.second), True) == number_of(lambda: distance(u.second, u.first), True)
        )
    )
    assert (Verdict.REFUTED, 1, {"first": 0, "second": 1}) == said(
        lambda u: number_of(lambda: distance(u.first, u.second), True) == u.first - u.second
    )


def test_a_merged_truth_is_the_truth() -> None:
    """On one path; a false claim is refuted."""
    assert (Verdict.PROVED, 1, None) == said(lambda u: truth_of(lambda: close(u.first, u.second), True), most=2)
    assert (Verdict.REFUTED, 1) == said(lambda u: truth_of(lambda: close(u.first, u.second), True), most=3)[:2]


def test_nothing_is_said_where_what_is_given_is_not_so() -> None:
    """So nothing is proved by it there: the number is none, and the truth is false."""
    assert Verdict.REFUTED is said(lambda u: truth_of(lambda: True, u.first == 1))[0]
    assert Verdict.REFUTED is said(lambda u: number_of(lambda: u.first, u.first == 1) == u.first)[0]


@pytest.mark.parametrize(("first", "second"), [(3, 5), (5, 3), (9, 1)])
def test_on_numbers_it_is_the_code(first: int, second: int) -> None:
    """Ints and bools come back."""
    assert abs(first - second) == number_of(lambda: distance(first, second), True)
    assert (abs(first - second) <= 2) is truth_of(lambda: close(first, second), True)
