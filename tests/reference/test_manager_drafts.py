"""Speculation: slots for drafts, and what of them may be cached."""

from __future__ import annotations

from kvreference.answers import Granted, Hit
from kvreference.geometry import Geometry, Group
from kvreference.manager import Manager
from kvreference.operations import Arrive, Finish, LookUp, Run, Sample, Schedule
from kvreference.settings import Settings

from .stage import BUDGET, cached, enter, manager_of, perform, table

FOUR = Group("full", 4)


def hit_of(manager: Manager, number: int, *runs: Run) -> int:
    """The hit of a newcomer with a prompt of ``runs`` and one token more."""
    hit = perform(manager, Arrive(number, (*runs, Run(9999, 1))), LookUp(number))
    assert isinstance(hit, Hit)
    return hit.tokens


def test_drafts_get_slots() -> None:
    """Goal: every draft that is computed has a slot of its own. Method: 4 tokens, then 1 and 3 drafts: 8 slots."""
    manager = manager_of(FOUR, drafts_max=3)
    enter(manager, 0, 4)
    assert Granted(0, ((2,),)) == perform(manager, Sample(0, 0, 100, 3), Schedule(0, BUDGET))


def test_draft_layers_get_look_ahead_slots() -> None:
    """Goal: a group with a draft layer has slots for the drafts to come. Method: 3 more slots, 11: 3 blocks."""
    manager = manager_of(Group("full", 4, lookahead=True), drafts_max=3)
    enter(manager, 0, 4)
    assert Granted(0, ((2, 3),)) == perform(manager, Sample(0, 0, 100, 3), Schedule(0, BUDGET))


def test_hashes_that_cover_a_token_more_need_no_look_ahead_block() -> None:
    """Goal: a block of a draft layer is cached when the token after it is known, and a hit drops none.

    Method: two blocks of four tokens, of which the second is cached when its first answer is scheduled. A request that
    has both, and the answer after them, hits both; with another token there, only the first.
    """
    geometry = Geometry((FOUR,), hashed_ahead_tokens=1)
    manager = Manager(Settings(geometry, blocks=16, drafts_max=3, chunk_tokens=BUDGET, tokens_max=64))
    enter(manager, 0, 8)
    assert [1] == cached(manager)
    perform(manager, Sample(0, 0, 100, 0), Schedule(0, BUDGET))
    assert [1, 2] == cached(manager)
    assert 8 == hit_of(manager, 1, Run(0, 8), Run(100, 1))
    assert 4 == hit_of(manager, 2, Run(0, 8), Run(200, 1))


def test_rejected_drafts_are_never_cached() -> None:
    """Goal: no request is served what was not said. Method: the drafts 101..103 fill block 2 and are rejected; 500..503
    are said instead, and fill it again.
    """
    manager = manager_of(FOUR, drafts_max=3)
    enter(manager, 0, 4)
    perform(manager, Sample(0, 0, 100, 3), Schedule(0, BUDGET))
    assert [1] == cached(manager)
    perform(manager, Sample(0, 0, 500, 0))
    assert [1] == cached(manager)
    perform(manager, Schedule(0, 1), Sample(0, 0, 501, 0), Schedule(0, 1), Sample(0, 0, 502, 0))
    assert [1] == cached(manager)
    perform(manager, Schedule(0, 1))
    assert [1, 2] == cached(manager)
    assert 4 == hit_of(manager, 1, Run(0, 4), Run(100, 4))
    assert 8 == hit_of(manager, 2, Run(0, 4), Run(100, 1), Run(500, 3))


def test_accepted_drafts_are_cached_with_the_next_step() -> None:
    """Goal: a draft is cached once it is verified. Method: 101..103 fill block 2 and are accepted; it is cached when
    the token after them is scheduled, not before, and not at all if the request ends first.
    """
    for goes_on in (True, False):
        manager = manager_of(FOUR, drafts_max=3)
        enter(manager, 0, 4)
        perform(manager, Sample(0, 0, 100, 3), Schedule(0, BUDGET), Sample(0, 3, 200, 0))
        assert [1] == cached(manager)
        perform(manager, Schedule(0, 1) if goes_on else Finish(0))
        assert ([1, 2] if goes_on else [1]) == cached(manager)
        assert (8 if goes_on else 4) == hit_of(manager, 1, Run(0, 4), Run(100, 4))


def test_some_drafts_accepted() -> None:
    """Goal: content is what was said, not what was drafted. Method: 101 is accepted, 200 said, 102 and 103 not."""
    manager = manager_of(FOUR, drafts_max=3)
    enter(manager, 0, 4)
    perform(manager, Sample(0, 0, 100, 3), Schedule(0, BUDGET), Sample(0, 1, 200, 1), Schedule(0, BUDGET))
    perform(manager, Sample(0, 1, 300, 0), Schedule(0, 1))
    assert 4 == hit_of(manager, 1, Run(0, 4), Run(100, 4))
    assert 8 == hit_of(manager, 2, Run(0, 4), Run(100, 2), Run(200, 2))


def test_the_look_ahead_is_each_groups_own() -> None:
    """Goal: a hit shrinks by a block only where a draft layer lives. Method: 8 tokens cached, a request of 9: with a
    draft layer in any group, 4 tokens; in none, 8.
    """
    for groups, hit in [((FOUR, FOUR), 8), ((FOUR, Group("full", 4, lookahead=True)), 4)]:
        manager = manager_of(*groups)
        enter(manager, 0, 8)
        assert hit == hit_of(manager, 1, Run(0, 8))


def test_drafts_that_outrun_the_window() -> None:
    """Goal: a block that is dead before it could be cached never is. Method: block 4, window 2; 1 token and 7 drafts
    are computed after the first 4, all accepted: 12 are, 11 of them dead, that is the blocks 0 and 1.

    Block 1 was filled by drafts, so it was not cached when it was computed, and it is gone when it could be. Block 2
    was filled by drafts too, and is cached.
    """
    manager = manager_of(Group("sliding_window", 4, 2), drafts_max=8)
    enter(manager, 0, 4)
    perform(manager, Sample(0, 0, 100, 7), Schedule(0, BUDGET))
    assert [1, 2, 3] == table(manager, 0)
    assert [1] == cached(manager)
    perform(manager, Sample(0, 7, 200, 0), Schedule(0, 1))
    assert [0, 0, 3, 4] == table(manager, 0)
    assert [1, 3] == cached(manager)
    assert 4 == hit_of(manager, 1, Run(0, 4), Run(100, 4))
    assert 12 == hit_of(manager, 2, Run(0, 4), Run(100, 8))


def test_nothing_is_left_to_cache() -> None:
    """Goal: the same where all that was filled is dead. Method: 4 drafts accepted, block 1 is full and dead at once.

    Tokens 4..7 are block 1; 9 are computed, 8 of them dead.
    """
    manager = manager_of(Group("sliding_window", 4, 2), drafts_max=8)
    enter(manager, 0, 4)
    perform(manager, Sample(0, 0, 100, 4), Schedule(0, BUDGET), Sample(0, 4, 200, 0), Schedule(0, 1))
    assert [0, 0, 3] == table(manager, 0)
    assert [1] == cached(manager)
