"""Allocation for running requests: order, chunks, recycling, caching of full blocks."""

from __future__ import annotations

from kvreference.answers import Granted, Hit, Refused
from kvreference.geometry import Group
from kvreference.operations import Admit, Arrive, LookUp, Run, Sample, Schedule

from .stage import BUDGET, FULL, WINDOW, arrive, cached, compute_prompt, enter, free, manager_of, perform, seen, table


def test_new_blocks_come_from_the_front_group_by_group() -> None:
    """Goal: which block a group gets is specified. Method: 40 tokens in blocks of 16 and of 24: 3 and 2 blocks."""
    manager = manager_of(FULL, Group("full", 24), blocks=9)
    assert Granted(0, ((1, 2, 3), (4, 5))) == enter(manager, 0, 40)
    assert [6, 7, 8] == free(manager)


def test_a_block_is_cached_once_its_last_token_is_scheduled() -> None:
    """Goal: full blocks only, and each as soon as it is full. Method: 40 tokens in chunks of 15, 1, 8, 16."""
    manager = manager_of(FULL)
    perform(manager, arrive(0, 40), Admit(0, 15))
    assert [] == cached(manager)
    for budget, expected in [(1, [1]), (8, [1]), (16, [1, 2])]:
        perform(manager, Schedule(0, budget))
        assert expected == cached(manager)
    assert [1, 2, 3] == table(manager, 0)


def test_each_group_caches_at_its_own_block_size() -> None:
    """Goal: block sizes differ by group. Method: 47 tokens: 2 full blocks of 16, 1 of 24; with token 48 one each."""
    manager = manager_of(FULL, Group("full", 24))
    perform(manager, arrive(0, 48), Admit(0, 47))
    assert [1, 2, 4] == cached(manager)
    perform(manager, Schedule(0, 1))
    assert [1, 2, 3, 4, 5] == cached(manager)


def test_decoding_takes_a_block_when_the_last_is_full() -> None:
    """Goal: one token at a time. Method: 31 tokens fill two blocks with the next; the one after it needs a third."""
    manager = manager_of(FULL)
    enter(manager, 0, 31)
    assert Granted(0, ((),)) == perform(manager, Sample(0, 0, 500, 0), Schedule(0, 1))
    assert Granted(0, ((3,),)) == perform(manager, Sample(0, 0, 501, 0), Schedule(0, 1))


def test_duplicates_keep_their_own_blocks() -> None:
    """Goal: a block that was computed twice is held twice. Method: prompt 32 twice; the second hits 16 of 31.

    Its own second block, 3, holds what 2 holds; 2 serves a third request.
    """
    manager = manager_of(FULL)
    enter(manager, 0, 32)
    assert Granted(16, ((3,),)) == enter(manager, 1, 32)
    assert ([1, 2], [1, 3]) == (table(manager, 0), table(manager, 1))
    assert [(1,), (2, 3)] == list(manager.snapshot().entries.values())
    assert Hit(32, ((1, 2),)) == perform(manager, arrive(2, 33), LookUp(2))


def test_a_window_recycles() -> None:
    """Goal: blocks that no later token reads are released at the next allocation, the later ones first, and used again.

    Method: window 64, chunk 64, block 16, 9 usable blocks: a request of 1000 tokens passes. Before the chunk at 64
    token 64 reads 1..64: nothing is dead; at 128, 65 tokens are: blocks 0..3; at 192, 129 tokens: blocks 4..7.
    """
    manager = manager_of(WINDOW, blocks=10, chunk_tokens=64)
    assert Granted(0, ((1, 2, 3, 4),)) == enter(manager, 0, 1000)
    assert Granted(0, ((5, 6, 7, 8),)) == perform(manager, Schedule(0, BUDGET))
    assert Granted(0, ((9, 4, 3, 2),)) == perform(manager, Schedule(0, BUDGET))
    assert [0, 0, 0, 0, 5, 6, 7, 8, 9, 4, 3, 2] == table(manager, 0)
    assert Granted(0, ((1, 8, 7, 6),)) == perform(manager, Schedule(0, BUDGET))
    for answer in compute_prompt(manager, 0):
        assert isinstance(answer, Granted)
        assert 9 >= sum(block != 0 for block in table(manager, 0))
    assert 63 == len(table(manager, 0))


def test_the_release_stands_if_the_step_is_rejected() -> None:
    """Goal: dead blocks are released, whether or not the step fits. Method: window 17, block 16, four usable blocks.

    Request 0 has 64 tokens in all four; 64 - 16 = 48 are dead, blocks 0..2. With a chunk of 64 it wants four more and
    gets none: three are free. A chunk of 48 fits.
    """
    manager = manager_of(Group("sliding_window", 16, 17), blocks=5, full_sequence_must_fit=False)
    perform(manager, arrive(0, 200), Admit(0, 64))
    assert [] == free(manager)
    assert Refused(0, gate=False) == perform(manager, Schedule(0, 64))
    assert ([3, 2, 1], [0, 0, 0, 4]) == (free(manager), table(manager, 0))
    assert Refused(0, gate=False) == perform(manager, Schedule(0, 64))
    assert Granted(0, ((3, 2, 1),)) == perform(manager, Schedule(0, 48))


def test_a_rejected_step_takes_nothing() -> None:
    """Goal: all or nothing. Method: two groups want a block each, and one is free."""
    manager = manager_of(FULL, FULL, blocks=4, full_sequence_must_fit=False)
    enter(manager, 0, 16)
    perform(manager, Sample(0, 0, 500, 0))
    before = seen(manager)
    assert Refused(0, gate=False) == perform(manager, Schedule(0, 1))
    assert before == seen(manager)
    assert 16 == manager.population[0].tokens_computed


def test_slots_end_with_the_longest_request() -> None:
    """Goal: no slot is given that no token can fill. Method: at most 32 tokens, 31 computed, 4 look-ahead slots."""
    manager = manager_of(Group("full", 16, lookahead=True), tokens_max=32, drafts_max=4)
    enter(manager, 0, 30)
    assert Granted(0, ((),)) == perform(manager, Sample(0, 0, 500, 0), Schedule(0, 1))
    assert [1, 2] == table(manager, 0)


def test_equal_tokens_later_in_a_prompt_are_other_content() -> None:
    """Goal: a prefix is cached, not a block's tokens alone. Method: one block's tokens three times over."""
    manager = manager_of(FULL)
    perform(manager, Arrive(0, (Run(0, 16), Run(0, 16), Run(0, 16))), Admit(0, BUDGET))
    assert [(1,), (2,), (3,)] == list(manager.snapshot().entries.values())
    perform(manager, arrive(1, 16), Arrive(2, (Run(0, 16), Run(0, 16), Run(9, 1))))
    assert Hit(32, ((1, 2),)) == perform(manager, LookUp(2))
