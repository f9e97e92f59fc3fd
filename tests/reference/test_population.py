"""The scheduler's bookkeeping: the states of requests, and what follows from answers."""

from __future__ import annotations

from typing import Any

import pytest

from kvreference.answers import Done, Granted, Refused
from kvreference.content import Keys
from kvreference.geometry import Geometry, Group
from kvreference.operations import (
    Abort,
    Admit,
    Arrive,
    Dispatch,
    Finish,
    Operation,
    Preempt,
    Run,
    Sample,
    Schedule,
    Transferred,
)
from kvreference.population import Population, Request, Status
from kvreference.settings import Settings

from .stage import UNIT

GEOMETRY = Geometry((Group("full", 4),))


def population_of(**limits: Any) -> Population:
    """A population with limits that matter: at most 32 tokens, 16 in a step, 4 drafts."""
    given = {"geometry": GEOMETRY, "blocks": 8, "tokens_max": 32, "chunk_tokens": 16, "drafts_max": 4, **limits}
    return Population(Settings(**given))


def settle(population: Population, *operations: Operation, hit: int = 0) -> Request:
    """Settle operations that the manager grants, each of them legal; the request of the first."""
    first = operations[0]
    assert isinstance(first, (Arrive, Admit, Schedule, Sample, Preempt))
    for operation in operations:
        assert operation == population.resolve(operation)
        granted = isinstance(operation, (Admit, Schedule))
        population.settle(operation, Granted(hit, ()) if granted else Done())
    return population[first.request]


def decoding(tokens: int = 20, drafts: int = 3, **limits: Any) -> tuple[Population, Request]:
    """Request 0, its prompt computed, one token sampled and drafts proposed after it."""
    population = population_of(**limits)
    arrival = Arrive(0, (Run(0, tokens),))
    request = settle(population, arrival, Admit(0, 64))
    for _ in range(tokens):
        if request.answers_next:
            break
        settle(population, Schedule(0, 64))
    return population, settle(population, Sample(0, 0, 100, drafts))


def test_arrival() -> None:
    """Goal: a request waits with its prompt, nothing computed. Method: a prompt of two runs."""
    request = settle(population_of(), Arrive(3, (Run(7, 2), Run(50, 1)), reads_cache=False))
    assert Request(3, [7, 8, 50], request.keys, reads_cache=False, prompt_tokens=3) == request
    assert (Status.WAITING, 3, False) == (request.status, request.tokens_pending, request.answers_next)


def test_prefill_in_chunks() -> None:
    """Goal: a step computes what is pending, within budget and chunk. Method: 20 tokens: 16 by the chunk, 1 by the
    budget, 3 that remain; then the model answers.
    """
    population = population_of()
    request = settle(population, Arrive(0, (Run(0, 20),)), Admit(0, 64))
    assert (16, Status.RUNNING, False) == (request.tokens_computed, request.status, request.answers_next)
    settle(population, Schedule(0, 1))
    assert 17 == request.tokens_computed
    settle(population, Schedule(0, 64))
    assert (20, 0, True) == (request.tokens_computed, request.drafts_in_flight, request.answers_next)


def test_a_hit_counts_as_computed() -> None:
    """Goal: the chunk begins after the hit. Method: 20 tokens, a hit of 12: the 8 others are one chunk."""
    population = population_of()
    settle(population, Arrive(0, (Run(0, 20),)))
    assert 20 == settle(population, Admit(0, 64), hit=12).tokens_computed


def test_a_refusal_changes_nothing() -> None:
    """Goal: a rejected request keeps its state. Method: reject an admission and a decode step."""
    population = population_of()
    request = settle(population, Arrive(0, (Run(0, 20),)))
    before = request.copy()
    population.settle(Admit(0, 64), Refused(12, gate=True))
    assert before == request
    population, request = decoding()
    before = request.copy()
    population.settle(Schedule(0, 64), Refused(0, gate=False))
    assert before == request


def test_sampling_with_drafts() -> None:
    """Goal: accepted drafts and the sampled token are the request's own; rejected ones are taken back.

    Method: 20 tokens; 100 is sampled, drafts 101..103. All 4 are computed: 24, of which 3 in flight. One is accepted
    and 200 sampled: 20 + 100, 101, 200 are 23 tokens, 22 of them computed.
    """
    population, request = decoding()
    assert (21, [101, 102, 103], 4) == (len(request.tokens), request.drafts, request.tokens_pending)
    settle(population, Schedule(0, 64))
    assert (24, 3, True) == (request.tokens_computed, request.drafts_in_flight, request.answers_next)
    settle(population, Sample(0, 1, 200, 0))
    assert [100, 101, 200] == request.tokens[20:]
    assert (22, 0, [], False) == (
        request.tokens_computed,
        request.drafts_in_flight,
        request.drafts,
        request.answers_next,
    )


def test_a_small_budget_leaves_drafts_out() -> None:
    """Goal: only scheduled drafts are in flight, and only they can be accepted. Method: a budget of 2 of 4 tokens.

    The two drafts left over are not scheduled later: the model's answer comes first, and replaces them.
    """
    population, request = decoding()
    settle(population, Schedule(0, 2))
    assert (22, 1) == (request.tokens_computed, request.drafts_in_flight)
    assert population.resolve(Schedule(0, 64)) is None
    assert Sample(0, 1, 9, 0) == population.resolve(Sample(0, 3, 9, 0))


def test_preemption() -> None:
    """Goal: a preempted request keeps its tokens and nothing else. Method: preempt with drafts in flight, twice."""
    population, request = decoding()
    settle(population, Schedule(0, 64), Preempt(0))
    resumed = Request(0, [*range(20), 100], request.keys, reads_cache=True, prompt_tokens=20, preemptions=1)
    assert resumed == request
    settle(population, Admit(0, 64), Preempt(0))
    assert 2 == request.preemptions


def test_the_end() -> None:
    """Goal: a request that ends is forgotten, whether it finishes or is aborted. Method: one of each."""
    population, _ = decoding()
    settle(population, Arrive(1, (Run(0, 4),)))
    population.settle(Finish(0), Done())
    assert [1] == list(population.alive)
    population.settle(Abort(1), Done())
    assert {} == population.alive


def loading(tokens: int = 20, external: int = 12) -> tuple[Population, Request]:
    """Request 0, whose first 4 tokens are a hit; those after them are loaded."""
    population = population_of()
    request = settle(population, Arrive(0, (Run(0, tokens),)))
    population.settle(Admit(0, 64, external, loads=True), Granted(4, (), external, loads=True))
    return population, request


def test_what_another_node_provides_counts_as_computed() -> None:
    """Goal: the chunk begins after the hit and what follows it. Method: 20 tokens, a hit of 4, 3 provided at once, a
    budget of 5.
    """
    population = population_of()
    request = settle(population, Arrive(0, (Run(0, 20),)))
    population.settle(Admit(0, 5, 3), Granted(4, (), 3))
    assert (12, Status.RUNNING) == (request.tokens_computed, request.status)


def test_while_it_loads_nothing_is_computed() -> None:
    """Goal: a load counts as computed, and the request waits for it. Method: 12 tokens after a hit of 4."""
    _, request = loading()
    assert (16, Status.LOADING, False) == (request.tokens_computed, request.status, request.answers_next)


@pytest.mark.parametrize(
    ("tokens", "succeeded", "computed"), [(20, True, 16), (17, True, 16), (16, True, 15), (20, False, 0)]
)
def test_a_transfer_ends(tokens: int, succeeded: bool, computed: int) -> None:
    """Goal: a request continues after what it loaded, but computes its last token; after a failure, it starts anew.

    Method: 16 tokens are there, of 20, 17 and 16.
    """
    population, request = loading(tokens)
    population.settle(Transferred(0, succeeded), Done())
    assert (computed, Status.WAITING, 0) == (request.tokens_computed, request.status, request.preemptions)


def test_an_abort_waits_for_the_load() -> None:
    """Goal: a request that loads ends when the load does, whether it succeeds or not. Method: abort, then both."""
    for succeeded in (True, False):
        population, request = loading()
        population.settle(Abort(0), Done())
        assert ({0: request}, Status.ENDING) == (population.alive, request.status)
        population.settle(Transferred(0, succeeded), Done())
        assert {} == population.alive


@pytest.mark.parametrize(("sends", "alive"), [(True, [0]), (False, [])])
def test_a_request_that_sends_lives_on(sends: bool, alive: list[int]) -> None:
    """Goal: blocks that another node reads have an owner. Method: finish, sending or not."""
    population, request = decoding()
    population.settle(Finish(0, sends), Done())
    assert alive == list(population.alive)
    if sends:
        assert Status.ENDING is request.status
        population.settle(Transferred(0), Done())
        assert {} == population.alive


@pytest.mark.parametrize(("group", "undispatched"), [(UNIT, True), (Group("full", 4), False)])
def test_a_step_is_on_its_way(group: Group, undispatched: bool) -> None:
    """Goal: where blocks are copied, a step is not over before it was dispatched; elsewhere the dispatch does not
    matter.

    Method: one request computes, one loads, one waits; then the step goes to the worker.
    """
    population = population_of(geometry=Geometry((group,)))
    for number in range(3):
        settle(population, Arrive(number, (Run(0, 20),)))
    population.settle(Admit(0, 64), Granted(0, ()))
    population.settle(Admit(1, 64, 8, loads=True), Granted(0, (), 8, loads=True))
    assert [undispatched, undispatched, False] == [request.undispatched for request in population.alive.values()]
    population.settle(Dispatch(), Done())
    assert [False] * 3 == [request.undispatched for request in population.alive.values()]


@pytest.mark.parametrize(
    ("computed", "budget", "tokens"),
    [
        (0, 64, 16),  # the chunk's 16, of which 4 blocks are whole
        (0, 15, 12),
        (0, 4, 4),
        (0, 3, 3),  # no block's end is reached: it stays inside one
        (3, 64, 1),  # a state inside a block is brought to its end first
        (2, 1, 1),
        (8, 11, 8),
        (16, 64, 4),  # 20, the answer is next
        (16, 3, 3),
        (19, 64, 1),  # the last token but one fills a block
    ],
)
def test_chunks_end_where_states_are_kept(computed: int, budget: int, tokens: int) -> None:
    """Goal: where states are kept at block ends only, the chunks of a prompt end there, and none is ever of no token.

    Method: 21 tokens, states of 4, steps of 16; the last token is not asked about.
    """
    geometry = Geometry((Group("full", 8), Group("mamba", 4, states="align")))
    population = population_of(geometry=geometry, drafts_max=0)
    request = settle(population, Arrive(0, (Run(0, 21),)))
    assert tokens == population.tokens_from(request, computed, budget)


def test_a_prompt_is_cut_where_the_limit_is() -> None:
    """Goal: a prompt leaves room for one answered token, and no run of it is empty. Method: 32 tokens at most: of the
    runs of 30, 3 and 1 tokens the first stays, the second has room for one, the third for none.
    """
    arrival = population_of().resolve(Arrive(0, (Run(0, 30), Run(50, 3), Run(60, 1))))
    assert Arrive(0, (Run(0, 30), Run(50, 1))) == arrival


@pytest.mark.parametrize(("states", "tokens"), [("align", 10), ("all", 13)])
def test_only_the_chunks_of_a_prompt_end_there(states: str, tokens: int) -> None:
    """Goal: the last token and its drafts are computed together, wherever they end; and where every block's state is
    kept, chunks end anywhere. Method: 23 tokens and 3 drafts, states of 10; at 0 with a budget of 13, and at 22.
    """
    population = population_of(geometry=Geometry((Group("mamba", 10, states=states, draft_states=4),)))
    request = Request(0, list(range(23)), Keys(), reads_cache=True, drafts=[100, 101, 102])
    assert tokens == population.tokens_from(request, 0, 13)
    assert 4 == population.tokens_from(request, 22, 13)


def test_the_last_token_is_never_computed() -> None:
    """Goal: a request stops growing at its limit. Method: 30 of 32 tokens; 100 makes 31; its step may compute one
    token more and no draft; 200 makes 32, and there is nothing left to schedule.
    """
    population, request = decoding(30)
    settle(population, Schedule(0, 64))
    assert (31, 0) == (request.tokens_computed, request.drafts_in_flight)
    settle(population, Sample(0, 0, 200, 4))
    assert (32, 31) == (len(request.tokens), request.tokens_computed)
    assert population.resolve(Schedule(0, 64)) is None


def test_a_full_request_that_resumes_samples_nothing() -> None:
    """Goal: no request exceeds its limit, not even one preempted at it, whose last token is computed anew.

    Method: a request of 32 of 32 tokens is preempted, and all of them computed in one step.
    """
    population, request = decoding(31, 0, chunk_tokens=64)
    settle(population, Preempt(0), Admit(0, 64))
    assert (32, True) == (request.tokens_computed, request.answers_next)
    settle(population, Sample(0, 0, 300, 2))
    assert [*range(31), 100] == request.tokens
    assert (31, False) == (request.tokens_computed, request.answers_next)
    assert population.resolve(Schedule(0, 64)) is None


def test_a_copy_is_independent() -> None:
    """Goal: a step leaves the state before it alone. Method: end and change requests in the copy."""
    population, request = decoding()
    before = request.copy()
    copy = population.copy()
    assert population.alive == copy.alive
    settle(copy, Schedule(0, 64), Sample(0, 3, 9, 1))
    settle(copy, Arrive(1, (Run(0, 1),)))
    copy.settle(Finish(0), Done())
    assert {0: before} == population.alive
    assert (1, 2) == (population.arrived, copy.arrived)


def test_a_copied_request_has_lists_of_its_own() -> None:
    """Goal: changing a copy changes nothing else. Method: empty both of its lists."""
    population, request = decoding()
    request.drafts = [7, 8]
    copy = population.copy()[0]
    copy.tokens.clear()
    copy.drafts.clear()
    assert [7, 8] == request.drafts
    assert [] != request.tokens
