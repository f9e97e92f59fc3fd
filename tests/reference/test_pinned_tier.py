"""The pinned tier: what is pinned, where it waits, and how it comes back."""

from __future__ import annotations

import pytest

from kvreference.block_pool import NULL
from kvreference.content import Prefix
from kvreference.pinned_tier import PinnedPool


def pool_of(blocks: int, *cached: int, drop_blocks_min: int = 2, scratch_first: bool = False) -> PinnedPool:
    """A pool whose ``cached`` blocks hold content, and in which one holder has every block but the last two."""
    pool = PinnedPool(blocks, scratch_first, drop_blocks_min)
    for block in cached:
        pool.cached.register((0, Prefix(None, block, 16)), block)
    pool.touch(range(1, blocks - 2))
    return pool


def snapshot(pool: PinnedPool) -> tuple[list[int], list[int], list[int]]:
    """The blocks with a pin; of them those without a holder, the oldest first; and the free queue."""
    now = pool.pinned_blocks()
    return sorted(now.blocks), list(now.queue), list(pool.free)


@pytest.mark.parametrize(
    ("dropped", "anchor"),
    [
        ([4, 3, 2, 1], [4, 3]),
        ([4, 3, 2, 1], [3, 2]),
        ([4, 3, 2, 1], [4, 3, 2, 1]),
        ([4, 3, 2, 1], []),
        ([2, 1], [1]),
        ([NULL, 3, NULL, 2], [3, NULL]),
        ([], []),
    ],
)
def test_a_long_drop_pins_its_anchor(dropped: list[int], anchor: list[int]) -> None:
    """Goal: of a drop of two blocks or more, those that a hit reads stay. Method: drops in order of release, the later
    blocks first.
    """
    pool = pool_of(7, 1, 2, 3, 4)
    pool.slide(dropped, anchor)
    pinned = [block for block in anchor if block != NULL]
    others = [block for block in dropped if block != NULL and block not in anchor]
    assert (sorted(pinned), pinned, [5, 6, *others]) == snapshot(pool)


@pytest.mark.parametrize("dropped", [[2], [2, NULL], [NULL, NULL, 1]])
def test_a_short_drop_pins_nothing(dropped: list[int]) -> None:
    """Goal: decoding pins nothing. Method: what the window has left before, null, does not count."""
    pool = pool_of(7, 1, 2)
    pool.slide(dropped, dropped)
    assert ([], [], [5, 6, max(dropped)]) == snapshot(pool)


def test_what_is_not_cached_is_not_pinned() -> None:
    """Goal: a block that serves no hit is not worth keeping. Method: of the anchor 4, 3 only 3 is cached; 2, cached as
    well, is not part of it. At the end, only the cached ones are pinned.
    """
    pool = pool_of(7, 3, 2)
    pool.slide([4, 3, 2], [4, 3])
    assert ([3], [3], [5, 6, 4, 2]) == snapshot(pool)
    pool = pool_of(7, 3, 2)
    pool.end([4, 3, 2, NULL, 1])
    assert ([2, 3], [3, 2], [5, 6, 4, 1]) == snapshot(pool)


def test_a_beginning_is_worth_a_pin() -> None:
    """Goal: everything that a hit could use is cached. Method: 2 only begins with a known content."""
    pool = pool_of(5)
    pool.partial.register((0, Prefix(None, "x", 16)), 2)
    pool.end([2, 1])
    assert ([2], [2], [3, 4, 1]) == snapshot(pool)


def test_a_shared_block_is_pinned_while_it_is_held() -> None:
    """Goal: a pin is a flag; where a block waits depends on its holders. Method: 1 has two; both end."""
    pool = pool_of(5, 1)
    pool.touch([1])
    pool.end([2, 1])
    assert ([1], [], [3, 4, 2]) == snapshot(pool)
    pool.release([1])
    assert ([1], [1], [3, 4, 2]) == snapshot(pool)


def test_a_pin_outlives_a_hit() -> None:
    """Goal: a hit takes a pinned block out of its queue, a release puts it back at the end. Method: 2, 1 are pinned;
    hit 2; a plain release, as of a copied source, unpins nothing.
    """
    pool = pool_of(5, 1, 2)
    pool.end([2, 1])
    assert (0, 1) == (pool.count_free([2, 1]), pool.count_free([2, 3]))
    pool.touch([2])
    assert ([1, 2], [1], [3, 4]) == snapshot(pool)
    assert 1 == pool.references[2]
    pool.release([2])
    assert ([1, 2], [1, 2], [3, 4]) == snapshot(pool)


@pytest.mark.parametrize(
    ("count", "kept", "demoted"),
    [(2, [], []), (0, [], []), (3, [], [3]), (4, [], [3, 2]), (5, [], [3, 2, 1]), (3, [3], [2]), (4, [2], [3, 1])],
)
def test_the_oldest_are_demoted_as_many_as_missing(count: int, kept: list[int], demoted: list[int]) -> None:
    """Goal: under pressure pins give way, the oldest first, never what is about to be held.

    Method: 4 and 5 are free, 3, 2, 1 pinned in this order. Demoted blocks go to the back, and are still cached.
    """
    pool = pool_of(6, 1, 2, 3)
    pool.end([3, 2, 1])
    assert pool.make_room(count, kept)
    rest = [block for block in (3, 2, 1) if block not in demoted]
    assert (sorted(rest), rest, [4, 5, *demoted]) == snapshot(pool)
    assert [True] * 3 == [pool.is_cached(block) for block in (1, 2, 3)]


@pytest.mark.parametrize(("count", "kept"), [(6, []), (5, [2]), (4, [1, 2]), (3, [1, 2, 3])])
def test_nothing_is_demoted_if_it_cannot_help(count: int, kept: list[int]) -> None:
    """Goal: a refusal takes nothing. Method: one block more than can be had."""
    pool = pool_of(6, 1, 2, 3)
    pool.end([3, 2, 1])
    before = snapshot(pool)
    assert not pool.make_room(count, kept)
    assert before == snapshot(pool)


def test_the_demoted_are_taken_last() -> None:
    """Goal: a demoted block is the last to be allocated, and is then cached no longer. Method: demote 2, take 3."""
    pool = pool_of(5, 1, 2)
    pool.end([2, 1])
    content = pool.cached.content_of(2)
    assert pool.make_room(3, [])
    assert ([3, 4, 2], [content]) == pool.take(3)
    assert ([1], [1], []) == snapshot(pool)


@pytest.mark.parametrize("scratch_first", [False, True])
def test_an_eviction_unpins(scratch_first: bool) -> None:
    """Goal: a pin without content would hold a block for nothing. Method: evict 2, pinned and free; it is scratch."""
    pool = pool_of(5, 1, 2, scratch_first=scratch_first)
    pool.end([2, 1])
    pool.evict(2)
    assert ([1], [1], [2, 3, 4] if scratch_first else [3, 4, 2]) == snapshot(pool)


def test_an_eviction_unpins_what_is_held() -> None:
    """Goal: the holder keeps the block, but the pin is gone. Method: evict 1, pinned and hit; its holder
    releases it.
    """
    pool = pool_of(5, 1)
    pool.end([2, 1])
    pool.touch([1])
    pool.evict(1)
    assert ([], [], [3, 4, 2]) == snapshot(pool)
    pool.release([1])
    assert ([], [], [3, 4, 2, 1]) == snapshot(pool)


@pytest.mark.parametrize(("scratch_first", "expected"), [(False, [3, 4, 2, 1]), (True, [1, 2, 3, 4])])
def test_a_reset_unpins(scratch_first: bool, expected: list[int]) -> None:
    """Goal: forgotten blocks are not pinned. Method: 2, 1 are pinned; a reset while 1 is held changes nothing; then all
    are free, those that were pinned put in one after the other.
    """
    pool = pool_of(5, 1, 2, scratch_first=scratch_first)
    pool.end([2, 1])
    pool.touch([1])
    before = snapshot(pool)
    assert not pool.reset()
    assert before == snapshot(pool)
    pool.release([1])
    assert pool.reset()
    assert ([], [], expected) == snapshot(pool)


def test_a_copy_is_independent() -> None:
    """Goal: a step leaves the state before it alone. Method: evict, pin and release in the copy."""
    pool = pool_of(6, 1, 2, 3, drop_blocks_min=1)
    pool.slide([2], [2])
    before = snapshot(pool), list(pool.references)
    copy = pool.copy()
    assert before == (snapshot(copy), list(copy.references))
    copy.slide([3], [3])
    copy.evict(2)
    assert before == (snapshot(pool), list(pool.references))
    assert ([3], [3], [4, 5, 2]) == snapshot(copy)
