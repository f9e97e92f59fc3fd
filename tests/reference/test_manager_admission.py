"""Admission: the gate that asks for the whole sequence, and the first chunk."""

from __future__ import annotations

import pytest

from kvreference.answers import Granted, Hit, Refused
from kvreference.geometry import Group
from kvreference.manager import Manager
from kvreference.operations import Admit, Arrive, Finish, LookUp, ReleaseSkipped, Run

from .stage import BUDGET, FULL, WINDOW, arrive, enter, free, manager_of, pass_through, perform, table


@pytest.mark.parametrize(("tokens", "passes"), [(160, True), (161, False)])
def test_the_whole_sequence_must_fit(tokens: int, passes: bool) -> None:
    """Goal: a request that will not fit is not begun. Method: ten usable blocks of 16 are 160 tokens; the first chunk
    of 16 alone would fit either way.
    """
    manager = manager_of(FULL, blocks=11, chunk_tokens=16)
    expected = Granted(0, ((1,),)) if passes else Refused(0, gate=True)
    assert expected == enter(manager, 0, tokens)


def test_without_the_gate_the_first_chunk_must_fit() -> None:
    """Goal: with the gate off only this step counts. Method: two usable blocks, 161 tokens: a budget of 32 passes, 33
    does not; a rejected request takes nothing.
    """
    manager = manager_of(FULL, blocks=3, full_sequence_must_fit=False)
    perform(manager, arrive(0, 161))
    assert Refused(0, gate=False) == perform(manager, Admit(0, 33))
    assert ([1, 2], {}) == (free(manager), manager.snapshot().tables)
    assert Granted(0, ((1, 2),)) == perform(manager, Admit(0, 32))


@pytest.mark.parametrize(("blocks", "passes"), [(10, True), (9, False)])
def test_a_window_counts_no_more_than_it_recycles(blocks: int, passes: bool) -> None:
    """Goal: blocks that the window has passed are used again. Method: 1000 tokens are 63 blocks, yet with window 64,
    chunk 64 and block 16 never more than ceil((63 + 64) / 16) + 1 = 9 at once.
    """
    manager = manager_of(WINDOW, blocks=blocks, chunk_tokens=64)
    expected = Granted(0, ((1, 2, 3, 4),)) if passes else Refused(0, gate=True)
    assert expected == enter(manager, 0, 1000)


@pytest.mark.parametrize(("blocks", "passes"), [(14, True), (13, False)])
def test_groups_add_up(blocks: int, passes: bool) -> None:
    """Goal: all groups draw from one pool. Method: 160 tokens: 10 blocks in full, min(10, 3) in a window of 17.

    With chunk 16 the window's cap is ceil((16 + 16) / 16) + 1 = 3: 13 blocks and the null block.
    """
    manager = manager_of(FULL, Group("sliding_window", 16, 17), blocks=blocks, chunk_tokens=16)
    expected = Granted(0, ((1,), (2,))) if passes else Refused(0, gate=True)
    assert expected == enter(manager, 0, 160)


@pytest.mark.parametrize(("usable", "passes"), [(10, True), (9, False)])
def test_blocks_of_the_hit_count_if_they_are_free(usable: int, passes: bool) -> None:
    """Goal: a hit on free blocks takes them out of the free queue. Method: 80 tokens are cached in 5 free blocks.

    The request of 160 tokens hits them and needs 5 more: 10 in all, and none but those is free.
    """
    manager = manager_of(FULL, blocks=usable + 1)
    pass_through(manager, 0, 80)
    expected = Granted(80, ((6, 7, 8, 9, 10),)) if passes else Refused(80, gate=True)
    assert expected == enter(manager, 1, 160)
    assert (0 if passes else usable) == len(free(manager))


def test_blocks_of_the_hit_that_are_held_cost_nothing() -> None:
    """Goal: to share is free. Method: nine usable blocks, 5 held by a request of 80 tokens; 144 tokens need 4 more."""
    manager = manager_of(FULL, blocks=10)
    enter(manager, 0, 80)
    assert Refused(80, gate=True) == enter(manager, 1, 145)
    assert Granted(80, ((6, 7, 8, 9),)) == enter(manager, 2, 144)


def long_hit(others: int) -> Manager:
    """A window of 64 over 330 tokens (21 blocks) in 21 usable blocks, and request 2 waits with the same tokens.

    Request 0 computed them in one step and has released what no later token reads: 330 - 63 = 267 tokens, 16 blocks.
    It holds the other five, 17..21, and request 1 holds ``others`` of the 16.
    """
    manager = manager_of(WINDOW, blocks=22)
    enter(manager, 0, 330)
    perform(manager, ReleaseSkipped(0))
    assert [*range(16, 0, -1)] == free(manager)
    assert [0] * 16 + [17, 18, 19, 20, 21] == table(manager, 0)
    enter(manager, 1, others * 16, first=5000)
    perform(manager, arrive(2, 330))
    assert Hit(320, ((0,) * 16 + (17, 18, 19, 20),)) == perform(manager, LookUp(2))
    return manager


@pytest.mark.parametrize(("others", "passes"), [(15, True), (16, False)])
def test_a_long_hit_asks_for_what_is_left(others: int, passes: bool) -> None:
    """Goal: after a long hit only the rest counts, not the window's cap. Method: a hit of 320 of 330 tokens.

    16 of its 20 blocks are dead and 4 live ones are held by another: of 21 - 16 = 5 blocks one is missing. The cap,
    ceil((63 + 961) / 16) + 1 = 65, or all 21 blocks would never fit.
    """
    manager = long_hit(others)
    expected = Granted(320, ((1,),)) if passes else Refused(320, gate=True)
    assert expected == perform(manager, Admit(2, BUDGET))


@pytest.mark.parametrize(("tokens", "passes"), [(240, True), (256, False)])
def test_a_long_hit_on_free_blocks(tokens: int, passes: bool) -> None:
    """Goal: the live blocks of the hit, now free, count besides the one that is missing: 5 in all.

    Method: request 0 ends, its 5 blocks go after the free ones, the tail 21 first. Request 3 takes what is before them,
    and one block more where it is rejected; what it takes, 21, held no part of the hit.
    """
    manager = long_hit(1)
    perform(manager, Finish(0))
    assert [*range(15, 0, -1), 21, 20, 19, 18, 17] == free(manager)
    enter(manager, 3, tokens, first=9000)
    expected = Granted(320, ((21,),)) if passes else Refused(320, gate=True)
    assert expected == perform(manager, Admit(2, BUDGET))
    assert ([] if passes else [20, 19, 18, 17]) == free(manager)


def test_the_hit_is_held_before_anything_is_taken() -> None:
    """Goal: a request never takes a block of its own hit. Method: the hit's blocks are at the front of the queue.

    Four usable blocks: a request of 32 tokens frees its two after the other two, one of 32 other tokens takes those and
    frees them after the first. A request that hits 32 tokens of the first and needs one block more takes 4.
    """
    manager = manager_of(FULL, blocks=5)
    pass_through(manager, 0, 32)
    pass_through(manager, 1, 32, first=5000)
    assert [2, 1, 4, 3] == free(manager)
    assert Granted(32, ((4,),)) == enter(manager, 2, 33)
    assert [1, 2, 4] == table(manager, 2)
    assert [3] == free(manager)


def test_the_first_chunk() -> None:
    """Goal: the first step computes what the hit leaves, within budget and chunk. Method: hit 16, chunk 32 of 1000."""
    manager = manager_of(FULL, chunk_tokens=32)
    pass_through(manager, 0, 16)
    perform(manager, arrive(1, 1000))
    assert Granted(16, ((2, 3),)) == perform(manager, Admit(1, BUDGET))
    assert 48 == manager.population[1].tokens_computed
    perform(manager, arrive(2, 1000))
    assert Granted(48, ((4,),)) == perform(manager, Admit(2, 5))
    assert 53 == manager.population[2].tokens_computed


def test_admission_gets_no_look_ahead_slots() -> None:
    """Goal: nothing is drafted after a first step. Method: 16 tokens fill one block; three drafts would need two."""
    manager = manager_of(Group("full", 16, lookahead=True), drafts_max=3)
    assert Granted(0, ((1,),)) == enter(manager, 0, 16)


def test_a_rejected_request_may_be_admitted_later() -> None:
    """Goal: a rejection is not an end. Method: rejected while another holds the pool, admitted after it."""
    manager = manager_of(FULL, blocks=3)
    enter(manager, 0, 32)
    perform(manager, Arrive(1, (Run(5000, 32),)))
    assert Refused(0, gate=True) == perform(manager, Admit(1, BUDGET))
    perform(manager, Finish(0))
    assert Granted(0, ((2, 1),)) == perform(manager, Admit(1, BUDGET))
