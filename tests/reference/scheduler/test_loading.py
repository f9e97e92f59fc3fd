"""Loading: a request waits for another node, and holds blocks that cannot be taken back."""

from __future__ import annotations

from kvreference.geometry import Group
from kvreference.operations import Abort, Admit, Finish, Preempt, Sample, Transferred
from kvreference.population import Status
from kvreference.scheduler.limits import Limits
from kvreference.scheduler.operations import Step
from kvreference.scheduler.scheduler import Scheduler

from .stage import DRAFTING, FULL, line, load, perform, scheduler_of, submit, tokens_computed

BIG = Group("full", 16)


def free(scheduler: Scheduler) -> int:
    """How many blocks are free."""
    return len(scheduler.manager.pool.free)


def test_a_loading_request_is_passed() -> None:
    """Goal: no request waits for another's transfer. Method: the first loads; the second runs. When the first has
    loaded 4 of 6 tokens it runs after the second, and computes the rest.
    """
    scheduler = scheduler_of(FULL)
    observation = perform(scheduler, load(0, 6, 4, answers_max=2), submit(1, 2, first=50, answers_max=9), Step())
    assert (([1], [0]), (0, 1)) == (line(scheduler), observation.entered)
    perform(scheduler, Step())
    assert ([1], [0]) == line(scheduler)
    perform(scheduler, Transferred(0))
    assert [3, 4] == tokens_computed(scheduler)
    observation = perform(scheduler, Step())
    assert (([1, 0], []), (), (1, 0)) == (line(scheduler), observation.entered, observation.requests(Sample))


def test_the_last_token_is_computed() -> None:
    """Goal: the answer follows from computing. Method: all 4 tokens are loaded: one is computed, and answered."""
    scheduler = scheduler_of(FULL)
    perform(scheduler, load(0, 4, 9), Step(), Transferred(0))
    assert [3] == tokens_computed(scheduler)
    assert (0,) == perform(scheduler, Step()).requests(Finish)


def test_a_failed_load_is_not_tried_again() -> None:
    """Goal: a load fails only once. Method: after the failure all 6 tokens are computed, in its old place."""
    scheduler = scheduler_of(FULL, limits=Limits(running_max=1))
    perform(scheduler, load(0, 6, 4), submit(1, 2, first=50), submit(2, 2, first=70), Step())
    assert ([], [0, 2]) == line(scheduler)
    perform(scheduler, Transferred(0, succeeded=False))
    assert [0, 0] == tokens_computed(scheduler)
    observation = perform(scheduler, Step())
    assert ((0,), ()) == (observation.requests(Finish), observation.entered)
    assert [2] == line(scheduler)[1]


def test_external_tokens_within_a_step() -> None:
    """Goal: tokens that arrive at once are not computed. Method: 4 of 6 tokens, budget 2: it is answered in its first
    step.
    """
    scheduler = scheduler_of(FULL, limits=Limits(budget_tokens=2))
    observation = perform(scheduler, submit(0, 6, external_tokens=4), Step())
    assert ((0,), (0,)) == (observation.entered, observation.requests(Finish))


def test_an_offer_is_good_once() -> None:
    """Goal: a preempted request depends on no other node. Method: 1 was offered 2 tokens, is preempted, and is admitted
    again.
    """
    scheduler = scheduler_of(FULL, blocks=4, caches=False)
    perform(scheduler, submit(0, 2, answers_max=3), submit(1, 3, external_tokens=2, answers_max=3), Step())
    assert (1,) == perform(scheduler, Step()).requests(Preempt)
    observation = perform(scheduler, Step(), Step())
    assert [(1, 0)] == [(o.request, o.external_tokens) for o, _ in observation.performed if isinstance(o, Admit)]


def test_a_load_leaves_room_for_those_that_run() -> None:
    """Goal: a running request can grow to its end next to what a load holds. Method: 5 blocks; the first holds one and
    may need 3, so a load of 3 waits, though 4 are free; one of 2 does not.
    """
    for tokens, expected in ((6, []), (4, [1])):
        scheduler = scheduler_of(FULL, blocks=6, caches=False)
        perform(scheduler, submit(0, 2, answers_max=5), Step())
        observation = perform(scheduler, load(1, tokens, 4), Step())
        assert expected == list(observation.entered)


def test_a_transfer_after_the_end_takes_room() -> None:
    """Goal: an admitted request fits next to what another node still reads. Method: 5 blocks; 2 of them are read after
    their request's end. A request of 3 is admitted, one that may need 4 waits until they are free.
    """
    for answers_max, expected in ((2, ()), (1, (1,))):
        scheduler = scheduler_of(FULL, blocks=6, caches=False)
        perform(scheduler, submit(0, 4, sends=True), Step(), submit(1, 6, answers_max=answers_max))
        assert 3 == free(scheduler)
        assert expected == perform(scheduler, Step()).entered
        if not expected:
            assert (1,) == perform(scheduler, Transferred(0), Step()).entered


def test_an_aborted_load_holds_its_blocks() -> None:
    """Goal: a write in flight hits no other request's block. Method: abort; 2 of 4 blocks come back when the transfer
    is over, whether it succeeded or not.
    """
    for succeeded in (True, False):
        scheduler = scheduler_of(FULL, blocks=5)
        perform(scheduler, load(0, 4, 4), Step(), Abort(0))
        assert (([], []), 2) == (line(scheduler), free(scheduler))
        assert Status.ENDING is scheduler.manager.population[0].status
        perform(scheduler, Transferred(0, succeeded))
        assert 4 == free(scheduler)


def test_two_loads_leave_room_for_either() -> None:
    """Goal: bug async-load-remaining-prefill-not-reserved. Method: its numbers: 64 blocks of 16; 800 and 592 tokens of
    which 368 each are loaded. The second load waits until the first request has ended.
    """
    scheduler = scheduler_of(BIG, blocks=65, chunk_tokens=1024, caches=False)
    perform(scheduler, load(0, 800, 368), load(1, 592, 368), Step())
    assert (([], [0, 1]), 41) == (line(scheduler), free(scheduler))
    assert (0,) == perform(scheduler, Transferred(0), Step()).requests(Finish)
    assert (1,) == perform(scheduler, Step()).entered
    perform(scheduler, Transferred(1), Step())
    assert (([], []), 64) == (line(scheduler), free(scheduler))


def test_look_ahead_after_a_load() -> None:
    """Goal: bug mtp-lookahead-block-after-async-load. Method: its numbers: 7 blocks of 16, one draft; 64 and 48 tokens
    are loaded completely, 7 blocks, and either needs one more. The second load waits.
    """
    big = Group("full", 16, lookahead=True)
    scheduler = scheduler_of(big, blocks=8, drafts_max=1, caches=False)
    perform(scheduler, load(0, 64, 64), load(1, 48, 48), Step())
    assert 3 == free(scheduler)
    perform(scheduler, Transferred(0), Step(), Step(), Transferred(1), Step())
    assert ([], []) == line(scheduler)


def test_loads_that_never_arrive_block_no_request() -> None:
    """Goal: bug running-plus-deferred-reaches-max-num-seqs. Method: four may run; four loads never arrive, then two do
    and two are aborted. A new request is admitted at once.
    """
    scheduler = scheduler_of(BIG, blocks=1000, limits=Limits(running_max=4))
    perform(scheduler, *(load(number, 32, 16, answers_max=9) for number in range(4)), Step(), Step())
    assert (4,) == perform(scheduler, submit(4, 32), Step()).requests(Finish)
    perform(scheduler, Abort(0), Abort(1), Transferred(2), Transferred(3))
    assert (5,) == perform(scheduler, submit(5, 32), Step()).requests(Finish)
    assert ([2, 3], []) == line(scheduler)


def test_a_request_that_has_loaded_is_seen_again() -> None:
    """Goal: bug ascend-scheduler-ignores-skipped-waiting. Method: the load ends while others wait after it and run."""
    scheduler = scheduler_of(FULL, limits=Limits(running_max=1))
    perform(scheduler, load(0, 4, 2), submit(1, 2, answers_max=3), submit(2, 2), Step(), Transferred(0))
    assert ([1], [0, 2]) == line(scheduler)
    perform(scheduler, Step(), Step())
    assert (0,) == perform(scheduler, Step()).requests(Finish)
    assert (2,) == perform(scheduler, Step()).requests(Finish)


def test_chunks_that_end_where_states_are_kept() -> None:
    """Goal: bug mamba-split-floors-to-zero. Method: its numbers: blocks of 100, at most 10 tokens a step, 1000 tokens:
    a hundred steps, and none computes nothing.
    """
    scheduler = scheduler_of(Group("full", 100), Group("mamba", 100, states="align"), chunk_tokens=10)
    perform(scheduler, submit(0, 1000), *[Step()] * 99)
    assert [990] == tokens_computed(scheduler)
    assert (0,) == perform(scheduler, Step()).requests(Finish)


def test_drafts_after_a_load() -> None:
    """Goal: a request that has loaded drafts like any other. Method: a draft layer; it gets its look-ahead slot, third
    block, when it runs.
    """
    scheduler = scheduler_of(DRAFTING, drafts_max=1)
    perform(scheduler, load(0, 4, 4, answers_max=4), Step())
    assert [2] == [len(table.blocks) for table in scheduler.manager.tables[0]]
    perform(scheduler, Transferred(0), Step())
    assert [3] == [len(table.blocks) for table in scheduler.manager.tables[0]]
