"""The formulas of chapters 04 to 09, for given models, on terms that mean what ints mean.

Goal: the proofs about terms hold of the numbers that the code runs on. Method: the same code is run on ints and on
terms that are held to these ints, and must agree. Statements about a group are proved for the groups of models.
``tests/spec/test_proofs.py`` checks that every obligation is proved, has its witnesses and loses its mutants.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Any

import pytest
import z3
from attrs import evolve

from kvgate.kernel.models import load
from kvreference.geometry import Geometry
from kvspec import symbolic
from kvspec.obligation import AMap, Count, Lemma, Obligation
from kvspec.proofs import (
    attention_kinds,
    compressed,
    eagle,
    hit_lookup,
    lemmas,
    partial_hits,
    retention,
    scheduler_room,
)
from kvspec.prover import Verdict, holds, prove
from kvspec.symbolic import Term, Truth, implies

OBLIGATIONS = (
    *lemmas.OF_PRODUCTS,
    *lemmas.OF_MULTIPLES,
    *attention_kinds.OBLIGATIONS,
    *hit_lookup.ALIGNMENT,
    *retention.OBLIGATIONS,
    *eagle.OBLIGATIONS,
    *compressed.OBLIGATIONS,
    *partial_hits.COPIED,
    *scheduler_room.ADMISSION,
)
each_obligation = pytest.mark.parametrize("obligation", OBLIGATIONS, ids=lambda obligation: obligation.id)

RUN_ON_INTS = tuple(
    obligation
    for obligation in OBLIGATIONS
    if not any(isinstance(unknown, AMap) for unknown in obligation.unknowns.values())
)


# Proofs about a model


@pytest.mark.ci
@pytest.mark.parametrize(
    "model", ["gemma-hybrid+eagle", "dsv4-flash-ascend-128+mtp", "dsv4-flash-ascend-64+partial", "local", "mamba-align"]
)
def test_proved_of_a_model(model: str) -> None:
    """Statements about one group are proved with the sizes of each group of a deployed model."""
    geometry = load(model).geometry
    bound = [
        (obligation, values)
        for obligation in OBLIGATIONS
        if obligation.binds is not None
        for values in _bindings(obligation.binds, geometry)
    ]
    assert bound
    for obligation, values in bound:
        assert set(values) <= set(obligation.unknowns)
        assert Verdict.PROVED is prove(obligation, values).verdict, (obligation.id, values)


def _bindings(binds: Callable[..., Mapping[str, int] | None], geometry: Geometry) -> list[Mapping[str, int]]:
    """The values of every group of which the obligation speaks, each once."""
    found = [binds(geometry, group) for group in geometry.groups]
    return [values for index, values in enumerate(found) if values is not None and values not in found[:index]]


# The meaning of terms


def _held_to(obligation: Obligation, values: Mapping[str, int]) -> Obligation:
    """The same statement about terms of which each has one value."""

    def assumes(u: Any) -> Any:
        condition: Any = True
        for name, value in values.items():
            condition = (getattr(u, name) == value) & condition
        return condition

    return evolve(obligation, assumes=assumes, lemmas=lambda _unknowns: ())


def _drawn(obligation: Obligation, random: Random) -> dict[str, int]:
    """Small values within the bounds of the unknowns."""
    counts = {name: unknown for name, unknown in obligation.unknowns.items() if isinstance(unknown, Count)}
    return {
        name: random.randint(count.least, count.least + 12 if count.most is None else count.most)
        for name, count in counts.items()
    }


@pytest.mark.few(20)
@pytest.mark.parametrize("obligation", RUN_ON_INTS, ids=lambda obligation: obligation.id)
def test_terms_agree_with_ints(obligation: Obligation) -> None:
    """On values drawn at random, a claim holds of terms if and only if it holds of ints, also where it is false."""
    random = Random(obligation.id)
    for _ in range(6):
        values = _drawn(obligation, random)
        as_ints = holds(evolve(obligation, assumes=lambda _unknowns: True), values)
        as_terms = prove(_held_to(obligation, values))
        assert (Verdict.PROVED if as_ints else Verdict.REFUTED) is as_terms.verdict, values


EXPRESSIONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "quotient of a negative number": lambda x, y: (x - 9) // y,
    "remainder of a negative number": lambda x, y: (x - 9) % y,
    "quotient by a number that is known": lambda x, y: (y - x) // 3,
    "remainder by a number that is known": lambda x, y: (y - x) % 3,
    "quotient of a number that is known": lambda x, y: -7 // y + 7 // y + x,
    "remainder of a number that is known": lambda x, y: -7 % y + 7 % y + x,
    "rounded up": lambda x, y: -(-x // y) * y,
    "largest": lambda x, y: max(x, y, 3),
    "smallest": lambda x, y: min(x - y, 0),
    "product": lambda x, y: x * y - y * (x - 1),
    "either of two": lambda x, y: x or y,
    "chain": lambda x, y: 1 if 2 <= x < y else 0,
    "place": lambda x, y: (5, 3, 8, 1, 4, 9, 2, 6, 7, 0, 3, 1, 12, 14)[x] + y,
    "as many as": lambda x, y: sum(step < y for step in range(x)),
    "counted": lambda x, y: sum([x == 3, y > 2, x > y]),
}


def _is(expression: Callable[[Any, Any], Any], value: int, u: Any) -> Any:
    return expression(u.x, u.y) + 0 == value


def _wrong(expression: Callable[[Any, Any], Any]) -> list[tuple[int, int]]:
    """The values for which ``expression`` is not the same of terms as of ints."""
    random = Random(7)
    wrong = []
    for _ in range(12):
        x, y = random.randint(0, 12), random.randint(1, 12)
        value = expression(x, y)
        same = Obligation(
            id="same",
            statements=(),
            title="",
            unknowns={"x": Count(0), "y": Count(1)},
            claim=partial(_is, expression, value),
            witnesses={},
            mutants=(),
        )
        if prove(_held_to(same, {"x": x, "y": y})).verdict is not Verdict.PROVED:
            wrong.append((x, y))
    return wrong


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_expressions_mean_what_python_means(name: str) -> None:
    """Division rounds down, also below zero, and forks and indices find the value that the numbers have."""
    assert [] == _wrong(EXPRESSIONS[name])


def test_division_that_rounds_to_zero_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Positive control: with the division of another language, negative numbers are found to differ."""

    def rounded_to_zero(dividend: z3.ArithRef, divisor: z3.ArithRef) -> tuple[Term, Term]:
        quotient = z3.If(dividend >= 0, dividend / divisor, -(-dividend / divisor))
        return Term(quotient), Term(dividend - quotient * divisor)

    monkeypatch.setattr(symbolic, "divided", rounded_to_zero)
    assert _wrong(EXPRESSIONS["quotient of a negative number"])
    assert _wrong(EXPRESSIONS["remainder of a negative number"])


# Lemmas


def _uses(obligation: Obligation) -> list[Obligation]:
    """The obligations that are lemmas of this one, for any values."""
    used: list[Obligation] = []

    def claim(u: Any) -> Any:
        used[:] = [lemma.obligation for lemma in obligation.lemmas(u)]
        return True

    prove(evolve(obligation, claim=claim, lemmas=lambda _unknowns: ()))
    return used


@each_obligation
def test_lemmas_are_obligations(obligation: Obligation) -> None:
    """A lemma is proved itself, before: no proof rests on an unproved lemma, nor on itself."""
    places = {each.id: place for place, each in enumerate(OBLIGATIONS)}
    assert [] == [used.id for used in _uses(obligation) if places[used.id] >= places[obligation.id]]


def test_lemmas_are_seen() -> None:
    """Positive control: what rests on a lemma is found to."""
    assert [lemmas.ORDER.id] == [used.id for used in _uses(lemmas.MULTIPLE)]


def test_a_lemma_says_nothing_beyond_its_bounds() -> None:
    """A lemma about units of at least 1 proves nothing about a unit that may be 0."""
    unit_is_positive = Obligation(
        id="unit",
        statements=(),
        title="",
        unknowns={"unit": Count(1)},
        claim=lambda u: u.unit >= 1,
        witnesses={},
        mutants=(),
    )
    rests_on_it = evolve(
        unit_is_positive,
        unknowns={"unit": Count(0)},
        lemmas=lambda u: (Lemma(unit_is_positive, {"unit": u.unit}),),
    )
    assert Verdict.PROVED is prove(unit_is_positive).verdict
    assert {"unit": 0} == prove(rests_on_it).counterexample


def test_what_is_said_of_products_is_said_of_these() -> None:
    """The comparison of products is true of numbers drawn at random, and false of products that are too large."""
    random = Random(3)
    for _ in range(200):
        factor, first, second = (random.randint(-6, 6) for _ in range(3))
        said = symbolic.larger(*map(z3.IntVal, (factor, first, factor * first, second, factor * second)))
        assert z3.is_true(z3.simplify(z3.And(*said)))
        if factor >= 0 and abs(first - second) <= symbolic.LARGER_BY:
            wrong = symbolic.larger(*map(z3.IntVal, (factor, first, factor * first, second, factor * second + 1)))
            assert z3.is_false(z3.simplify(z3.And(*wrong)))


def test_without_a_fork() -> None:
    """``implies`` says of terms what it says of bools."""
    assert [True, False, True, True] == [
        implies(a, b) for a, b in ((1 == 1, True), (True, False), (False, True), (False, False))
    ]
    assert isinstance(implies(Truth(z3.Bool("a")), False), Truth)


def test_nearly_every_size_is_open() -> None:
    """No more obligations are bounded than those that must be."""
    bounded = sorted(obligation.id for obligation in OBLIGATIONS if obligation.bound)
    assert [
        "compressed-groups.published-alignments",
        "compressed-groups.unit-is-the-alignment",
    ] == bounded
