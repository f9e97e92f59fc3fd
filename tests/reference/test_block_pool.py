"""The block pool: taking, holding, releasing, forgetting."""

from __future__ import annotations

import pytest

from kvreference.block_pool import NULL, BlockPool
from kvreference.content import Prefix

ONE = (0, Prefix(None, "one", 16))
TWO = (0, Prefix(None, "two", 16))


def test_a_new_pool_is_free_but_for_the_null_block() -> None:
    """Goal: block 0 is never handed out. Method: a pool of five blocks."""
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
    """Goal: a block handed out is cached no longer, and what was lost is told in order.

    Method: blocks 2 and 3 of the free queue 1, 2, 3, 4 hold content; take three.
    """
    pool = BlockPool(5)
    pool.cached.register(TWO, 2)
    pool.cached.register(ONE, 3)
    assert ([1, 2, 3], [TWO, ONE]) == pool.take(3)
    assert {} == pool.cached.entries()


def test_more_than_there_is_cannot_be_taken() -> None:
    """Goal: whoever asks checks first. Method: take three of two."""
    with pytest.raises(LookupError, match="empty"):
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
    """Goal: the prefix cache is what nobody holds and nobody took. Method: release a block with content."""
    pool = BlockPool(3)
    pool.take(1)
    pool.cached.register(ONE, 1)
    pool.release([1])
    assert 1 == pool.cached.find(ONE)


def test_reset_needs_an_idle_pool() -> None:
    """Goal: content is forgotten only if nobody holds a block, and the queue keeps its order. Method: hold, release."""
    pool = BlockPool(4)
    pool.take(1)
    pool.cached.register(ONE, 1)
    assert not pool.reset()
    assert 1 == pool.cached.find(ONE)
    pool.release([1])
    assert pool.reset()
    assert {} == pool.cached.entries()
    assert [2, 3, 1] == list(pool.free)


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
