"""The block pool: taking, holding, releasing, forgetting."""

from __future__ import annotations

import pytest

from kvreference.block_pool import NULL, BlockPool, Pinned
from kvreference.content import Prefix

ONE = (0, Prefix(None, "one", 16))
TWO = (0, Prefix(None, "two", 16))


def test_a_new_pool_is_free_but_for_the_null_block() -> None:
    """Goal: block 0 is never allocated. Method: a pool of five blocks."""
    pool = BlockPool(5)
    assert [1, 2, 3, 4] == list(pool.free)
    assert [0, 0, 0, 0, 0] == pool.references


def test_blocks_are_taken_from_the_front() -> None:
    """Goal: the order of the free queue decides. Method: take two of 1..4, then none."""
    pool = BlockPool(5)
    assert ([1, 2], []) == pool.take(2)
    assert ([], []) == pool.take(0)
    assert [0, 1, 1, 0, 0] == pool.references
    assert [3, 4] == list(pool.free)


def test_content_is_lost_with_the_block_taken() -> None:
    """Goal: an allocated block is cached no longer, and losses are reported in order.

    Method: blocks 2 and 3 of the free queue 1, 2, 3, 4 hold content; take three.
    """
    pool = BlockPool(5)
    pool.cached.register(TWO, 2)
    pool.cached.register(ONE, 3)
    assert ([1, 2, 3], [TWO, ONE]) == pool.take(3)
    assert {} == pool.cached.entries()


def test_more_than_there_is_cannot_be_taken() -> None:
    """Goal: the caller checks first. Method: take three of two."""
    with pytest.raises(LookupError, match="3 blocks are wanted"):
        BlockPool(3).take(3)


def test_touch_takes_a_free_block_out_of_the_queue() -> None:
    """Goal: a hit holds its blocks before anything is taken. Method: touch 2, which is free; then 2 and 3."""
    pool = BlockPool(5)
    pool.cached.register(ONE, 2)
    pool.touch([2])
    assert [1, 3, 4] == list(pool.free)
    pool.touch([2, 3])
    assert [1, 4] == list(pool.free)
    assert [0, 0, 2, 1, 0] == pool.references
    assert 2 == pool.cached.find(ONE)


def test_released_blocks_go_to_the_back_in_order() -> None:
    """Goal: a block is free once its last holder leaves; the null block never is. Method: 2 has two holders of 1..3."""
    pool = BlockPool(5)
    pool.take(3)
    pool.touch([2])
    pool.release([3, NULL, 2, 1])
    assert [4, 3, 1] == list(pool.free)
    assert [0, 0, 1, 0, 0] == pool.references
    pool.release([2])
    assert [4, 3, 1, 2] == list(pool.free)


def test_content_stays_with_a_released_block() -> None:
    """Goal: the prefix cache is what no request holds and none took. Method: release a block with content."""
    pool = BlockPool(3)
    pool.take(1)
    pool.cached.register(ONE, 1)
    pool.release([1])
    assert 1 == pool.cached.find(ONE)


def test_reset_needs_an_idle_pool() -> None:
    """Goal: content is forgotten only if no block is held, and the queue keeps its order. Method: hold, release."""
    pool = BlockPool(4)
    pool.take(1)
    pool.cached.register(ONE, 1)
    assert not pool.reset()
    assert 1 == pool.cached.find(ONE)
    pool.release([1])
    assert pool.reset()
    assert {} == pool.cached.entries()
    assert [2, 3, 1] == list(pool.free)


def pool_of(blocks: int, *cached: int, scratch_first: bool = False) -> BlockPool:
    """A pool in which everything is free; ``cached`` hold content, the first of them only a beginning."""
    pool = BlockPool(blocks, scratch_first)
    for position, block in enumerate(cached):
        content = (0, Prefix(None, block, 16))
        (pool.cached if position else pool.partial).register(content, block)
    return pool


def test_what_counts_as_cached() -> None:
    """Goal: everything that a hit could use is cached: a block's whole content, or a beginning. Method: 2 has a
    beginning, 3 a content, 1 and the null block nothing.
    """
    pool = pool_of(5, 2, 3)
    assert [False, False, True, True, False] == [pool.is_cached(block) for block in range(5)]


def test_a_beginning_is_lost_with_the_block_taken() -> None:
    """Goal: an allocated block serves no copy, and the loss of a beginning is not an event. Method: 2 begins, 3 is
    content.
    """
    pool = pool_of(5, 2, 3)
    content = pool.cached.content_of(3)
    assert ([1, 2, 3], [content]) == pool.take(3)
    assert ({}, {}) == (pool.partial.entries(), pool.cached.entries())


@pytest.mark.parametrize(("count", "expected"), [(0, True), (4, True), (5, False)])
def test_there_is_room_for_what_is_free(count: int, expected: bool) -> None:
    """Goal: all blocks of the free queue can be taken, and no others. Method: four free blocks, two of them a hit."""
    assert expected == BlockPool(5).make_room(count, [1, 2])


def test_free_ones_are_counted() -> None:
    """Goal: to hold a free block takes it out of the queue, to share a held one does not. Method: 1, 2 held of 1..3."""
    pool = BlockPool(4)
    pool.take(2)
    assert (1, 0) == (pool.count_free([1, 2, 3]), pool.count_free([]))


@pytest.mark.parametrize("how", ["slide", "end"])
def test_without_pins_every_release_is_the_same(how: str) -> None:
    """Goal: nothing is pinned without a pinned tier. Method: a window slides past cached blocks, a request ends."""
    pool = pool_of(4, 1, 2)
    pool.touch([1, 2])
    if how == "slide":
        pool.slide([2, NULL, 1], [2])
    else:
        pool.end([2, NULL, 1])
    assert ([3, 2, 1], Pinned()) == (list(pool.free), pool.pinned_blocks())


@pytest.mark.parametrize(("scratch_first", "expected"), [(False, [5, 4, 3, 2, 1]), (True, [4, 1, 5, 3, 2])])
def test_released_scratch(scratch_first: bool, expected: list[int]) -> None:
    """Goal: scratch is worth least; a block with a beginning is not scratch. Method: 4, 3, 2, 1 are released after 5.

    3 has a beginning, 2 a content; 4 and 1 are scratch.
    """
    pool = pool_of(6, 3, 2, scratch_first=scratch_first)
    pool.touch([1, 2, 3, 4])
    pool.release([4, 3, 2, 1])
    assert expected == list(pool.free)


@pytest.mark.parametrize(
    ("scratch_first", "block", "expected"),
    [(False, 2, [1, 2, 3]), (True, 2, [2, 1, 3]), (True, 3, [3, 1, 2])],
)
def test_an_evicted_block(scratch_first: bool, block: int, expected: list[int]) -> None:
    """Goal: content and beginnings are forgotten by id; a free block turns scratch. Method: 2 has a beginning, 3 a
    content; only the content is reported.
    """
    pool = pool_of(4, 2, 3, scratch_first=scratch_first)
    content = pool.cached.content_of(block)
    assert ([] if content is None else [content]) == pool.evict(block)
    assert not pool.is_cached(block)
    assert expected == list(pool.free)


def test_an_evicted_block_that_is_held() -> None:
    """Goal: the holder keeps its block. Method: evict a held block with content, and release it: scratch."""
    pool = pool_of(4, 3, 2, scratch_first=True)
    pool.touch([2])
    pool.evict(2)
    assert ([1, 3], [0, 0, 1, 0]) == (list(pool.free), pool.references)
    pool.release([2])
    assert [2, 1, 3] == list(pool.free)


def test_reset_forgets_beginnings_too() -> None:
    """Goal: after a reset no copy can be served. Method: 2 has a beginning; hold 1, reset, release, reset."""
    pool = pool_of(4, 2)
    pool.take(1)
    assert not pool.reset()
    assert pool.is_cached(2)
    pool.release([1])
    assert pool.reset()
    assert not pool.is_cached(2)


def test_a_copy_keeps_beginnings_apart() -> None:
    """Goal: a step leaves the state before it alone. Method: forget the one beginning in the copy."""
    pool = pool_of(4, 2)
    copy = pool.copy()
    assert pool.partial.entries() == copy.partial.entries()
    copy.evict(2)
    assert (True, False) == (pool.is_cached(2), copy.is_cached(2))


def test_a_copy_is_independent() -> None:
    """Goal: a step leaves the state before it alone. Method: take and register in the copy."""
    pool = BlockPool(4)
    pool.take(1)
    copy = pool.copy()
    assert (pool.references, list(pool.free)) == (copy.references, list(copy.free))
    copy.take(1)
    copy.cached.register(ONE, 1)
    assert [0, 1, 0, 0] == pool.references
    assert [2, 3] == list(pool.free)
    assert {} == pool.cached.entries()


def test_what_no_one_holds_is_not_registered() -> None:
    """Goal: a block that is free, and the null block, become known to hold nothing. Method: offer each, whole and in
    part; nothing is cached after it.
    """
    pool = BlockPool(3)
    for register in (pool.register, pool.register_beginning):
        for block in (0, 1):
            with pytest.raises(ValueError, match=f"block {block} has no holder"):
                register(ONE, block)
    assert not any(map(pool.is_cached, range(3)))


@pytest.mark.parametrize("block", [-1, 0, 3])
def test_only_blocks_of_the_pool_get_holders(block: int) -> None:
    """Goal: a number that is not a block's is rejected before anything changes. Method: together with one that is."""
    pool = BlockPool(3)
    with pytest.raises(LookupError, match="not all of"):
        pool.touch([1, block])
    assert ([0, 0, 0], [1, 2]) == (pool.references, list(pool.free))
