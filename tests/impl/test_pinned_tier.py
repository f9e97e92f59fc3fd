"""The pinned tier over a block pool of vLLM: blocks that wait, and blocks that are hit again.

Method: a few blocks, flagged by hand, and the links, counts and references after each call.
"""

from __future__ import annotations

from typing import Any

from vllm.v1.core.block_pool import BlockPool

from swa_retention.pinned_tier import PinnedTier


def waiting(count: int) -> tuple[BlockPool, PinnedTier, list[Any]]:
    """A pool of nine blocks, of which so many are pinned and not held."""
    pool = BlockPool(10, True, 16)
    tier = PinnedTier(pool, 1)
    blocks: list[Any] = pool.get_new_blocks(count)
    for block in blocks:
        tier.pinned[block.block_id] = True
    assert [] == list(tier.release_pinned(blocks))
    assert blocks == tier.queue.get_all_free_blocks()
    return pool, tier, blocks


def test_what_is_hit_leaves_the_queue() -> None:
    """The others keep their order, and vLLM is left what does not wait."""
    pool, tier, (first, second, third) = waiting(3)
    (held,) = pool.get_new_blocks(1)
    assert [held, pool.null_block] == list(tier.resume([held, second, pool.null_block]))
    assert [first, third] == tier.queue.get_all_free_blocks()
    assert (1, 1, 2) == (second.ref_cnt, held.ref_cnt, tier.queue.num_free_blocks)
    assert 9 - 4 == pool.get_num_free_blocks()


def test_a_block_may_be_hit_twice_in_one_call() -> None:
    """As vLLM's own function has it: two holders, and one place less in the queue."""
    _, tier, (first, second) = waiting(2)
    assert [] == list(tier.resume([first, first]))
    assert (2, 1) == (first.ref_cnt, tier.queue.num_free_blocks)
    assert [second] == tier.queue.get_all_free_blocks()


def test_what_is_hit_is_counted() -> None:
    """Where vLLM measures how long blocks stay, each block is reported to it once."""
    pool, tier, blocks = waiting(2)
    seen: list[Any] = []

    class Metrics:
        def on_block_accessed(self, block: Any) -> None:
            seen.append(block)

    pool.metrics_collector = Metrics()  # type: ignore[assignment]  # what it needs of one
    tier.resume(blocks)
    assert blocks == seen


def test_what_is_released_waits_without_its_last_holder_alone() -> None:
    """Of three blocks one is pinned, one is pinned and held twice, and one is not pinned."""
    pool = BlockPool(10, True, 16)
    tier = PinnedTier(pool, 1)
    once, twice, other = blocks = pool.get_new_blocks(3)
    tier.pinned[once.block_id] = tier.pinned[twice.block_id] = True
    twice.ref_cnt = 2
    assert [other] == list(tier.release_pinned(blocks))
    assert [once] == tier.queue.get_all_free_blocks()
    assert (0, 1, 1) == (once.ref_cnt, twice.ref_cnt, other.ref_cnt)


def test_when_a_request_ends_what_is_cached_is_pinned() -> None:
    """A block without content is left to vLLM, and so is the null block."""
    pool = BlockPool(10, True, 16)
    tier = PinnedTier(pool, 1)
    cached, scratch = blocks = pool.get_new_blocks(2)
    cached._block_hash = b"content"  # type: ignore[assignment]  # any will do
    tier.keeps_all = True
    assert [scratch, pool.null_block] == list(tier.release_pinned([*blocks, pool.null_block]))
    assert [cached] == tier.queue.get_all_free_blocks()
    assert (True, False) == (tier.holds(cached), tier.holds(scratch))
