"""A step: how much each request computes, which are admitted, which are answered, in which order."""

from __future__ import annotations

import pytest

from kvreference.answers import Copies, Granted
from kvreference.geometry import Group
from kvreference.operations import (
    Abort,
    Admit,
    Arrive,
    Dispatch,
    Finish,
    Run,
    Sample,
    Schedule,
    TakeEvents,
    Transferred,
)
from kvreference.scheduler.limits import Limits
from kvreference.scheduler.operations import Operation, Reply, Step, Submit
from kvreference.scheduler.scheduler import step

from .stage import DRAFTING, FULL, line, perform, scheduler_of, submit, tokens_computed


def test_one_budget_for_all() -> None:
    """Goal: chunked prefill under one budget, those that run first. Method: budget 6; two prompts of 5: 5 and 1, then
    one token for the answer of the first and 4 for the second.
    """
    scheduler = scheduler_of(FULL, limits=Limits(budget_tokens=6))
    perform(scheduler, submit(0, 5, answers_max=3), submit(1, 5, first=50), Step())
    assert ([0, 1], []) == line(scheduler)
    assert [5, 1] == tokens_computed(scheduler)
    observation = perform(scheduler, Step())
    assert [(0, 6), (1, 5)] == [(o.request, o.tokens) for o, _ in observation.performed if isinstance(o, Schedule)]
    assert (0, 1) == observation.requests(Sample)


def test_one_chunk_per_request() -> None:
    """Goal: a long prompt leaves budget to others. Method: chunk 4, budget 6: 4 of the first, 2 of the second."""
    scheduler = scheduler_of(FULL, chunk_tokens=4, limits=Limits(budget_tokens=6))
    perform(scheduler, submit(0, 9), submit(1, 9, first=50), Step())
    assert [4, 2] == tokens_computed(scheduler)


def test_without_budget_no_request_is_admitted() -> None:
    """Goal: running requests go first. Method: the first takes all of the budget for two steps."""
    scheduler = scheduler_of(FULL, limits=Limits(budget_tokens=4))
    perform(scheduler, submit(0, 9), submit(1, 2, first=50))
    for expected in (([0], [1]), ([0], [1]), ([], [])):
        perform(scheduler, Step())
        assert expected == line(scheduler)


def test_without_budget_no_request_continues() -> None:
    """Goal: the budget holds for those that run as well. Method: budget 2; from the second step on the first takes all
    of it, for its token and a draft, until it has its five answers.
    """
    scheduler = scheduler_of(FULL, drafts_max=1, limits=Limits(budget_tokens=2))
    perform(scheduler, submit(0, 1, answers_max=5), submit(1, 1, first=50, answers_max=2))
    accepts = Step((Reply(accepted=1, drafts=1),))
    assert [(0, 1), (0,), (0,), (1,)] == [perform(scheduler, accepts).requests(Sample) for _ in range(4)]


def test_the_last_token_of_the_budget_is_given() -> None:
    """Goal: a step computes as much as it may. Method: budget 3, three requests with a token each to compute."""
    scheduler = scheduler_of(FULL, limits=Limits(budget_tokens=3))
    perform(scheduler, *(submit(number, 1, first=50 * number, answers_max=3) for number in range(3)), Step())
    assert (0, 1, 2) == perform(scheduler, Step()).requests(Sample)


def test_as_many_as_may_run() -> None:
    """Goal: a limit on running requests. Method: at most one; the second is admitted when the first has ended."""
    scheduler = scheduler_of(FULL, limits=Limits(running_max=1))
    perform(scheduler, submit(0, 2, answers_max=2), submit(1, 2), Step())
    assert ([0], [1]) == line(scheduler)
    perform(scheduler, Step())
    assert ([], [1]) == line(scheduler)
    assert (1,) == perform(scheduler, Step()).entered


def test_first_come_first_served() -> None:
    """Goal: a small request does not pass a large one. Method: 3 blocks; the first holds 2; the second needs 3, and
    keeps the third, which would fit, waiting.
    """
    scheduler = scheduler_of(FULL, blocks=4)
    perform(scheduler, submit(0, 3, answers_max=2), submit(1, 6, first=50), submit(2, 2, first=90))
    assert (0,) == perform(scheduler, Step()).entered
    assert ([0], [1, 2]) == line(scheduler)
    perform(scheduler, Step(), Step())
    assert ([], [2]) == line(scheduler)


def test_replies_go_round() -> None:
    """Goal: one rule answers all requests. Method: two replies for three requests: the first and the third end."""
    scheduler = scheduler_of(FULL)
    perform(scheduler, *(submit(number, 2, first=10 * number, answers_max=5) for number in range(3)))
    observation = perform(scheduler, Step((Reply(token=7, ends=True), Reply(token=8))))
    assert [(0, 7), (1, 8), (2, 7)] == [(o.request, o.token) for o, _ in observation.performed if isinstance(o, Sample)]
    assert (0, 2) == observation.requests(Finish)
    assert ([1], []) == line(scheduler)


def test_drafts_that_hold() -> None:
    """Goal: a step may answer several tokens. Method: of two drafts after 100 one is accepted: 100, 101 and 7."""
    scheduler = scheduler_of(DRAFTING, drafts_max=2)
    perform(scheduler, submit(0, 2, answers_max=9), Step((Reply(token=100, drafts=5),)))
    assert [101, 102] == scheduler.manager.population[0].drafts
    perform(scheduler, Step((Reply(accepted=1, token=7, drafts=1),)))
    assert [0, 1, 100, 101, 7] == scheduler.manager.population[0].tokens
    assert [8] == scheduler.manager.population[0].drafts


def test_what_is_beyond_the_limit_was_never_said() -> None:
    """Goal: no request gets more tokens than it asked for. Method: both drafts are accepted, but one token of three
    answers is left: after 100 and 101 one is cut off.
    """
    scheduler = scheduler_of(FULL, drafts_max=2)
    perform(scheduler, submit(0, 2, answers_max=3), Step((Reply(token=100, drafts=2),)))
    observation = perform(scheduler, Step((Reply(accepted=2, token=7),)))
    ends = [operation for operation, _ in observation.performed if isinstance(operation, (Sample, Finish))]
    assert [Sample(0, 1, 7, 0), Finish(0)] == ends


def test_copies_are_dispatched_before_answers() -> None:
    """Goal: a step goes to the worker before anything else happens to those in it. Method: block 4, unit 2: the second
    prompt is served 2 tokens by a copy. Where nothing is ever copied, nothing is dispatched.
    """
    scheduler = scheduler_of(Group("full", 4, unit_tokens=2))
    perform(scheduler, submit(0, 3), Step())
    observation = perform(scheduler, Submit(Arrive(1, (Run(0, 2), Run(50, 3)))), Step())
    kinds = [type(operation) for operation, _ in observation.performed]
    assert [Admit, Dispatch, Sample, Finish, TakeEvents] == kinds
    assert [1] == [len(answer.copies) for _, answer in observation.performed if isinstance(answer, Copies)]
    observation = perform(scheduler_of(FULL), submit(0, 3), Step())
    assert [Admit, Sample, Finish, TakeEvents] == [type(operation) for operation, _ in observation.performed]


def test_what_a_step_reports() -> None:
    """Goal: an observation says what was achieved. Method: arriving achieves nothing yet; entering, an answer and the
    end do; computing a second chunk is progress only; a step without requests is neither.
    """
    scheduler = scheduler_of(FULL, chunk_tokens=2)
    asked: list[Operation] = [submit(0, 5, answers_max=2), *[Step()] * 5]
    seen = [perform(scheduler, operation) for operation in asked]
    assert [False, True, False, True, True, False] == [observation.progress for observation in seen]
    assert [False, True, True, True, True, False] == [observation.advanced for observation in seen]
    assert [(), (0,), (), (), (), ()] == [observation.entered for observation in seen]
    assert [(), (), (), (0,), (0,), ()] == [observation.requests(Sample) for observation in seen]
    perform(scheduler, submit(1, 2))
    assert perform(scheduler, Abort(1)).progress


def test_a_step_leaves_the_given_state_alone() -> None:
    """Goal: a state is a value. Method: a step from a copy; the original is unchanged, and the same step changes it
    alike.
    """
    scheduler = scheduler_of(FULL)
    perform(scheduler, submit(0, 4, answers_max=2))
    after, observation = step(scheduler, Step())
    assert (([], [0]), ([0], [])) == (line(scheduler), line(after))
    again, same = step(scheduler, Step())
    assert [answer for _, answer in observation.performed[:2]] == [answer for _, answer in same.performed[:2]]
    assert line(after) == line(again)
    assert isinstance(observation.performed[0][1], Granted)


def test_operations_are_resolved() -> None:
    """Goal: any part of a list of operations is legal. Method: a number that is taken, requests that are not there."""
    scheduler = scheduler_of(FULL)
    perform(scheduler, submit(0, 4), submit(1, 4))
    assert submit(2, 4) == scheduler.resolve(submit(0, 4))
    assert submit(7, 4) == scheduler.resolve(submit(7, 4))
    assert Abort(1) == scheduler.resolve(Abort(9))
    assert None is scheduler.resolve(Transferred(0))
    assert Step() == scheduler.resolve(Step())


def test_what_is_not_legal_is_not_done() -> None:
    """Goal: the block manager is asked for nothing that means nothing. Method: abort a request that is not there."""
    with pytest.raises(AssertionError, match=r"^a scheduler asks for what is legal$"):
        scheduler_of(FULL).apply(Abort(0))


def test_what_cannot_be_asked() -> None:
    """Goal: nonsense is rejected where it is written. Method: no reply, no answer, no budget, no request
    that may run.
    """
    with pytest.raises(ValueError, match="replies"):
        Step(())
    with pytest.raises(ValueError, match="answers_max"):
        submit(0, 4, answers_max=0)
    with pytest.raises(ValueError, match="budget_tokens"):
        Limits(budget_tokens=0)
    with pytest.raises(ValueError, match="running_max"):
        Limits(running_max=0)


def test_steps_in_flight_are_rejected() -> None:
    with pytest.raises(ValueError, match="before the one before it is answered"):
        scheduler_of(FULL, steps_in_flight_max=2)
