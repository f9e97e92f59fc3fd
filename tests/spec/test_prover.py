"""The prover.

Goal: a proved statement is true, a refuted one comes with numbers for which it fails, and an undecided one is reported
as neither. Method: statements of which the answer is known.
"""

from __future__ import annotations

import gc
import operator
import subprocess
import sys
from typing import Any

import pytest
from attrs import evolve

from kvreference import attention
from kvspec import prover
from kvspec.maps import FiniteMap
from kvspec.obligation import AMap, Count, Lemma, Obligation, Patch, Tier, only
from kvspec.prover import Verdict, holds, prove, survives, witness
from kvspec.symbolic import implies, larger, negated


def statement(claim: Any, assumes: Any = lambda u: True, **others: Any) -> Obligation:
    """A statement about two numbers of at least 0."""
    unknowns = others.pop("unknowns", {"x": Count(), "y": Count()})
    return Obligation(
        "test.statement", ("KV-OP-01",), "", unknowns, claim, others.pop("witnesses", {}), (), assumes, **others
    )


def test_what_is_so_is_proved() -> None:
    """On each of its execution paths."""
    proof = prove(statement(lambda u: max(u.x, u.y) >= u.y))
    assert (Verdict.PROVED, 2, None) == (proof.verdict, proof.ways, proof.counterexample)


def test_what_is_not_so_is_refuted_by_the_smallest_numbers() -> None:
    """They are run again, as numbers."""
    proof = prove(statement(lambda u: u.x + u.y < 7))
    assert proof.verdict is Verdict.REFUTED
    assert proof.counterexample is not None
    assert 7 == sum(proof.counterexample.values())
    assert proof.confirmed is True


def test_what_is_smaller_can_be_said() -> None:
    """Of two that fail, the one with the smaller size is reported."""
    proof = prove(statement(lambda u: u.x + u.y < 7, size=lambda u: u.x))
    assert proof.counterexample is not None
    assert 0 == proof.counterexample["x"]


def test_what_holds_for_bounded_numbers_alone_needs_its_bound() -> None:
    """Bounds and fixed values are kept."""
    bounded = statement(lambda u: u.x < 10, unknowns={"x": Count(2, 9)})
    assert Verdict.PROVED is prove(bounded).verdict
    assert {"x": 10} == prove(statement(lambda u: u.x < 10, unknowns={"x": Count(2)})).counterexample
    assert {"x": 2} == prove(statement(lambda u: u.x > 2, unknowns={"x": Count(2)})).counterexample
    assert Verdict.PROVED is prove(statement(lambda u: u.x < 10), {"x": 9}).verdict
    assert {"x": 10, "y": 0} == prove(statement(lambda u: u.x < 10), {"x": 10}).counterexample


def test_products_are_decided_by_their_lemmas() -> None:
    """For all numbers: of two quotients by the same divisor, that of the larger number is not smaller."""
    monotone = statement(
        lambda u: u.x // u.d <= (u.x + u.y) // u.d, unknowns={"x": Count(), "y": Count(), "d": Count(1)}
    )
    assert Verdict.PROVED is prove(monotone).verdict


def test_what_the_lemmas_cannot_say_is_asked_again() -> None:
    """The first answer is a refutation that does not fail as numbers; the second knows what a product is."""
    square = statement(lambda u: u.x * u.x != 30, assumes=lambda u: u.x < 20)
    first = prover._attempt(square, {}, prover.EFFORT, by_lemmas=True)
    assert (Verdict.REFUTED, False) == (first.verdict, first.confirmed)
    assert Verdict.PROVED is prove(square).verdict


def test_what_z3_cannot_decide_is_unknown() -> None:
    """Not proved, and not refuted; with hardly any effort that is much."""
    cubes = statement(
        lambda u: u.x * u.x * u.x + u.y * u.y * u.y != u.z * u.z * u.z,
        unknowns={name: Count(1) for name in "xyz"},
    )
    proof = prove(cubes, effort=20_000)
    assert (Verdict.UNKNOWN, None) == (proof.verdict, proof.counterexample)
    assert "z3 gives up" in proof.detail


def test_what_no_formula_can_say_is_unknown() -> None:
    """A division by zero, say."""
    assert "may be zero" in prove(statement(lambda u: u.x // u.y >= 0)).detail


def test_what_is_never_so_proves_nothing() -> None:
    """Whether the assumption is a truth, a bool, or a contradiction between numbers."""
    for given in (lambda u: u.x < 0, lambda u: bool(u.x > 3) and bool(u.x < 2), lambda u: False):
        proof = prove(statement(lambda u: u.x == 17, given))
        assert (Verdict.VACUOUS, 0) == (proof.verdict, proof.ways)
        assert "what is assumed cannot be" in proof.detail


@pytest.mark.parametrize(
    "false",
    [
        lambda u: negated((u.x < 5) == 1),
        lambda u: (u.x < 5) != 1,
        lambda u: (u.x < 5) != u.y,
        lambda u: u.y != (u.x < 5),
        lambda u: implies(u.y == True, u.x >= 5),  # noqa: E712 (the comparison is what is tested)
    ],
)
def test_a_truth_next_to_a_number_is_one_or_zero(false: Any) -> None:
    """As in Python; else two objects would be compared, and what is false would be proved."""
    proof = prove(statement(false, unknowns={"x": Count(), "y": Count(0, 1)}))
    assert (Verdict.REFUTED, True) == (proof.verdict, proof.confirmed)


@pytest.mark.parametrize(
    "odd",
    [
        lambda u: (u.x >= 0) & 2,
        lambda u: (u.x >= 0) & u.y,
        lambda u: u.x * 0.5 == 0,
        lambda u: (u.x >= 0) == 1.5,
        lambda u: u.x if u.x > 5 else u.y,
        lambda u: True if u.x > 5 else None,
    ],
)
def test_what_is_not_a_truth_is_not_proved(odd: Any) -> None:
    """Numbers as truths, fractions, and nothing at all."""
    assert Verdict.UNKNOWN is prove(statement(odd)).verdict
    assert Verdict.UNKNOWN is prove(statement(lambda u: True, assumes=odd)).verdict


def test_code_that_raises_is_refuted() -> None:
    """With the values for which it does, and the error; nothing else ends with it."""

    def raises(u: Any) -> Any:
        if u.x == 3:
            raise ValueError("three")
        return True

    proof = prove(statement(raises))
    assert (Verdict.REFUTED, True, "ValueError('three')") == (proof.verdict, proof.confirmed, proof.detail)
    assert proof.counterexample == {"x": 3, "y": 0}
    assert Verdict.PROVED is prove(statement(raises, assumes=lambda u: u.x < 3)).verdict


def test_a_lemma_is_used() -> None:
    """Its claim at the given values is known; without it the statement fails."""
    lemma = statement(lambda u: u.x == u.y, assumes=lambda u: u.x >= 5, unknowns={"x": Count(), "y": Count()})
    uses = statement(
        lambda u: u.y >= 5, assumes=lambda u: u.x >= 5, lemmas=lambda u: [Lemma(lemma, {"x": u.x, "y": u.y})]
    )
    assert Verdict.PROVED is prove(uses).verdict
    assert Verdict.REFUTED is prove(evolve(uses, lemmas=lambda u: [])).verdict


def test_witnesses_are_found_and_run() -> None:
    """Values for which the assumption and the witness hold; none if none exist."""
    some = statement(
        lambda u: True, assumes=lambda u: u.x > 3, witnesses={"large": lambda u: u.y > u.x, "never": lambda u: u.x == 0}
    )
    found = witness(some, "large")
    assert found is not None
    assert found["y"] > found["x"] > 3
    assert witness(some, "never") is None


def test_a_mutant_replaces_what_runs_and_no_longer() -> None:
    """The statement is refuted with it, and proved after it."""
    shrinks = statement(lambda u: attention.tokens_skipped(u.x, 3) <= u.x)
    mutant = only("grown", "", "kvreference.attention:tokens_skipped", lambda computed, window: computed + window)
    assert {"x": 0, "y": 0} == survives(shrinks, mutant).counterexample
    assert Verdict.PROVED is prove(shrinks).verdict
    with pytest.raises(AttributeError):
        survives(shrinks, only("gone", "", "kvreference.attention:no_such_name", max))


def test_a_patch_reaches_into_classes() -> None:
    """``module:Class.name`` is what a method is called."""
    target = Patch("kvspec.maps:FiniteMap.count", lambda self, value: 17)
    with target.applied():
        assert 17 == FiniteMap({1: 1}).count(1)
    assert 1 == FiniteMap({1: 1}).count(1)


def test_maps_are_found_and_not_run() -> None:
    """The answer of z3 for a map is a part of it."""
    proof = prove(statement(lambda u: u.m[u.x] != 4, unknowns={"x": Count(), "m": AMap()}))
    assert (Verdict.REFUTED, None) == (proof.verdict, proof.confirmed)
    assert proof.counterexample is not None
    assert 4 == proof.counterexample["m"][proof.counterexample["x"]]


def test_a_statement_can_be_run_as_numbers() -> None:
    """Assumptions count too."""
    some = statement(lambda u: u.x < 10, assumes=lambda u: u.x > 3)
    assert [False, True, False] == [holds(some, {"x": x, "y": 0}) for x in (3, 4, 10)]


def test_tiers() -> None:
    """A statement with a bound is never reported as one for all sizes."""
    assert Tier.ALL is statement(operator.truth).tier
    assert Tier.BOUNDED is statement(operator.truth, bound="up to 3").tier


def test_the_lemmas_exclude_no_product() -> None:
    """For any multiplied numbers, all claims about their products hold; with a wrong product, not."""
    import z3

    said = [
        (factor, less, more, z3.simplify(z3.And(*map(_simple, _larger(factor, less, more, 0)))))
        for factor in range(4)
        for less in range(-3, 4)
        for more in range(-3, 4)
    ]
    assert all(z3.is_true(each) for *_, each in said)
    assert not z3.is_true(z3.simplify(z3.And(*_larger(2, 1, 3, 1))))


def _simple(formula: Any) -> Any:
    import z3

    return z3.simplify(formula)


def _larger(factor: int, less: int, more: int, off: int) -> Any:
    import z3

    numbers = (factor, less, factor * less, more, factor * more + off)
    return larger(*(z3.IntVal(number) for number in numbers))


def test_no_thread_frees_a_term_meanwhile() -> None:
    """While a statement is proved or shown to be possible, Python collects nothing; afterwards it does again."""
    seen: list[bool] = []

    def claim(u: Any) -> Any:
        seen.append(gc.isenabled())
        return u.x >= 0

    gc.enable()
    prove(statement(claim))
    assert gc.isenabled()
    witness(statement(lambda u: u.x >= 0, witnesses={"any": claim}), "any")
    assert gc.isenabled()
    assert seen == [False] * len(seen)
    assert len(seen) > 1


@pytest.mark.ci
def test_other_threads_may_allocate() -> None:
    """Goal: a proof ends although Python's collector may run in another thread at any time. Method: a process with a
    thread that only allocates; z3 works without the GIL, and the process ends by a signal if that thread frees a term.
    """
    program = """
import sys, threading
from kvspec.prover import prove
from kvspec.refuted.admission import HANGS

def allocate():
    while True:
        [[number] for number in range(3000)]

sys.setswitchinterval(1e-6)
threading.Thread(target=allocate, daemon=True).start()
for refuted in HANGS:
    prove(refuted.obligation)
"""
    assert subprocess.run([sys.executable, "-c", program], timeout=300).returncode == 0
