"""Release: the order in which blocks become free, preemption, eviction and reset."""

from __future__ import annotations

import pytest

from kvreference.answers import Done, Granted, Hit, Success
from kvreference.geometry import Group
from kvreference.operations import (
    Abort,
    Admit,
    CommonPrefix,
    Evict,
    Finish,
    LookUp,
    Operation,
    Preempt,
    ReleaseSkipped,
    Reset,
    Sample,
    Schedule,
    TakeEvents,
)

from .stage import BUDGET, FULL, WINDOW, arrive, cached, compute_prompt, enter, free, manager_of, perform, seen, table


@pytest.mark.parametrize("end", [Finish(0), Abort(0), Preempt(0)])
def test_a_request_that_ends_releases_tail_first_group_by_group(end: Operation) -> None:
    """Goal: a prefix is worth more than what follows it, so the tail is allocated first.

    Method: 48 tokens are the blocks 1..3 in one group and 4..6 in the other, of nine.
    """
    manager = manager_of(FULL, WINDOW, blocks=10)
    enter(manager, 0, 48)
    assert Done() == perform(manager, end)
    assert [7, 8, 9, 3, 2, 1, 6, 5, 4] == free(manager)
    assert {} == manager.snapshot().tables


def test_null_blocks_are_not_released() -> None:
    """Goal: blocks that the window has passed were released before. Method: 160 tokens, window 17: 144 are dead, 9
    blocks.
    """
    manager = manager_of(Group("sliding_window", 16, 17), blocks=11)
    enter(manager, 0, 160)
    perform(manager, ReleaseSkipped(0))
    assert [9, 8, 7, 6, 5, 4, 3, 2, 1] == free(manager)
    perform(manager, Finish(0))
    assert [9, 8, 7, 6, 5, 4, 3, 2, 1, 10] == free(manager)


def test_release_of_the_skipped() -> None:
    """Goal: blocks that no later token reads can be released between steps, once. Method: window 64, 144 tokens
    computed.

    Token 144 reads 81..144: the tokens 0..80 are dead, that is the blocks 0..4 and one token of block 5. Full
    attention keeps all.
    """
    manager = manager_of(FULL, WINDOW, blocks=32)
    enter(manager, 0, 144)
    assert Done() == perform(manager, ReleaseSkipped(0))
    assert [*range(1, 10)] == table(manager, 0)
    assert [0] * 5 + [15, 16, 17, 18] == table(manager, 0, group=1)
    assert [14, 13, 12, 11, 10] == free(manager)[-5:]
    before = seen(manager)
    perform(manager, ReleaseSkipped(0))
    assert before == seen(manager)


def test_shared_blocks_stay_with_their_last_holder() -> None:
    """Goal: a block is free once no request holds it. Method: 49 tokens share three blocks with 48; end
    one, the other.
    """
    manager = manager_of(FULL, blocks=5)
    enter(manager, 0, 48)
    enter(manager, 1, 49)
    perform(manager, Finish(0))
    assert [] == free(manager)
    perform(manager, Finish(1))
    assert [4, 3, 2, 1] == free(manager)


def test_a_waiting_request_has_nothing_to_release() -> None:
    """Goal: an abort is legal wherever a request stands. Method: abort before admission and after preemption."""
    manager = manager_of(FULL, blocks=5)
    perform(manager, arrive(0, 48), Abort(0))
    assert [1, 2, 3, 4] == free(manager)
    enter(manager, 1, 48)
    perform(manager, Preempt(1), Abort(1))
    assert [4, 3, 2, 1] == free(manager)
    assert {} == manager.prefixes


def test_nothing_remembers_a_request_that_is_over() -> None:
    """Goal: the prefixes of requests that are over stay only as long as what is cached, and events of it.

    Method: three of them, then a reset.
    """
    manager = manager_of(FULL)
    for number in range(3):
        enter(manager, number, 48, first=100 * number)
        perform(manager, Finish(number))
    assert 9 == len(manager._interned._children) == len(cached(manager))
    assert Success(True) == perform(manager, TakeEvents(), Reset())
    assert 0 == len(manager._interned._children)


def test_a_preempted_request_hits_its_own_blocks() -> None:
    """Goal: preemption costs little while the blocks stay free. Method: 40 tokens and one sampled; preempt, resume.

    The two full blocks serve 32 of 41 tokens; the third, not full, was not cached, and a block is taken for it.
    """
    manager = manager_of(FULL, blocks=6)
    enter(manager, 0, 40)
    perform(manager, Sample(0, 0, 500, 0), Preempt(0))
    assert [4, 5, 3, 2, 1] == free(manager)
    assert Granted(32, ((4,),)) == perform(manager, Admit(0, BUDGET))
    assert [1, 2, 4] == table(manager, 0)
    assert 41 == manager.population[0].tokens_computed


def test_a_preempted_request_may_lose_its_blocks() -> None:
    """Goal: free blocks are anyone's. Method: between preemption and resumption another takes all but block 1."""
    manager = manager_of(FULL, blocks=6)
    enter(manager, 0, 40)
    perform(manager, Preempt(0))
    assert Granted(0, ((4, 5, 3, 2),)) == enter(manager, 1, 64, first=5000)
    assert Hit(16, ((1,),)) == perform(manager, LookUp(0))


def test_an_evicted_block_serves_no_more() -> None:
    """Goal: content is forgotten by block id; the holder keeps the block, and it is not cached again.

    Method: evict block 2 of a running request, and 5, which holds nothing.
    """
    manager = manager_of(FULL)
    enter(manager, 0, 48)
    assert Done() == perform(manager, Evict(2), Evict(5))
    assert [1, 3] == cached(manager)
    assert [1, 2, 3] == table(manager, 0)
    assert Hit(16, ((1,),)) == perform(manager, arrive(1, 49), LookUp(1))
    perform(manager, Sample(0, 0, 500, 0), Schedule(0, 1))
    assert [1, 3] == cached(manager)


def test_an_eviction_leaves_a_duplicate_in_service() -> None:
    """Goal: other blocks of the same content serve on. Method: blocks 2 and 3 hold the same; evict 2."""
    manager = manager_of(FULL)
    enter(manager, 0, 32)
    enter(manager, 1, 32)
    perform(manager, Evict(2), arrive(2, 33))
    assert Hit(32, ((1, 3),)) == perform(manager, LookUp(2))


def test_reset_is_rejected_while_a_block_is_held() -> None:
    """Goal: content that is read is not forgotten. Method: a running request, then the same after it has ended."""
    manager = manager_of(FULL, blocks=5)
    enter(manager, 0, 48)
    before = seen(manager)
    assert Success(succeeded=False) == perform(manager, Reset())
    assert before == seen(manager)
    perform(manager, Finish(0), arrive(1, 48))
    assert Success(succeeded=True) == perform(manager, Reset())
    assert [] == cached(manager)
    assert [4, 3, 2, 1] == free(manager)
    assert Hit(0, ((),)) == perform(manager, LookUp(1))


def test_a_window_of_a_hit_is_released_as_its_own() -> None:
    """Goal: a table that began with a hit recycles like any other. Method: a hit of 128, window 17, chunks of 16.

    Token 128 reads 112..128, so of the hit block 7 serves and 0..6 are null. Token 144 reads 128..144: at the second
    chunk block 7 is dead as well.
    """
    manager = manager_of(Group("sliding_window", 16, 17), blocks=12, chunk_tokens=16)
    perform(manager, arrive(0, 129), Admit(0, 16))
    assert all(isinstance(answer, Granted) for answer in compute_prompt(manager, 0))
    served = table(manager, 0)[7]
    enter(manager, 1, 200)
    assert [0] * 7 + [served] == table(manager, 1)[:8]
    perform(manager, Schedule(1, BUDGET))
    assert [0] * 8 == table(manager, 1)[:8]


def test_what_the_last_request_leaves() -> None:
    """Goal: nothing remembers a request that ended. Method: look for its number wherever numbers are kept."""
    manager = manager_of(FULL, WINDOW)
    enter(manager, 0, 100)
    perform(manager, CommonPrefix(0), Finish(0))
    assert ({}, {}, {}) == (manager.tables, manager.prefixes, manager.population.alive)
    assert {0} == {*manager.snapshot().references}
