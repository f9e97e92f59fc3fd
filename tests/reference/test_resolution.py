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
)
from kvreference.population import Population
from kvreference.settings import Settings

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


@pytest.mark.parametrize(
    "operation", [LookUp(0), Admit(0, 1), Schedule(0, 1), Sample(0, 0, 7, 0), Preempt(0), Finish(0), Abort(0)]
)
def test_without_anyone_eligible_there_is_nothing_to_do(operation: Operation) -> None:
    """Goal: what stands for no legal operation is passed over. Method: nobody is alive."""
    assert Population(LIMITS).resolve(operation) is None


@pytest.mark.parametrize("operation", [Reset(), TakeEvents(), TakeStatistics()])
def test_what_names_nobody_is_always_legal(operation: Operation) -> None:
    """Goal: operations on the whole need nobody. Method: nobody is alive, and five are."""
    assert operation == Population(LIMITS).resolve(operation)
    assert operation == standing().resolve(operation)


def test_evictions_name_a_usable_block() -> None:
    """Goal: an eviction never names the null block or one beyond the pool. Method: five blocks, 1..4 are usable."""
    population = Population(LIMITS)
    resolved = [population.resolve(Evict(block)) for block in range(10)]
    assert [Evict(block) for block in (4, 1, 2, 3, 4, 1, 2, 3, 4, 1)] == resolved


def test_an_arrival_takes_the_next_number() -> None:
    """Goal: numbers are never given twice, not even after their request ended. Method: 0..4 arrived, 2 is gone.

    A number not yet reached is kept, and those before it are passed over: behind 9 comes 10.
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
    population = standing()
    population.settle(Abort(WAITING), Done())
    for number in range(8):
        for operation in (
            Arrive(number, (Run(0, 40), Run(5, 5))),
            LookUp(number),
            Admit(number, 3),
            Schedule(number, 3),
            Sample(number, 5, number, 5),
            Preempt(number),
            Finish(number),
            Abort(number),
            ReleaseSkipped(number),
            CommonPrefix(number),
            Evict(number),
        ):
            resolved = population.resolve(operation)
            assert resolved is not None
            assert resolved == population.resolve(resolved)
