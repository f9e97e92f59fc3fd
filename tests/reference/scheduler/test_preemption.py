"""Preemption: which request loses its blocks to which."""

from __future__ import annotations

from kvreference.operations import Admit, Finish, Preempt, Schedule, Transferred
from kvreference.scheduler.operations import Step

from .stage import FULL, line, perform, scheduler_of, submit, tokens_computed


def test_the_last_is_preempted() -> None:
    """Goal: the first request continues. Method: 4 blocks, one token a step. In the second step each needs a second
    block: the first takes the last free one, the second takes the third's. In the fourth the first takes the second's.
    """
    scheduler = scheduler_of(FULL, blocks=5, caches=False)
    perform(scheduler, submit(0, 2, answers_max=7), submit(1, 2, answers_max=7), submit(2, 2, answers_max=7), Step())
    assert ([0, 1, 2], []) == line(scheduler)
    assert (2,) == perform(scheduler, Step()).requests(Preempt)
    assert ([0, 1], [2]) == line(scheduler)
    assert () == perform(scheduler, Step()).requests(Preempt)
    assert (1,) == perform(scheduler, Step()).requests(Preempt)
    assert ([0], [1, 2]) == line(scheduler)
    assert [5, 0, 0] == tokens_computed(scheduler)


def test_the_last_gives_up_its_own_blocks() -> None:
    """Goal: no request takes blocks from those before it. Method: 3 blocks for two that need their second: the second
    is preempted.
    """
    scheduler = scheduler_of(FULL, blocks=4, caches=False)
    perform(scheduler, submit(0, 2, answers_max=4), submit(1, 2, answers_max=4), Step())
    observation = perform(scheduler, Step())
    assert (([0], [1]), (1,), (0,)) == (line(scheduler), observation.requests(Preempt), observation.requests(Schedule))


def test_a_preempted_request_continues_with_all_its_tokens() -> None:
    """Goal: an answer is never taken back. Method: it was answered once; admitted again it computes 3 tokens, and is
    not reported as a new request.
    """
    scheduler = scheduler_of(FULL, blocks=4, caches=False)
    perform(scheduler, submit(0, 2, answers_max=3), submit(1, 2, answers_max=4), Step(), Step(), Step())
    assert ([], [1]) == line(scheduler)
    observation = perform(scheduler, Step())
    assert ([1], []) == line(scheduler)
    assert ((1,), ()) == (observation.requests(Admit), observation.entered)
    assert [3] == tokens_computed(scheduler)


def test_the_first_waits_for_a_transfer() -> None:
    """Goal: the only running request is not preempted for nothing. Method: 5 blocks; 0 has ended, and its 2 are read by
    another node; 1 has 2 of 4 and needs 2 more; 2 loses its one, which is not enough. No request is admitted until the
    transfer is over, although 2 and its answer would fit into that one. Then both have room.
    """
    scheduler = scheduler_of(FULL, blocks=6, caches=False, chunk_tokens=4, full_sequence_must_fit=False)
    perform(scheduler, submit(0, 4, sends=True), submit(1, 8), submit(2, 1, answers_max=2), Step())
    assert ([1, 2], []) == line(scheduler)
    observation = perform(scheduler, Step())
    assert (([1], [2]), (2,), False) == (line(scheduler), observation.requests(Preempt), observation.advanced)
    assert not perform(scheduler, Step()).advanced
    assert ([1], [2]) == line(scheduler)
    assert [4, 0] == tokens_computed(scheduler)
    assert (1, 2) == perform(scheduler, Transferred(0), Step()).requests(Finish)
    assert ([], []) == line(scheduler)
