"""Refuted designs.

Goal: z3 refutes each, and a run of the design shows the counterexample, while a run of the reference does not. Method:
refute all of them, and read both answers.
"""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest
from attrs import evolve

from kvreference.statements import STATEMENTS
from kvspec.prover import Proof, Verdict, prove
from kvspec.refuted.designs import DESIGNS
from kvspec.refuted.pins import STEPS_MAX, by_count, lived
from kvspec.refuted.replay import Replay

FEWEST = 8
SAID = {
    "mask-without-shift": (5, "a hit of 0 tokens", "a hit of 3 tokens"),
    "gate-without-demotion": (5, "rejected, although no block is held", "admitted"),
    "pin-by-count-undoes-another": (
        3,
        "held by 1, a count of 1, in the pinned queue, not pinned",
        "held by 1, a count of 1, in no queue, not pinned",
    ),
    "pin-by-count-frees-under-holder": (
        4,
        "held by 1, a count of 0, in the free queue, not pinned",
        "held by 1, a count of 1, in no queue, not pinned",
    ),
    "pin-by-count-loses-block": (
        4,
        "held by 0, a count of -1, in no queue, not pinned",
        "held by 0, a count of 0, in the free queue, not pinned",
    ),
    "pin-by-count-forgets-pin": (
        4,
        "held by 0, a count of 0, in the free queue, pinned",
        "held by 0, a count of 0, in the pinned queue, pinned",
    ),
}
"""How many operations the shortest trace has, and the answers of the design and of the reference."""


def refuted(name: str) -> tuple[Proof, Replay]:
    """The result of z3 for a design, and its counterexample, run."""
    proof = prove(DESIGNS[name].obligation)
    assert proof.counterexample is not None
    return proof, DESIGNS[name].replay(proof.counterexample)


@pytest.mark.few(4)
@pytest.mark.parametrize("name", DESIGNS)
def test_z3_and_the_run_agree(name: str) -> None:
    """The design is refuted, on numbers too, and its trace distinguishes it from the reference."""
    proof, replay = refuted(name)
    assert Verdict.REFUTED is proof.verdict
    assert proof.confirmed is True
    assert (True, False) == (replay.design_fails, replay.sound_fails)
    assert replay.shows_it
    assert replay.operations
    assert DESIGNS[name].statement in STATEMENTS


@pytest.mark.parametrize("name", SAID)
def test_what_both_come_to(name: str) -> None:
    """In so many operations."""
    _, replay = refuted(name)
    assert SAID[name] == (len(replay.operations), replay.design, replay.sound)


def test_there_are_enough() -> None:
    """As many as were promised, each with a name of its own."""
    assert len(DESIGNS) >= FEWEST


@pytest.mark.parametrize("name", [name for name in SAID if name.startswith("pin-by-count")])
def test_the_way_is_the_shortest(name: str) -> None:
    """With one action fewer than z3 needs, nothing is wrong: the statement is proved up to there."""
    proof, _ = refuted(name)
    assert proof.counterexample is not None
    shortest = proof.counterexample["length"]
    for length in range(1, shortest):
        assert Verdict.PROVED is prove(DESIGNS[name].obligation, {"length": length}).verdict


def test_what_z3_assumes_of_pins_is_what_the_pool_does() -> None:
    """Every way of up to five actions that can be asked for ends alike, in numbers and in the refuted pool."""
    compared = 0
    for length in range(1, 6):
        for actions in product(range(5), repeat=length):
            legal, life = lived(way(*actions))
            if legal:
                assert life == evolve(by_count(actions), known=life.known)
                compared += 1
    assert compared > 50


def test_a_trace_shows_something_only_if_the_design_fails() -> None:
    """Taking a block changes its count, and is not a failure; neither would be two different ones."""
    harmless = DESIGNS["pin-by-count-loses-block"].replay(vars(way(0)))
    assert harmless.design != harmless.sound
    assert not harmless.shows_it
    assert not evolve(harmless, design_fails=True, sound_fails=True).shows_it


def way(*actions: int) -> SimpleNamespace:
    """A way as z3 gives it."""
    padded = [*actions, *(0,) * (STEPS_MAX - len(actions))]
    return SimpleNamespace(length=len(actions), **{f"action_{step}": action for step, action in enumerate(padded)})


def test_a_way_that_cannot_be_asked_for_is_none() -> None:
    """A block cannot be hit before it holds something, freed without a holder, or demoted where it is not pinned."""

    def legal(*actions: int) -> Any:
        return lived(way(*actions))[0]

    assert [True, True, True] == [legal(0), legal(0, 1, 2, 2), legal(0, 3, 4)]
    assert [False, False, False, False] == [legal(1), legal(2), legal(0, 0), legal(0, 4)]
