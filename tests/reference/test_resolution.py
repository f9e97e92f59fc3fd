"""Which operations are legal: numbers are mapped onto requests that fit, so that every list of operations is legal."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from kvreference.answers import Done, Granted
from kvreference.geometry import Geometry, Group
from kvreference.operations import (
    Abort,
    Admit,
    Arrive,
    CommonPrefix,
    Dispatch,
    Evict,
    Finish,
    LookUp,
    Operation,
    Preempt,
    ReleaseSkipped,
    Reset,
    Run,
    Sample,
    Schedule,
    TakeEvents,
    TakeStatistics,
    Transferred,
)
from kvreference.population import Population
from kvreference.settings import Settings

from .stage import UNIT

LIMITS = Settings(Geometry((Group("full", 4),)), 5, tokens_max=32, chunk_tokens=16, requests_max=5, drafts_max=2)

WAITING, PREFILLING, ANSWERING, VERIFYING = 0, 1, 2, 3
"""One request for each place where a request can stand; 4 waits as well."""


def standing() -> Population:
    """Requests 0 and 4 wait, 1 has more to compute, 2 is to be answered, 3 has two drafts in flight."""
    population = Population(LIMITS)
    for number in range(5):
        population.settle(Arrive(number, (Run(0, 20 if number == PREFILLING else 8),)), Done())
    for number in (PREFILLING, ANSWERING, VERIFYING):
        population.settle(Admit(number, 64), Granted(0, ()))
    population.settle(Sample(VERIFYING, 0, 100, 2), Done())
    population.settle(Schedule(VERIFYING, 64), Granted(0, ()))
    return population


@pytest.mark.parametrize(
    ("operation", "eligible"),
    [
        (LookUp(0), [0, 4]),
        (Admit(0, 1), [0, 4]),
        (Schedule(0, 1), [1]),
        (Sample(0, 0, 7, 0), [2, 3]),
        (Preempt(0), [1, 2, 3]),
        (Finish(0), [1, 2, 3]),
        (Abort(0), [0, 1, 2, 3, 4]),
        (ReleaseSkipped(0), [1, 2]),
        (CommonPrefix(0), [1, 2, 3]),
    ],
)
def test_a_number_that_does_not_fit_is_mapped(operation: Any, eligible: list[int]) -> None:
    """Goal: an operation names only requests for which it is legal; a number that fits stands for itself.

    Method: every number up to 12; those that do not fit are counted through the eligible ones, modulo their number.
    """
    population = standing()
    for number in range(13):
        expected = number if number in eligible else eligible[number % len(eligible)]
        resolved = population.resolve(evolve(operation, request=number))
        assert evolve(operation, request=expected) == resolved


def transferring() -> Population:
    """As ``standing``, but 5 loads, 6 has loaded and waits, 7 has ended and sends, 8 was aborted while it loaded."""
    population = standing()
    population.settings = evolve(LIMITS, requests_max=9)
    for number in range(5, 9):
        population.settle(Arrive(number, (Run(0, 8),)), Done())
        population.settle(Admit(number, 64, 4, number != 7), Granted(0, (), 4, number != 7))
    population.settle(Transferred(6), Done())
    population.settle(Finish(7, sends=True), Done())
    population.settle(Abort(8), Done())
    return population


@pytest.mark.parametrize(
    ("operation", "eligible"),
    [
        (LookUp(0), [0, 4]),
        (Admit(0, 1), [0, 4, 6]),
        (Schedule(0, 1), [1]),
        (Sample(0, 0, 7, 0), [2, 3]),
        (Preempt(0), [1, 2, 3]),
        (Finish(0, sends=True), [1, 2, 3]),
        (Abort(0), [0, 1, 2, 3, 4, 5, 6]),
        (Transferred(0), [5, 7, 8]),
        (Transferred(0, succeeded=False), [5, 7, 8]),
        (ReleaseSkipped(0), [1, 2]),
        (CommonPrefix(0), [1, 2, 3]),
    ],
)
def test_a_request_that_transfers_does_nothing_else(operation: Any, eligible: list[int]) -> None:
    """Goal: a request that loads can only be aborted, one that sends is over; one that has loaded waits, and has no
    hit.

    Method: every number up to 12, as above.
    """
    population = transferring()
    for number in range(13):
        expected = number if number in eligible else eligible[number % len(eligible)]
        assert evolve(operation, request=expected) == population.resolve(evolve(operation, request=number))


@pytest.mark.parametrize(
    ("operation", "undispatched", "dispatched"),
    [
        (LookUp(0), [3], [3]),
        (Admit(0, 1), [3], [3]),
        (Schedule(0, 1), [], [1]),
        (Sample(0, 0, 7, 0), [], [0]),
        (Preempt(0), [], [0, 1]),
        (Finish(0), [], [0, 1]),
        (Abort(0), [3], [0, 1, 2, 3]),
        (Transferred(0), [], [2]),
        (ReleaseSkipped(0), [], [0, 1]),
        (CommonPrefix(0), [0, 1], [0, 1]),
    ],
)
def test_nothing_happens_to_a_step_on_its_way(operation: Any, undispatched: list[int], dispatched: list[int]) -> None:
    """Goal: blocks that a step writes are not freed before the worker has begun it. Method: 0 is to be answered, 1 has
    more to compute, 2 loads, all in one step; 3 waits. Before and after the dispatch.
    """
    population = Population(evolve(LIMITS, geometry=Geometry((UNIT,))))
    for number in range(4):
        population.settle(Arrive(number, (Run(0, 20 if number == 1 else 8),)), Done())
    population.settle(Admit(0, 64), Granted(0, ()))
    population.settle(Admit(1, 64), Granted(0, ()))
    population.settle(Admit(2, 64, 4, loads=True), Granted(0, (), 4, loads=True))
    for eligible in (undispatched, dispatched):
        resolved = population.resolve(operation)
        assert (evolve(operation, request=eligible[0]) if eligible else None) == resolved
        legal = [
            number for number in range(4) if (named := evolve(operation, request=number)) == population.resolve(named)
        ]
        assert eligible == legal
        population.settle(Dispatch(), Done())


@pytest.mark.parametrize(
    ("group", "legal"),
    [
        (UNIT, True),
        (Group("mamba", 8, states="align", draft_states=2), True),
        (Group("mamba", 4, states="all", draft_states=2), True),
        (Group("full", 4), False),
        (Group("sliding_window", 4, 9), False),
    ],
)
def test_a_dispatch_matters_where_something_is_copied(group: Group, legal: bool) -> None:
    """Goal: where nothing is copied, steps need not be distinguished. Method: one group of each kind next
    to a full one.
    """
    population = Population(evolve(LIMITS, geometry=Geometry((Group("full", 4), group))))
    assert (Dispatch() if legal else None) == population.resolve(Dispatch())


@pytest.mark.parametrize(
    "operation",
    [LookUp(0), Admit(0, 1), Schedule(0, 1), Sample(0, 0, 7, 0), Preempt(0), Finish(0), Abort(0), Transferred(0)],
)
def test_without_anyone_eligible_there_is_nothing_to_do(operation: Operation) -> None:
    """Goal: an operation that stands for no legal one is passed over. Method: no request is alive."""
    assert Population(LIMITS).resolve(operation) is None


@pytest.mark.parametrize("operation", [Reset(), TakeEvents(), TakeStatistics()])
def test_what_names_no_request_is_always_legal(operation: Operation) -> None:
    """Goal: operations on the whole need no request. Method: none is alive, and five are."""
    assert operation == Population(LIMITS).resolve(operation)
    assert operation == standing().resolve(operation)


def test_evictions_name_a_usable_block() -> None:
    """Goal: an eviction never names the null block or one beyond the pool. Method: five blocks, 1..4 are usable."""
    population = Population(LIMITS)
    resolved = [population.resolve(Evict(block)) for block in range(10)]
    assert [Evict(block) for block in (4, 1, 2, 3, 4, 1, 2, 3, 4, 1)] == resolved


def test_an_arrival_takes_the_next_number() -> None:
    """Goal: numbers are never given twice, not even after their request ended. Method: 0..4 arrived, 2 is gone.

    A number not yet reached is kept, and those before it are passed over: 10 comes after 9.
    """
    population = standing()
    population.settle(Finish(ANSWERING), Done())
    prompt = (Run(0, 4),)
    for number, expected in [(0, 5), (2, 5), (5, 5), (9, 9)]:
        assert Arrive(expected, prompt) == population.resolve(Arrive(number, prompt))
    population.settle(Arrive(9, prompt), Done())
    population.settle(Abort(WAITING), Done())
    assert Arrive(10, prompt) == population.resolve(Arrive(7, prompt))


def test_no_more_arrive_than_may_live() -> None:
    """Goal: the number of requests is limited. Method: five of five live; then one is gone."""
    population = standing()
    assert population.resolve(Arrive(5, (Run(0, 4),))) is None
    population.settle(Abort(WAITING), Done())
    assert population.resolve(Arrive(5, (Run(0, 4),))) is not None


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [((31,), (31,)), ((32,), (31,)), ((500,), (31,)), ((20, 11), (20, 11)), ((20, 12), (20, 11)), ((31, 1), (31,))],
)
def test_a_prompt_leaves_room_for_a_token(lengths: tuple[int, ...], expected: tuple[int, ...]) -> None:
    """Goal: a prompt is cut to one token less than the limit, and a run of which nothing remains goes.

    Method: a limit of 32, prompts of 31 and more in one run and in two.
    """
    resolved = Population(LIMITS).resolve(Arrive(0, tuple(Run(100 * i, length) for i, length in enumerate(lengths))))
    assert Arrive(0, tuple(Run(100 * i, length) for i, length in enumerate(expected))) == resolved


def test_answers_accept_and_propose_what_there_is() -> None:
    """Goal: no more drafts are accepted than are in flight, none proposed beyond the limit. Method: two and two."""
    population = standing()
    assert Sample(VERIFYING, 2, 7, 2) == population.resolve(Sample(VERIFYING, 9, 7, 9))
    assert Sample(VERIFYING, 1, 7, 0) == population.resolve(Sample(VERIFYING, 1, 7, 0))
    assert Sample(ANSWERING, 0, 7, 1) == population.resolve(Sample(ANSWERING, 1, 7, 1))


def test_what_is_resolved_stands_for_itself() -> None:
    """Goal: a trace of resolved operations replays as it is. Method: resolve once more, for every kind and number."""
    population = transferring()
    population.settle(Abort(WAITING), Done())
    for number in range(12):
        for operation in (
            Arrive(number, (Run(0, 40), Run(5, 5))),
            LookUp(number),
            Admit(number, 3),
            Schedule(number, 3),
            Sample(number, 5, number, 5),
            Preempt(number),
            Finish(number, sends=True),
            Abort(number),
            Transferred(number),
            ReleaseSkipped(number),
            CommonPrefix(number),
            Evict(number),
        ):
            resolved = population.resolve(operation)
            assert resolved is not None
            assert resolved == population.resolve(resolved)
