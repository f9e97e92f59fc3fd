"""KV events: every block cached or forgotten is reported, in order, with exactly the tokens it holds."""

from __future__ import annotations

import pytest

from kvreference.answers import Happened
from kvreference.content import ExtraKey, Keys, Media
from kvreference.events import Cleared, Event, Removed, Stored
from kvreference.geometry import Group
from kvreference.manager import Manager
from kvreference.operations import Admit, Arrive, Evict, Finish, Reset, Run, Sample, Schedule, TakeEvents

from .stage import BUDGET, FULL, arrive, enter, manager_of, pass_through, perform


def events(manager: Manager) -> tuple[Event, ...]:
    """Take the events."""
    answer = perform(manager, TakeEvents())
    assert isinstance(answer, Happened)
    return answer.events


def test_blocks_stored_together_are_one_event() -> None:
    """Goal: a router learns which tokens are cached, and after what. Method: 50 tokens in chunks of 32 and 18.

    The first two blocks have no parent; the third, 32..47, follows the second; the fourth is not full.
    """
    manager = manager_of(FULL)
    perform(manager, arrive(0, 50), Admit(0, 32))
    one, two, three = (manager.content(0, 0, position) for position in range(3))
    assert (Stored(0, (one, two), None, tuple(range(32)), 16, None, ((), ())),) == events(manager)
    perform(manager, Schedule(0, 18))
    assert (Stored(0, (three,), two, tuple(range(32, 48)), 16, None, ((),)),) == events(manager)


def test_groups_tell_one_after_the_other() -> None:
    """Goal: each group reports its own blocks, in its own size. Method: 48 tokens in blocks of 16 and of 24."""
    manager = manager_of(FULL, Group("full", 24))
    enter(manager, 0, 48)
    seen = [
        (event.group, event.tokens, event.block_size_tokens) for event in events(manager) if isinstance(event, Stored)
    ]
    assert [(0, tuple(range(48)), 16), (1, tuple(range(48)), 24)] == seen


def test_a_hit_is_not_stored_again() -> None:
    """Goal: cached content is not reported twice; content that was computed twice is. Method: prompt 32, then again.

    The second hits 16 and computes 16..31 into a block of its own, whose content is known.
    """
    manager = manager_of(FULL)
    pass_through(manager, 0, 32)
    first = events(manager)
    enter(manager, 1, 32)
    one, two = manager.content(1, 0, 0), manager.content(1, 0, 1)
    assert (Stored(0, (one, two), None, tuple(range(32)), 16, None, ((), ())),) == first
    assert (Stored(0, (two,), one, tuple(range(16, 32)), 16, None, ((),)),) == events(manager)


def test_extra_keys_are_reported_block_by_block() -> None:
    """Goal: a router can tell tenants, adapters and pictures apart. Method: all three over two blocks; the salt with
    the first, the adapter with both, the item in tokens 20..23 with the second, 4 from its start.
    """
    manager = manager_of(FULL)
    enter(manager, 0, 32, keys=Keys(salt="s", lora="l", media=(Media("cat", 20, 4),)))
    (stored,) = events(manager)
    assert isinstance(stored, Stored)
    lora = ExtraKey("lora", "l")
    assert "l" == stored.lora
    assert ((lora, ExtraKey("salt", "s")), (lora, ExtraKey("media", "cat", 4))) == stored.extra_keys


def test_sampled_tokens_are_reported() -> None:
    """Goal: the reported tokens are the request's own, answers included, rejected drafts not. Method: 14 tokens, then
    100 with the drafts 101 and 102; 101 is accepted, 200 said: the block is full with 100 and 101.
    """
    manager = manager_of(FULL, drafts_max=2)
    enter(manager, 0, 14)
    perform(manager, Sample(0, 0, 100, 2), Schedule(0, BUDGET))
    assert () == events(manager)
    perform(manager, Sample(0, 1, 200, 0), Schedule(0, 1))
    (stored,) = events(manager)
    assert isinstance(stored, Stored)
    assert (*range(14), 100, 101) == stored.tokens


def test_content_lost_with_a_block_is_reported_first() -> None:
    """Goal: a loss is reported when it happens, in order. Method: two of two blocks are taken by other tokens.

    Their queue is 2, 1. Both are taken, and lost, before the new content is stored.
    """
    manager = manager_of(FULL, blocks=3)
    enter(manager, 0, 32)
    one, two = manager.content(0, 0, 0), manager.content(0, 0, 1)
    perform(manager, Finish(0))
    events(manager)
    enter(manager, 1, 32, first=5000)
    contents = tuple(manager.content(1, 0, position) for position in range(2))
    stored = Stored(0, contents, None, tuple(range(5000, 5032)), 16, None, ((), ()))
    assert (Removed(two), Removed(one), stored) == events(manager)


def test_what_was_not_taken_is_kept() -> None:
    """Goal: a late reader misses nothing. Method: a prompt is cached, and its one block lost to another prompt."""
    manager = manager_of(FULL, blocks=2)
    pass_through(manager, 0, 16)
    enter(manager, 1, 16, first=5000)
    assert [Stored, Removed, Stored] == [type(event) for event in events(manager)]


def test_evictions_are_reported_once() -> None:
    """Goal: an eviction that forgets nothing reports nothing. Method: evict a cached block twice."""
    manager = manager_of(FULL)
    enter(manager, 0, 16)
    events(manager)
    perform(manager, Evict(1), Evict(1))
    assert (Removed(manager.content(0, 0, 0)),) == events(manager)


@pytest.mark.parametrize(("ends", "expected"), [(True, (Cleared(),)), (False, ())])
def test_a_reset_is_reported_if_it_happens(ends: bool, expected: tuple[Event, ...]) -> None:
    """Goal: a router forgets everything when the cache does. Method: reset while a block is held, and after."""
    manager = manager_of(FULL)
    enter(manager, 0, 32)
    if ends:
        perform(manager, Finish(0))
    events(manager)
    perform(manager, Reset())
    assert expected == events(manager)


def test_events_are_taken_once() -> None:
    """Goal: no event is reported twice. Method: take, and take again."""
    manager = manager_of(FULL)
    enter(manager, 0, 16)
    assert 1 == len(events(manager))
    assert () == events(manager)


def test_without_prefix_caching_nothing_is_reported() -> None:
    """Goal: tokens that are not cached are not an event. Method: caching off; a request passes, its block
    is evicted.
    """
    manager = manager_of(FULL, caches=False)
    pass_through(manager, 0, 32)
    perform(manager, Evict(1))
    assert () == events(manager)


def test_the_tokens_are_those_of_the_blocks_named() -> None:
    """Goal: tokens never span a block that is not named. Method: drafts outrun a window of 2: of the blocks 1 and 2,
    filled by drafts, block 1 (tokens 4..7) is dead before it can be cached. Only block 2 is reported, after block 1.
    """
    manager = manager_of(Group("sliding_window", 4, 2), drafts_max=7)
    perform(manager, Arrive(0, (Run(0, 4),)), Admit(0, BUDGET), Sample(0, 0, 100, 7), Schedule(0, BUDGET))
    events(manager)
    perform(manager, Sample(0, 7, 200, 0), Schedule(0, 1))
    dead, live = manager.content(0, 0, 1), manager.content(0, 0, 2)
    assert (Stored(0, (live,), dead, (104, 105, 106, 107), 4, None, ((),)),) == events(manager)


def test_nothing_is_reported_where_events_are_off() -> None:
    """Goal: without a request for events none are reported. Method: cache and evict a block, with events off and, as
    the control, on.
    """
    content = []
    for tells in (False, True):
        manager = manager_of(FULL, tells_events=tells)
        enter(manager, 0, 32)
        perform(manager, Evict(1))
        content.append(len(events(manager)))
    assert [0, 2] == content
