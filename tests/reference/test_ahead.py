"""Steps that are scheduled before the answers of earlier ones are known.

Goal: the scheduler's bookkeeping, what is cached, what a window leaves and what is freed are right while answers are
awaited. Method: few requests with the numbers by hand; and the same answers taken at once and late, which end alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvreference.ahead import PopulationAhead
from kvreference.answers import Granted
from kvreference.attention import Kind
from kvreference.geometry import Geometry, Group
from kvreference.manager import Manager
from kvreference.operations import (
    Abort,
    Admit,
    Arrive,
    Dispatch,
    Finish,
    Operation,
    Preempt,
    Rewind,
    Run,
    Sample,
    Schedule,
)
from kvreference.population import Status
from kvreference.settings import Settings
from kvreference.snapshot import check

FULL, WINDOW = Group(Kind.FULL, 4), Group(Kind.SLIDING_WINDOW, 4, 5)


def ahead(*groups: Group, steps: int = 2, **limits: Any) -> Manager:
    given = {"blocks": 16, "tokens_max": 64, "chunk_tokens": 16, **limits}
    return Manager(Settings(Geometry(groups or (FULL,)), steps_in_flight_max=steps, **given))


def perform(manager: Manager, *operations: Operation) -> Manager:
    """Perform operations, each of which must be legal."""
    for operation in operations:
        assert operation == manager.population.resolve(operation)
        manager.apply(operation)
    return manager


def answered(manager: Manager, answer: Sample, *others: int) -> Manager:
    """The oldest step is over, and answers a request, if that is not over."""
    manager.returned([answer.request, *others])
    return perform(manager, answer) if answer.request in manager.population.alive else manager


PROMPT = (Arrive(0, (Run(0, 6),)), Admit(0, 16), Dispatch())


def test_the_next_token_is_computed_before_it_is_known() -> None:
    """Six tokens of a prompt, and one that is awaited: seven count as computed, of which six are known."""
    manager = perform(ahead(), *PROMPT, Schedule(0, 16), Dispatch())
    request = manager.population[0]
    assert isinstance(manager.population, PopulationAhead)
    assert (6, 7, [0, 0], [6, 1]) == (len(request.tokens), request.tokens_computed, request.awaited, request.in_flight)


@pytest.mark.parametrize("steps", [2, 3])
def test_no_more_answers_are_awaited_than_there_may_be(steps: int) -> None:
    """Then a request waits for the oldest."""
    manager = perform(ahead(steps=steps), *PROMPT)
    for _ in range(steps - 1):
        perform(manager, Schedule(0, 16), Dispatch())
    assert manager.population.resolve(Schedule(0, 16)) is None
    answered(manager, Sample(0, 0, 100, 0))
    assert manager.population.resolve(Schedule(0, 16)) == Schedule(0, 16)


def test_no_answer_comes_before_the_next_step_is_dispatched() -> None:
    """What is cached with it would not be fenced, though the step that is scheduled has yet to compute it."""
    manager = perform(ahead(FULL), *PROMPT, Schedule(0, 8))
    assert manager.population.resolve(Sample(0, 0, 100, 0)) is None
    assert perform(manager, Dispatch()).population.resolve(Sample(0, 0, 100, 0)) is not None


def test_a_chunk_of_a_prompt_answers_nothing() -> None:
    """Of six tokens in steps of four, the second step answers."""
    manager = perform(ahead(chunk_tokens=4), *PROMPT)
    assert ([], [4]) == (manager.population[0].awaited, manager.population[0].in_flight)
    assert manager.population.resolve(Sample(0, 0, 100, 0)) is None
    perform(manager, Schedule(0, 16), Dispatch())
    assert ([0], [4, 2]) == (manager.population[0].awaited, manager.population[0].in_flight)


def drafted(accepted: int) -> Manager:
    """Three drafts a step. Two steps after the prompt's are dispatched; the first of them accepts so many drafts."""
    manager = perform(ahead(steps=3, drafts_max=3), *PROMPT)
    perform(manager, Schedule(0, 16), Dispatch(), Schedule(0, 16), Dispatch())
    request = manager.population[0]
    assert (14, 6, [0, 3, 3]) == (request.tokens_computed, request.drafts_in_flight, request.awaited)
    answered(manager, Sample(0, 0, 100, 3))
    return answered(manager, Sample(0, accepted, 200, 3))


@pytest.mark.parametrize("accepted", range(4))
def test_drafts_that_do_not_hold_are_taken_back(accepted: int) -> None:
    """Of seven known tokens and 14 computed ones: the answer adds those that hold and one, and takes back the rest."""
    request = drafted(accepted).population[0]
    assert request.tokens == [*range(6), 100, *range(101, 101 + accepted), 200]
    assert (14 - (3 - accepted), 3, [3]) == (request.tokens_computed, request.drafts_in_flight, request.awaited)
    # The next step computes the answer that is awaited, and its drafts.
    assert 4 == request.tokens_pending


def test_a_draft_that_was_not_verified_is_not_accepted() -> None:
    """The step of the prompt verified none, though later ones verify three."""
    manager = perform(ahead(steps=3, drafts_max=3), *PROMPT, Schedule(0, 16), Dispatch())
    assert Sample(0, 0, 100, 3) == manager.population.resolve(Sample(0, 2, 100, 3))


def test_a_preempted_request_takes_its_answers() -> None:
    """It waits with them, nothing computed; then all of its tokens are computed again."""
    manager = perform(ahead(), *PROMPT, Schedule(0, 16), Dispatch(), Preempt(0))
    for token in (100, 101):
        answered(manager, Sample(0, 0, token, 0))
    request = manager.population[0]
    assert (Status.WAITING, 0, [], []) == (request.status, request.tokens_computed, request.awaited, request.drafts)
    assert [*range(6), 100, 101] == request.tokens
    perform(manager, Admit(0, 16))
    assert 8 == request.tokens_computed


def test_what_is_rejected_after_a_preemption_takes_back_nothing() -> None:
    """The step wrote blocks that are freed; since then, four tokens were hit and three computed."""
    manager = perform(ahead(drafts_max=3), *PROMPT)
    answered(manager, Sample(0, 0, 100, 3))
    perform(manager, Schedule(0, 16), Dispatch(), Preempt(0), Admit(0, 5), Dispatch())
    answered(manager, Sample(0, 1, 200, 3))
    request = manager.population[0]
    assert (7, [*range(6), 100, 101, 200]) == (request.tokens_computed, request.tokens)


def test_a_request_that_is_taken_out_of_its_step_awaits_no_answer_of_it() -> None:
    """By priority: the step that is being scheduled preempts it."""
    manager = perform(ahead(), *PROMPT, Schedule(0, 16))
    manager.population.withdraw(0)
    perform(manager, Preempt(0))
    assert ([0], [6]) == (manager.population[0].awaited, manager.population[0].in_flight)


def loaded(*others: Operation) -> Manager:
    """Nine tokens, of which another node offers eight; a step that computes the last one, and one more in flight."""
    manager = perform(ahead(), Arrive(0, (Run(0, 9),)), Admit(0, 16, external_tokens=8), Dispatch())
    return perform(manager, *(others or (Schedule(0, 16), Dispatch())))


def books(manager: Manager, number: int) -> tuple[int, int, list[int], list[int]]:
    """How many tokens of a request are known and computed, its answers awaited, and what its steps compute."""
    request = manager.population[number]
    return len(request.tokens), request.tokens_computed, request.awaited, request.in_flight


def test_a_failed_load_takes_back_every_step_in_flight() -> None:
    """Its second block did not come: five tokens are computed again, and no step in flight answers."""
    manager = loaded()
    assert (9, 10, [0, 0], [1, 1]) == books(manager, 0)
    perform(manager, Rewind(0, 4))
    assert (9, 4, [], [1, 1]) == books(manager, 0)
    assert manager.population.resolve(Sample(0, 0, 100, 0)) is None
    perform(manager, Schedule(0, 16), Dispatch())
    assert (9, 9, [0], [1, 1, 5]) == books(manager, 0)
    # The steps that follow from the load are over, and answer nothing; the answer of the third one counts.
    for _ in range(2):
        manager.returned([0])
    answered(manager, Sample(0, 0, 100, 0))
    assert (10, 9, [], []) == books(manager, 0)


def test_a_failed_load_takes_back_drafts_in_flight() -> None:
    """They followed from the answers that are thrown away: only tokens that are known are computed again."""
    manager = perform(ahead(drafts_max=3), Arrive(0, (Run(0, 9),)), Admit(0, 16, external_tokens=8), Dispatch())
    perform(manager, Schedule(0, 16), Dispatch(), Rewind(0, 4))
    request = manager.population[0]
    assert (9, 4, [], []) == (len(request.tokens), request.tokens_computed, request.awaited, request.drafts)
    assert (0, 5) == (request.drafts_in_flight, request.tokens_pending)


def test_a_failed_load_frees_the_blocks_of_a_window_when_its_steps_are_over() -> None:
    """The window has released what token 8 reads: both steps in flight are over before another node gets a block."""
    manager = perform(ahead(WINDOW, loads_out_of_turn=True), Arrive(0, (Run(0, 20),)), Admit(0, 16, external_tokens=16))
    perform(manager, Dispatch(), Schedule(0, 16), Dispatch())
    assert (20, 21, [0, 0], [4, 1]) == books(manager, 0)
    perform(manager, Rewind(0, 8))
    assert (20, 0, [], [4, 1]) == books(manager, 0)
    assert (Status.WAITING, {}, 1) == (manager.population[0].status, manager.tables, len(manager.holdings.deferred))
    assert [] == cached(manager)
    manager.returned([0])
    assert 1 == len(manager.holdings.deferred)
    manager.returned([0])
    assert ([], 15) == (manager.holdings.deferred, len(manager.pool.free))


def test_a_request_that_shares_a_failed_block_is_set_back_to_before_its_first_step() -> None:
    """Another request hits both blocks of the load, and computes four tokens in two steps: all of them again."""
    others = Arrive(1, (Run(0, 8), Run(50, 4))), Schedule(0, 16), Admit(1, 3), Dispatch(), Schedule(1, 16), Dispatch()
    manager = loaded(*others)
    assert (12, 12, [0], [3, 1]) == books(manager, 1)
    perform(manager, Rewind(0, 4), Rewind(1, 8))
    assert [(9, 4, [], [1, 1]), (12, 8, [], [3, 1])] == [books(manager, number) for number in (0, 1)]
    # Neither block of the load serves a hit, nor what was computed after it.
    assert [1] == cached(manager)


def cached(manager: Manager) -> list[int]:
    return [block for block, content in enumerate(manager.pool.cached.contents()) if content is not None]


def test_what_is_not_known_is_cached_with_its_answer() -> None:
    """Two steps fill the second block with tokens that are awaited: the later answer makes the block known."""
    manager = perform(ahead(steps=3), *PROMPT, Schedule(0, 16), Dispatch(), Schedule(0, 16), Dispatch())
    assert [1] == cached(answered(manager, Sample(0, 0, 100, 0)))
    # Eight tokens are known and computed; the last of them is cached with the step that computes it.
    assert [1] == cached(answered(manager, Sample(0, 0, 101, 0)))
    assert [1, 2] == cached(answered(manager, Sample(0, 0, 102, 0)))


def test_a_window_keeps_what_drafts_in_flight_may_need() -> None:
    """Nine tokens, four drafts in flight: if none holds, the next token is the tenth, and reads from the sixth on."""
    settings = {"drafts_max": 4, "steps": 3}
    manager = perform(ahead(WINDOW, **settings), Arrive(0, (Run(0, 8),)), Admit(0, 16), Dispatch())
    perform(manager, Schedule(0, 16), Dispatch())
    assert 13 == manager.population[0].tokens_computed
    before = manager.tables[0][0].blocks[:2]
    perform(manager, Schedule(0, 16), Dispatch())
    assert [0, before[1]] == manager.tables[0][0].blocks[:2]


def test_no_step_writes_a_block_of_another_node() -> None:
    """Blocks that a request frees while its steps are in flight become free when all dispatched steps are over."""
    manager = perform(ahead(loads_out_of_turn=True), *PROMPT, Schedule(0, 16), Dispatch(), Abort(0))
    assert ([1, 1], 13) == (list(manager.pool.references[1:3]), len(manager.pool.free))
    manager.returned([0])
    assert 13 == len(manager.pool.free)
    manager.returned([0])
    assert ([0, 0], 15) == (list(manager.pool.references[1:3]), len(manager.pool.free))


def test_a_request_without_a_step_in_flight_is_freed_at_once() -> None:
    """And where other nodes write in turn, any request is."""
    manager = answered(perform(ahead(loads_out_of_turn=True), *PROMPT), Sample(0, 0, 100, 0))
    assert 15 == len(perform(manager, Finish(0)).pool.free)
    assert 15 == len(perform(ahead(), *PROMPT, Schedule(0, 16), Dispatch(), Abort(0)).pool.free)


def test_a_copy_has_answers_of_its_own() -> None:
    """The explorer takes copies."""
    manager = perform(ahead(loads_out_of_turn=True), *PROMPT, Schedule(0, 16), Dispatch())
    other = manager.copy()
    answered(manager, Sample(0, 0, 100, 0))
    perform(manager, Abort(0))
    request = other.population[0]
    assert (6, [0, 0], [6, 1]) == (len(request.tokens), request.awaited, request.in_flight)
    assert (2, 0, []) == (other.population.dispatched, other.population.over, other.holdings.deferred)


def lengths_cached(manager: Manager) -> list[tuple[int, int] | None]:
    """By block: the group, and the tokens of the prefix that it ends."""
    return [content and (content[0], content[1].tokens) for content in manager.pool.cached.contents()]


KINDS = st.sets(st.booleans(), min_size=1).map(lambda slides: [WINDOW if each else FULL for each in sorted(slides)])
ACCEPTED = st.lists(st.integers(0, 3), min_size=1, max_size=8)


@settings(deadline=None, derandomize=True, database=None)
@given(
    kinds=KINDS,
    steps=st.integers(2, 4),
    drafts=st.integers(0, 3),
    prompts=st.tuples(st.integers(1, 12), st.integers(1, 12)),
    answers=st.tuples(ACCEPTED, ACCEPTED),
    out_of_turn=st.booleans(),
    preempts=st.booleans(),
    data=st.data(),
)
def test_answers_that_come_late_change_nothing_in_the_end(
    kinds: list[Group],
    steps: int,
    drafts: int,
    prompts: tuple[int, int],
    answers: tuple[list[int], list[int]],
    out_of_turn: bool,
    preempts: bool,
    data: st.DataObject,
) -> None:
    """The same tokens and contents when all is answered, at once or late; and every state on the way is sound.

    A request that was preempted verifies fewer drafts, so there only the states are checked, and that all is freed.
    """
    late, once = (
        ahead(*kinds, steps=each, loads_out_of_turn=out_of_turn and each > 1, drafts_max=drafts, blocks=40)
        for each in (steps, 1)
    )
    for manager in (late, once):
        for number, length in enumerate(prompts):
            perform(manager, Arrive(number, (Run(20 * number, length),)))
    for number, accepted in enumerate(answers):
        perform(once, Admit(number, 16))
        for index, each in enumerate(accepted):
            perform(once, answer_of(once, number, index, each))
            if index + 1 < len(accepted):
                once.apply(Schedule(number, 16))
    given = [0, 0]
    in_flight: list[list[int]] = []
    while any(count < len(accepted) for count, accepted in zip(given, answers, strict=True)):
        if in_flight and (len(in_flight) == steps or data.draw(st.booleans(), label="the oldest is over")):
            over(late, in_flight.pop(0), given, answers)
        else:
            victim = data.draw(st.integers(0, 5), label="preempted") if preempts else None
            in_flight.append(scheduled(late, given, answers, victim))
        assert [] == check(late.snapshot())
    while in_flight:
        over(late, in_flight.pop(0), given, answers)
    assert not late.holdings.deferred
    if not preempts:
        assert [once.population[number].tokens for number in (0, 1)] == [
            late.population[number].tokens for number in (0, 1)
        ]
        # A block filled by drafts is cached with the answer there, and with the next allocation here.
        cached_late, cached_once = set(lengths_cached(late)), set(lengths_cached(once))
        assert cached_once <= cached_late if drafts else cached_once == cached_late
    for number in (0, 1):
        perform(late, Abort(number))
    assert 39 == len(late.pool.free)


def answer_of(manager: Manager, number: int, index: int, accepted: int) -> Sample:
    """A request's answer of that index, with as many drafts accepted as were verified at most."""
    answer = manager.population.resolve(Sample(number, accepted, 100 * (index + 1), manager.settings.drafts_max))
    assert isinstance(answer, Sample)
    return answer


def scheduled(manager: Manager, given: list[int], answers: Sequence[Sequence[int]], victim: int | None) -> list[int]:
    """A step of each request that has more answers to come than it awaits; one may be preempted before."""
    if victim is not None and manager.population.resolve(Preempt(victim)) == Preempt(victim):
        manager.apply(Preempt(victim))
    computed = []
    for number, accepted in enumerate(answers):
        request = manager.population[number]
        waits = request.status is Status.WAITING
        operation: Operation = Admit(number, 16) if waits else Schedule(number, 16)
        is_legal = manager.population.resolve(operation) == operation
        if is_legal and given[number] + len(request.awaited) < len(accepted):
            assert isinstance(manager.apply(operation), Granted)
            computed.append(number)
    perform(manager, Dispatch())
    return computed


def over(manager: Manager, computed: list[int], given: list[int], answers: Sequence[Sequence[int]]) -> None:
    """The oldest step is over, and answers those whose tokens it completed."""
    completes = {number: manager.population[number].awaited for number in computed}
    manager.returned(computed)
    for number in computed:
        if completes[number]:
            perform(manager, answer_of(manager, number, given[number], answers[number][given[number]]))
            given[number] += 1


def test_a_table_that_is_freed_late_is_pinned_when_its_request_ends() -> None:
    """All of it that is cached waits in the pinned tier when the step in flight is over."""
    manager = perform(ahead(loads_out_of_turn=True, pin_drop_blocks_min=1), *PROMPT, Abort(0))
    assert (frozenset({1}), ()) == (manager.pool.pinned_blocks().blocks, manager.pool.pinned_blocks().queue)
    assert [1, 1] == list(manager.pool.references[1:3])
    manager.returned([0])
    assert (frozenset({1}), (1,)) == (manager.pool.pinned_blocks().blocks, manager.pool.pinned_blocks().queue)


def test_a_preempted_request_with_states_waits_for_its_answers() -> None:
    """Until then it is not known after which token it continues, and no state would be there to go back to."""
    states = Group(Kind.MAMBA, 4, states="align", draft_states=1)
    manager = perform(ahead(FULL, states, drafts_max=1), Arrive(0, (Run(0, 10),), reads_cache=False))
    perform(manager, Admit(0, 16), Dispatch(), Schedule(0, 16), Dispatch(), Schedule(0, 16), Dispatch())
    perform(manager, Preempt(0))
    while manager.population[0].awaited:
        assert manager.population.resolve(Admit(0, 16)) is None
        answered(manager, Sample(0, 0, 50, 1))
    assert manager.population.resolve(Admit(0, 16)) == Admit(0, 16)
    assert [] == manager.population[0].drafts
