"""The transition system, run on numbers.

Goal: the proofs about any sound state are seen to hold in reachable states, and a mutant breaks its transition there
too: neither the proofs nor their mutants are about impossible states. Method: walks at random from the initial state,
through few blocks, entries, copies and contents, so that they meet.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest
from attrs import evolve

from kvspec.maps import FiniteMap
from kvspec.pool.state import FIXED, MAPS, Operands, State, Transition, initial
from kvspec.pool.transitions import (
    TRANSITIONS,
    Aim,
    Begin,
    Compute,
    Computed,
    Drop,
    Fill,
    Hold,
    Provide,
    Read,
    ReadDone,
    Register,
    Reset,
    TakeBack,
    Use,
)
from kvspec.registry import obligations

BLOCKS = 4
TRIES, TRIES_OF_A_MUTANT = 300_000, 2_000_000
"""How many transitions are tried, of which most cannot happen."""
LEGS = (60, 400)
"""After how many tries a walk begins again, in turn: late everything is held, and early nothing is cached."""
OF_STEPS = {name: each for name, each in obligations().items() if "transition" in each.unknowns}
UNMET = {
    # A load must write over a range that a step in flight still reads, and that its request counts.
    ("blocks-and-references.counted-is-written", "loaded-over-what-is-read"),
    # Two requests must count the range of a block that one of them hit, after it was written.
    ("blocks-and-references.counted-is-written", "lost-while-it-is-needed"),
}
"""Mutants that random walks of some million steps do not meet; z3 refutes them all."""
MUTANTS = [
    (name, mutant.name)
    for name, each in OF_STEPS.items()
    for mutant in each.mutants
    if (name, mutant.name) not in UNMET
]
SELDOM = {
    # Everything must be freed, and something pinned, before a reset.
    ("content-and-cached-map.reset-forgets-all", "something is pinned"),
    # Two blocks in each of three places are more blocks than there are.
    ("blocks-and-references.conserved", "blocks are in all three places"),
    # Two copies, one after the other.
    ("partial-hits.destination-is-held", "a destination is the source of another copy"),
    # Two copies, of which one has its destination.
    ("partial-hits.destination-is-own", "another copy is pending"),
    ("partial-hits.source-is-held", "one of two copies of one source is dispatched"),
    ("partial-hits.destination-is-named", "another block is released"),
    # Two boundaries and a full block, all of them computed before.
    ("content-and-cached-map.handed-out-is-forgotten", "a cached block is allocated"),
    # Two blocks with the same content, computed side by side.
    ("content-and-cached-map.hit-holds-what-was-asked", "another block holds it too"),
    # A hit, and both requests count it no longer.
    ("blocks-and-references.computed-is-fixed", "two requests lose it"),
    # It must be pinned before, and then released.
    ("content-and-cached-map.only-these-forget", "a cached block is demoted"),
}
"""Witnesses that such walks hardly ever meet."""
PASSED_OVER = {Reset: 0.3, Use: 0.7, Fill: 0.6}
"""How often a transition is passed over that ends a walk's variety, or keeps blocks from being freed."""


TRIED: tuple[type[Transition], ...] = (
    *TRANSITIONS,
    Compute,
    Computed,
    Register,
    Register,
    Begin,
    Drop,
    ReadDone,
    Hold,
    Read,
)
"""The transitions to try: more often those that seldom can happen, or that a walk depends on."""
BY_AN_ENTRY = frozenset({Provide, Compute, TakeBack, Use, Aim, Drop, Register, Begin})
"""What happens to a block by an entry that names it: such a one is tried, if there is any."""
ENTRIES = 1, 6


def walk(tries: int, seed: str) -> Iterator[SimpleNamespace]:
    """Steps of a walk: the unknowns of each, with an arbitrary point."""
    draw = random.Random(seed)
    # Two contents, of which one or both reach the range that is looked at.
    state = State(BLOCKS, 0, **{name: FiniteMap() for name in MAPS})
    for number in range(tries):
        if number % sum(LEGS) in (0, LEGS[0]):
            part = FiniteMap({1: draw.randint(1, 2), 2: draw.randint(0, 2)})
            state = initial(evolve(state, out_of_turn=int(draw.random() < 0.4), part=part))
        transition = draw.choice(TRIED)
        at = Operands(*(draw.randint(least, most) for least, most in OPERANDS.values()))
        naming = [entry for entry in range(*ENTRIES) if state.named[entry] == at.block]
        if transition in BY_AN_ENTRY and naming:
            at = evolve(at, entry=draw.choice(naming))
        if draw.random() < PASSED_OVER.get(transition, 0) or not transition.guard(state, at):
            continue
        yield SimpleNamespace(
            **{name: getattr(state, name) for name in (*FIXED, *MAPS)},
            **{name: draw.randint(least, most) for name, (least, most) in POINT.items()},
            transition=TRANSITIONS.index(transition),
            **{f"at_{name}": getattr(at, name) for name in OPERANDS},
        )
        state = transition.effect(state, at)


OPERANDS = {
    "block": (0, BLOCKS),
    "entry": (ENTRIES[0], ENTRIES[1] - 1),
    "other": (1, 5),
    "copy": (1, 2),
    "content": (0, 2),
    "use": (1, 1),
}
"""By operand, its least and its largest value, in the order of ``Operands``."""
POINT = {f"any_{name}": span for name, span in OPERANDS.items() if name != "other"}


def first(seen: Callable[[SimpleNamespace], bool], tries: int, seed: str) -> SimpleNamespace | None:
    """The first step of a walk of which something is ``seen``."""
    return next((unknowns for unknowns in walk(tries, seed) if seen(unknowns)), None)


@pytest.mark.ci
def test_what_is_proved_is_so_wherever_one_gets() -> None:
    """Every obligation, in every step; and nearly every witness is met on the way."""
    unmet = {(name, witness) for name, each in OF_STEPS.items() for witness in each.witnesses}
    steps = 0
    for unknowns in walk(TRIES, "sound"):
        steps += 1
        for name, each in OF_STEPS.items():
            assert each.claim(unknowns), name
        unmet -= {(name, witness) for name, witness in unmet if OF_STEPS[name].witnesses[witness](unknowns)}
    assert steps > TRIES / 20
    assert unmet <= SELDOM, steps


@pytest.mark.few(6)
@pytest.mark.parametrize(("name", "mutant"), MUTANTS)
def test_a_mutant_breaks_a_state_that_can_be_reached(name: str, mutant: str) -> None:
    """Not only one that z3 makes up."""
    obligation = OF_STEPS[name]
    broken = next(each for each in obligation.mutants if each.name == mutant)
    with broken.applied():
        assert first(lambda unknowns: not obligation.claim(unknowns), TRIES_OF_A_MUTANT, "broken") is not None
