"""Progress: what is proved over counts is so over blocks, and each scheduler that is refuted hangs in fact."""

from __future__ import annotations

import random
from itertools import product
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from kvreference.geometry import Geometry, Group
from kvreference.operations import Abort, Arrive, Run, Transferred
from kvreference.refuted.scheduling import FirstIsPreempted, UnreservedLoad
from kvreference.scheduler.limits import Limits
from kvreference.scheduler.operations import Operation, Reply, Step, Submit
from kvreference.scheduler.scheduler import Scheduler
from kvreference.settings import Settings
from kvspec.progress.counted import (
    BUILT_IN,
    Counted,
    CountedHoldings,
    SideBySide,
    counted_scheduler,
    least,
    length_of,
    most,
    on_counts,
)
from kvspec.progress.states import is_sound
from kvspec.proofs.scheduler_steps import OTHER, RUNS
from kvspec.prover import Verdict, prove
from kvspec.refuted.admission import HANGS, SIZES_MAX
from kvspec.refuted.replay import Refuted

FULL = Group("full", 2)
GEOMETRIES = (
    (Geometry((FULL,)), 0),
    (Geometry((Group("full", 2, lookahead=True),)), 3),
    (Geometry((Group("full", 4), Group("sliding_window", 2, 4))), 0),
    (Geometry((Group("full", 4), Group("sliding_window", 2, 3, lookahead=True))), 2),
    (Geometry((FULL, Group("chunked_local", 2, 4))), 1),
    (Geometry((FULL, Group("mamba", 4, states="all", draft_states=1))), 1),
)
"""Each with the drafts that it is proposed."""


def pair_at_random(chance: random.Random, kind: type[Scheduler] = Scheduler) -> SideBySide:
    """Small pools, so that requests are in each other's way."""
    geometry, drafts_max = chance.choice(GEOMETRIES)
    settings = Settings(
        geometry,
        chance.choice([5, 7, 9, 14]),
        tokens_max=chance.choice([10, 16]),
        chunk_tokens=chance.choice([2, 3, 16]),
        requests_max=chance.choice([3, 5]),
        drafts_max=drafts_max,
        caches=False,
        full_sequence_must_fit=chance.random() < 0.5,
    )
    return SideBySide(settings, Limits(chance.choice([1, 4, 8, 64]), chance.choice([1, 3, 5])), kind)


def operation_at_random(chance: random.Random) -> Operation:
    """Mostly steps; offers and transfers of every kind."""
    kind = chance.choices(["submit", "step", "transferred", "abort"], [25, 55, 17, 3])[0]
    if kind == "submit":
        return Submit(
            Arrive(0, (Run(0, chance.randint(1, 9)),)),
            answers_max=chance.choice([1, 3, 8]),
            external_tokens=chance.choice([0, 2, 4, 9]),
            loads=chance.random() < 0.6,
            sends=chance.random() < 0.2,
        )
    if kind == "step":
        return Step((Reply(chance.choice([0, 1, 3]), 7, chance.choice([0, 3]), chance.random() < 0.05),))
    number = chance.randint(0, 9)
    return Abort(number) if kind == "abort" else Transferred(number, chance.random() < 0.7)


def first_difference(seeds: int, operations: int, kind: type[Scheduler] = Scheduler) -> tuple[int, list[str]]:
    """How many operations were performed on both until they differed, and how they did; nothing if they never did."""
    performed = 0
    for seed in range(seeds):
        chance = random.Random(seed)
        both = pair_at_random(chance, kind)
        for _ in range(operations):
            operation = both.reference.resolve(operation_at_random(chance))
            if operation is None:
                continue
            performed += 1
            found = both.apply(operation)
            if found:
                return performed, found
    return performed, []


@pytest.mark.ci
def test_counts_follow_the_blocks() -> None:
    """Goal: the proofs over counts hold of the reference. Method: seeded runs of both, on every kind of group that can
    be counted; each answer and each state is compared, completely.
    """
    performed, found = first_difference(seeds=60, operations=140)
    assert [] == found
    assert performed > 6000


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", [UnreservedLoad, FirstIsPreempted])
def test_a_scheduler_that_drifts_is_noticed(kind: type[Scheduler]) -> None:
    """Goal: a change of the scheduler over blocks shows. Method: its rule is another one, that over counts is not."""
    assert [] != first_difference(60, 140, kind)[1]


def test_a_block_manager_that_drifts_is_noticed() -> None:
    """Goal: a change in which blocks are freed shows. Method: windows keep blocks that are never read, in
    the reference.
    """
    with patch("kvreference.holdings.Holdings.release_dead", lambda self, request, computed: None):
        assert [] != first_difference(20, 140)[1]


@pytest.mark.parametrize("name", ["release_dead", "release_all", "passes_gate"])
def test_counts_that_drift_are_noticed(name: str) -> None:
    """Goal: a change of the counting shows. Method: nothing is given back, or the gate is always open."""
    with patch.object(CountedHoldings, name, lambda *_: True):
        assert [] != first_difference(60, 140)[1]


def test_what_cannot_be_counted_is_rejected() -> None:
    """Goal: no comparison of what is not counted. Method: caching; states at block ends only."""
    for settings in (
        Settings(Geometry((FULL,)), 5),
        Settings(Geometry((FULL, Group("mamba", 2, states="align"))), 5, caches=False),
    ):
        with pytest.raises(ValueError, match="nothing is counted"):
            SideBySide(settings, Limits())


def test_what_is_assumed_of_every_state_is_so() -> None:
    """Goal: the induction begins at what is reachable. Method: seeded runs in blocks of one token; after each operation
    holds what the proofs of steps assume. A state with a block too many does not.
    """
    seen = 0
    for seed in range(40):
        chance = random.Random(seed)
        settings = Settings(
            Geometry((Group("full", 1),)), chance.choice([5, 9, 14]), tokens_max=16, chunk_tokens=3, caches=False
        )
        with on_counts():
            made = counted_scheduler(settings, Limits(4, chance.choice([1, 3])))
            for _ in range(120):
                operation = made.resolve(operation_at_random(chance))
                if operation is not None and not _drafts(operation):
                    made.apply(operation)
                    seen += len(made.queues.terms) > 1
                    assert (True, seed) == (is_sound(made), seed)
            pool: Any = made.manager.pool
            pool.blocks_free += 1
            assert not is_sound(made)
    assert seen > 1000


def _drafts(operation: Operation) -> bool:
    return isinstance(operation, Step) and any(reply.drafts for reply in operation.replies)


def test_the_smaller_of_two_is_the_smaller() -> None:
    """Goal: the replacements of Python's own functions agree with them. Method: all small pairs and lists."""
    assert {"len", "min", "max"} == set(BUILT_IN)
    for first, second in product(range(-2, 3), repeat=2):
        assert (min(first, second), max(first, second)) == (least(first, second), most(first, second))
    assert (3, 5) == (length_of([1, 2, 3]), length_of(Counted(5)))


@pytest.mark.parametrize("refuted", HANGS, ids=lambda refuted: str(refuted.name))
def test_a_design_hangs_as_z3_says(refuted: Refuted) -> None:
    """Goal: z3's sizes lead to the hang in fact. Method: they are submitted to the design and to the reference, over
    blocks: one hangs, the other one does not.
    """
    proof = prove(refuted.obligation)
    assert (Verdict.REFUTED, True) == (proof.verdict, proof.confirmed)
    assert proof.counterexample is not None
    replay = refuted.replay(proof.counterexample)
    assert replay.shows_it
    assert "hangs" in replay.design or "loses" in replay.design
    assert not any(word in replay.sound for word in ("hangs", "loses"))
    assert len(replay.operations) <= 8


@pytest.mark.parametrize("refuted", HANGS, ids=lambda refuted: str(refuted.name))
def test_nothing_smaller_hangs(refuted: Refuted) -> None:
    """Goal: z3's sizes are the smallest, by their sum. Method: all that are smaller are tried, as ints."""
    values = prove(refuted.obligation).counterexample
    assert values is not None
    obligation, names = refuted.obligation, list(values)
    for sizes in product(range(1, SIZES_MAX + 1), repeat=len(names)):
        smaller = SimpleNamespace(**dict(zip(names, sizes, strict=True)))
        if sum(sizes) < sum(values.values()) and obligation.assumes(smaller):
            assert obligation.claim(smaller), smaller


def test_a_hang_needs_its_sizes() -> None:
    """Goal: a replay does not call everything a hang. Method: the same two loads in a pool with a block more."""
    unreserved = next(each for each in HANGS if each.name == "load-unreserved")
    sizes = {"blocks": 3, "tokens0": 2, "answers0": 1, "external0": 1, "tokens1": 2, "answers1": 1, "external1": 1}
    assert "hangs" in unreserved.replay({**sizes, "blocks": 2}).design
    assert not unreserved.replay(sizes).shows_it


def test_a_state_is_checked_as_numbers_too() -> None:
    """Goal: the proofs of steps claim the same of ints. Method: one request that runs and one that is back from a load;
    a pool that is a block too small is not a state.
    """
    own = {"tokens": 3, "over": 0, "limit": 4, "external": 0, "parks": 0, "sends": 0}
    values = {
        **{f"{name}{n}": value for n in range(2) for name, value in own.items()},
        **{"place0": 4, "place1": 2, "computed0": 2, "computed1": 1},
        **{"blocks": 4, "tokens_max": 4, "chunk": 2, "budget": 2, "running_max": 2, "sent": 0},
    }
    assert RUNS.assumes(SimpleNamespace(**values))
    assert RUNS.claim(SimpleNamespace(**values))
    assert not RUNS.assumes(SimpleNamespace(**{**values, "blocks": 3}))
    submitted = {"operation": 0, "target": 0, "prompt": 1, "answers": 1, "ends": 0}
    assert OTHER.assumes(SimpleNamespace(**values, **submitted))
    assert OTHER.claim(SimpleNamespace(**values, **submitted))
