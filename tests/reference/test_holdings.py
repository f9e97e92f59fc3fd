"""Holdings: the order in which blocks are held, given and taken back."""

from __future__ import annotations

from typing import Any

import pytest

from kvreference.answers import Copy, Hit, Partial
from kvreference.block_pool import BlockPool
from kvreference.cached_map import Content
from kvreference.content import Prefix
from kvreference.free_queue import FreeQueue, ScratchFirstQueue
from kvreference.geometry import Geometry, Group
from kvreference.holdings import Allocation, Holdings, Span, new_pool
from kvreference.pinned_tier import PinnedPool
from kvreference.settings import Settings
from kvreference.tables import Table

FULL = Group("full", 4)
WINDOW = Group("sliding_window", 4, 5)
UNIT = Group("full", 16, compress_ratio=4, unit_tokens=4)
NO_HIT = Hit(0, ((), ()))


def holdings_of(*groups: Group, blocks: int = 12, **rest: Any) -> Holdings:
    """No request holds anything; requests have up to 40 tokens."""
    return Holdings(Settings(Geometry(groups), blocks, **{"tokens_max": 40, **rest}))


def cache(holdings: Holdings, *blocks: int) -> list[Content]:
    """Each of ``blocks`` is said to hold a content of its own."""
    contents: list[Content] = [(0, Prefix(None, block, 4)) for block in blocks]
    for content, block in zip(contents, blocks, strict=True):
        holdings.pool.cached.register(content, block)
    return contents


def tables(holdings: Holdings, request: int) -> list[list[int]]:
    """The tables of a request."""
    return [table.blocks for table in holdings.tables[request]]


@pytest.mark.parametrize("scratch_first", [False, True])
@pytest.mark.parametrize(("drop_blocks_min", "kind"), [(None, BlockPool), (3, PinnedPool)])
def test_the_pool_is_what_the_settings_say(scratch_first: bool, drop_blocks_min: int | None, kind: type) -> None:
    """Goal: pins and scratch first are independent settings. Method: all four; one block is never allocated."""
    settings = Settings(Geometry((FULL,)), 5, scratch_first=scratch_first, pin_drop_blocks_min=drop_blocks_min)
    pool = new_pool(settings)
    assert type(pool) is kind
    assert type(pool.free) is (ScratchFirstQueue if scratch_first else FreeQueue)
    assert drop_blocks_min == getattr(pool, "drop_blocks_min", None)
    assert [1, 2, 3, 4] == list(pool.free)


def test_group_by_group_from_the_front() -> None:
    """Goal: the order of allocation is specified, and losses are reported in order. Method: 9 tokens are 3 blocks in
    either group; 2 and 5 were cached.
    """
    holdings = holdings_of(FULL, WINDOW)
    lost = cache(holdings, 2, 5)
    assert Allocation(((1, 2, 3), (4, 5, 6)), tuple(lost)) == holdings.allocate(0, Span(0, 9), NO_HIT)
    assert [7, 8, 9, 10, 11] == list(holdings.pool.free)
    assert [Table([1, 2, 3], 0, 0, fresh=False), Table([4, 5, 6], 0, 0, fresh=False)] == holdings.tables[0]


def test_what_is_provided_comes_first_in_all_groups() -> None:
    """Goal: one order, for any provider. Method: of 13 tokens another node provides the first 6, two blocks in either
    group; with those in place, the other two of each follow.
    """
    holdings = holdings_of(FULL, FULL)
    assert Allocation(((1, 2, 5, 6), (3, 4, 7, 8)), ()) == holdings.allocate(0, Span(6, 7, provided=6), NO_HIT)


def test_all_that_is_lost_is_reported() -> None:
    """Goal: content lost to tokens from another node is reported before content lost to the rest. Method: the same
    allocation; 2, taken for what is provided, and 7, taken for the rest, were cached.
    """
    holdings = holdings_of(FULL, FULL)
    lost = cache(holdings, 2, 7)
    assert Allocation(((1, 2, 5, 6), (3, 4, 7, 8)), tuple(lost)) == holdings.allocate(0, Span(6, 7, 0, 6), NO_HIT)


def test_nothing_is_given_for_what_is_dead() -> None:
    """Goal: tokens that are never read have no block, though another node could provide them. Method: 10 tokens
    provided, window 5: 6 of them are dead, one block. The tokens 4..9 get blocks first, 10..12 after.
    """
    holdings = holdings_of(WINDOW)
    assert Allocation(((1, 2, 3),), ()) == holdings.allocate(0, Span(10, 3, provided=10), Hit(0, ((),)))
    assert [[0, 1, 2, 3]] == tables(holdings, 0)


def test_a_hit_is_held_before_anything_is_taken() -> None:
    """Goal: no group takes what another group hits. Method: the hit of the second group, 1 and 2, stands at the front
    of the queue; the first group's 3 is held by another request as well.
    """
    holdings = holdings_of(FULL, FULL, blocks=9)
    holdings.pool.touch([3])
    given = holdings.allocate(0, Span(4, 5, provided=0), Hit(4, ((3,), (1,))))
    assert Allocation(((2, 4), (5, 6)), ()) == given
    assert [[3, 2, 4], [1, 5, 6]] == tables(holdings, 0)
    assert [1, 1, 2, 1] == [holdings.pool.references[block] for block in (1, 2, 3, 4)]


@pytest.mark.parametrize(("tokens", "given"), [(16, True), (17, False)])
def test_all_or_nothing(tokens: int, given: bool) -> None:
    """Goal: an allocation that does not fit changes nothing. Method: four usable blocks of 4, a hit on 2: it counts,
    being free, and 16 tokens take the other three.
    """
    holdings = holdings_of(FULL, blocks=5)
    allocation = holdings.allocate(0, Span(4, tokens - 4), Hit(4, ((2,),)))
    assert (Allocation(((1, 3, 4),), ()) if given else None) == allocation
    assert ([] if given else [1, 2, 3, 4]) == list(holdings.pool.free)
    assert ({0} if given else set()) == set(holdings.tables)


def test_the_release_stands_if_the_rest_is_rejected() -> None:
    """Goal: dead blocks are released even if the request is rejected. Method: window 5, 8 tokens in two of three
    blocks: 4 are dead. Of 13 tokens more, 4 blocks, three fit at most: 1 and 3. Rejected; 8 tokens fit, and get 3 and
    1.
    """
    holdings = holdings_of(WINDOW, blocks=4)
    holdings.allocate(0, Span(0, 8), Hit(0, ((),)))
    assert holdings.allocate(0, Span(8, 13), Hit(0, ((),))) is None
    assert ([[0, 2]], [3, 1]) == (tables(holdings, 0), list(holdings.pool.free))
    assert Allocation(((3, 1),), ()) == holdings.allocate(0, Span(8, 8), Hit(0, ((),)))


def test_look_ahead_slots() -> None:
    """Goal: slots after the tokens, but never beyond the longest request. Method: 7 tokens and 2 slots are 3 blocks; 39
    tokens and 2 slots end at 40 tokens, 10 blocks.
    """
    holdings = holdings_of(FULL)
    assert Allocation(((1, 2, 3),), ()) == holdings.allocate(0, Span(0, 7, 2), Hit(0, ((),)))
    assert Allocation(((4, 5, 6, 7, 8, 9, 10),), ()) == holdings.allocate(0, Span(7, 32, 2), Hit(0, ((),)))


def test_a_hit_inside_a_block_is_copied() -> None:
    """Goal: the source is held until the copy is made, the destination is the request's own. Method: hits of 24 tokens
    in blocks of 16: 1 is shared, of 2 the first 8 tokens are copied into 3. The source counts besides what is taken.
    """
    hit = Hit(24, ((1,),), (Partial(0, 2, 8),))
    assert holdings_of(UNIT, blocks=3).allocate(0, Span(24, 8), hit) is None
    holdings = holdings_of(UNIT, blocks=4)
    assert Allocation(((3,),), ()) == holdings.allocate(0, Span(24, 8), hit)
    assert [Copy(0, 2, 3, 8)] == holdings.copies
    assert ([[1, 3]], [1, 1, 1]) == (tables(holdings, 0), holdings.pool.references[1:])
    assert (Copy(0, 2, 3, 8),) == holdings.dispatch()
    assert ([], [2]) == (holdings.copies, list(holdings.pool.free))
    assert () == holdings.dispatch()


def test_copies_in_order() -> None:
    """Goal: copies are made in the order in which they were scheduled, and every one holds its source. Method: two
    requests copy from block 1, which no other request holds.
    """
    holdings = holdings_of(UNIT, blocks=4)
    for request in (0, 1):
        holdings.allocate(request, Span(8, 8), Hit(8, ((),), (Partial(0, 1, 8),)))
    assert [2, 1, 1] == holdings.pool.references[1:]
    assert (Copy(0, 1, 2, 8), Copy(0, 1, 3, 8)) == holdings.dispatch()
    assert [0, 1, 1] == holdings.pool.references[1:]


def test_the_dead_are_released_the_later_first() -> None:
    """Goal: the order of release decides what survives. Method: window 5, 17 tokens in five blocks: 13 are dead."""
    holdings = holdings_of(FULL, WINDOW, blocks=11)
    holdings.allocate(0, Span(0, 17), NO_HIT)
    holdings.release_dead(0, 17)
    assert [[1, 2, 3, 4, 5], [0, 0, 0, 9, 10]] == tables(holdings, 0)
    assert [8, 7, 6] == list(holdings.pool.free)
    holdings.release_dead(0, 40)
    assert [[1, 2, 3, 4, 5], [0] * 5] == tables(holdings, 0)
    assert [8, 7, 6, 10, 9] == list(holdings.pool.free)


def test_a_request_without_a_table_has_nothing_dead() -> None:
    """It was preempted: nothing of it is held."""
    holdings = holdings_of(WINDOW, blocks=4)
    holdings.release_dead(0, 64)
    assert 3 == len(holdings.pool.free)


def test_an_anchor_is_in_the_order_of_release(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a pool receives the anchor of a hit in the order of the dropped blocks. Method: window 9, 21 tokens, 13 of
    them dead: of three dropped blocks a hit of 12 tokens reads the last two, 4..11.
    """
    holdings = holdings_of(Group("sliding_window", 4, 9))
    observed: list[tuple[list[int], list[int]]] = []
    monkeypatch.setattr(holdings.pool, "slide", lambda blocks, anchor: observed.append((blocks, anchor)))
    holdings.allocate(0, Span(0, 21), Hit(0, ((),)))
    holdings.release_dead(0, 21)
    assert [([3, 2, 1], [3, 2])] == observed


def test_the_end() -> None:
    """Goal: group by group, the tail first; a request without blocks releases none. Method: 9 tokens, window 5 and 5
    dead; then once more.
    """
    holdings = holdings_of(FULL, WINDOW, blocks=7)
    holdings.allocate(0, Span(0, 9), NO_HIT)
    holdings.release_dead(0, 9)
    holdings.release_all(0)
    assert ([4, 3, 2, 1, 6, 5], {}) == (list(holdings.pool.free), holdings.tables)
    holdings.release_all(0)
    assert [4, 3, 2, 1, 6, 5] == list(holdings.pool.free)


@pytest.mark.parametrize(("drop_blocks_min", "queue"), [(3, (8,)), (4, ())])
def test_a_drop_pins_as_many_as_a_hit_reads(drop_blocks_min: int, queue: tuple[int, ...]) -> None:
    """Goal: the tail is the group's. Method: a window of 5 reads one block of 4 before a boundary; of the three dropped
    the last stays, if three are enough. The full group drops none.
    """
    holdings = holdings_of(FULL, WINDOW, pin_drop_blocks_min=drop_blocks_min)
    holdings.allocate(0, Span(0, 17), NO_HIT)
    cache(holdings, *range(1, 11))
    holdings.release_dead(0, 17)
    assert queue == holdings.pool.pinned_blocks().queue


def test_the_gate_knows_what_a_request_holds() -> None:
    """Goal: a request that has loaded is asked only for the rest. Method: 8 of 20 tokens in two of five blocks: three
    more to come are there; of 24 tokens, four are not. One that holds nothing asks for all.
    """
    holdings = holdings_of(FULL, blocks=6)
    holdings.allocate(0, Span(8, 0, provided=8), Hit(0, ((),)))
    assert [True, False] == [holdings.passes_gate(0, tokens, Hit(0, ((),)), 8) for tokens in (20, 24)]
    assert [True, False] == [holdings.passes_gate(1, tokens, Hit(0, ((),)), 0) for tokens in (12, 16)]


def test_the_gate_knows_which_states_stay_held() -> None:
    """Goal: a block that is not read but still held makes no room. Method: 5 of 9 or 13 tokens, with two drafts, hold
    four of five blocks; no token reads the first. A block is missing, or two.
    """
    holdings = holdings_of(Group("mamba", 4, states="all", draft_states=2), blocks=6)
    holdings.allocate(0, Span(0, 5), Hit(0, ((),)))
    assert 4 == len(holdings.tables[0][0].live())
    assert [True, False] == [holdings.passes_gate(0, tokens, Hit(0, ((),)), 5) for tokens in (9, 13)]
    assert holdings.allocate(0, Span(5, 4), Hit(0, ((),)))


def test_what_everyone_shares() -> None:
    """Goal: leading blocks with as many holders as there are requests with blocks, never in a window. Method: 0 has
    three blocks, 1 shares the first and the third of them, 2 none.
    """
    holdings = holdings_of(FULL, WINDOW)
    holdings.allocate(0, Span(0, 9), NO_HIT)
    assert [3, 0] == holdings.leading_shared(0)
    holdings.allocate(1, Span(12, 1), Hit(12, ((1, 7, 3), (0, 5, 6))))
    assert ([1, 0], [1, 0]) == (holdings.leading_shared(0), holdings.leading_shared(1))
    holdings.allocate(2, Span(0, 1), NO_HIT)
    assert ([0, 0], [0, 0]) == (holdings.leading_shared(0), holdings.leading_shared(2))


def test_a_copy_is_independent() -> None:
    """Goal: a step leaves the state before it alone. Method: do everything in the copy."""
    holdings = holdings_of(UNIT, blocks=6)
    holdings.allocate(0, Span(8, 8), Hit(8, ((),), (Partial(0, 1, 8),)))
    copy = holdings.copy()

    def observed(each: Holdings) -> tuple[object, ...]:
        held = {number: [table.copy() for table in of_one] for number, of_one in each.tables.items()}
        return held, list(each.pool.references), list(each.pool.free), list(each.copies)

    before = observed(holdings)
    assert before == observed(copy)
    copy.allocate(0, Span(16, 8), Hit(0, ((),)))
    copy.allocate(1, Span(8, 8), Hit(8, ((),), (Partial(0, 1, 8),)))
    copy.dispatch()
    copy.release_all(1)
    assert before == observed(holdings)
    assert before != observed(copy)


def test_what_would_break_the_count_is_rejected() -> None:
    """Goal: what writes tables and copies raises before it changes anything. Method: a second beginning, a hit that the
    request names already, a table that would lose a block, an eviction of no block, and an end under a pending copy.
    """
    holdings = holdings_of(FULL, FULL)
    assert holdings.allocate(1, Span(0, 8), NO_HIT) is not None
    (one, two), pool = holdings.tables[1], holdings.pool
    holdings.copies = [Copy(0, 5, one.blocks[0], 2)]
    before = ([[*one.blocks], [*two.blocks]], [*pool.references], [*pool.free])
    for rejected in (
        lambda: holdings._begin(1, [one, two]),
        lambda: holdings._hold([one, two], 0, two.blocks),
        lambda: holdings._hold([one, two], 0, [9, 9]),
        lambda: holdings._grow(one, [one.blocks[0], None]),
        lambda: holdings._leave(one, [0], slice(0, 0), ()),
        lambda: holdings.release_all(1),
    ):
        with pytest.raises(ValueError):  # noqa: PT011  # each says something else
            rejected()
    with pytest.raises(LookupError):
        pool.evict(12)
    assert before == (tables(holdings, 1), pool.references, list(pool.free))
