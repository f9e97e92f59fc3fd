"""The pinned tier: cached blocks that the free queue cannot reach.

The blocks that a window drops are the anchor from which the next request with the same prefix resumes. Pinned, they
wait in a queue of their own, from which nothing is allocated, until blocks run short. Then the oldest are *demoted* to
the back of the free queue, where they are still cached until they are taken. Every move is one of a linked list.

A pin is a flag next to the block. Reference counts mean holders only: a design that counted a pin as a holder leaked
blocks until the pool was gone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from swa_retention.scratch import is_scratch, scratch_and_rest


class PinnedTier:
    """What is pinned in one block pool of vLLM."""

    def __init__(self, pool: Any, min_drop_blocks: int) -> None:
        self.pool = pool
        self.min_drop_blocks = min_drop_blocks
        """The shortest window drop of which a tail is pinned."""
        self.pinned = bytearray(len(pool.blocks))
        """Per block, whether it is pinned, held or not."""
        # A block is in one of the two queues at most, so the links that it has serve both.
        self.queue = type(pool.free_block_queue)([])
        """The pinned blocks without a holder, the oldest first."""
        self.scratch_first = False
        """Whether a block that is pinned no longer, and is not cached, is used again first."""
        self.keeps_all = False
        """Whether all cached blocks among those freed now are pinned: their request ends."""
        self.demoted = 0
        """How many blocks were demoted since the metrics were last sent."""

    def pin(self, blocks: Iterable[Any]) -> None:
        """Pin those of ``blocks`` that are cached: what serves no hit is not worth keeping."""
        pinned = self.pinned
        _, cached = scratch_and_rest(self.pool, [block for block in blocks if not block.is_null])
        for block in cached:
            pinned[block.block_id] = True

    def holds(self, block: Any) -> bool:
        """Whether ``block`` is pinned."""
        return bool(self.pinned[block.block_id])

    def release_pinned(self, blocks: Sequence[Any]) -> Sequence[Any]:
        """Take one holder off each of ``blocks`` that is pinned, those without another wait; returns the others.

        In one pass, which makes no call for a block that is cached: a request may end with thousands.
        """
        pinned, keeps_all = self.pinned, self.keeps_all
        # A window drops hundreds, of which a few are pinned.
        candidates = blocks if keeps_all else [block for block in blocks if pinned[block.block_id]]
        has_others = len(candidates) < len(blocks)
        tail = self.queue.fake_free_list_tail
        last, count = tail.prev_free_block, 0
        for block in candidates:
            if keeps_all:
                # The null block has no hash.
                if block._block_hash is not None or not (block.is_null or is_scratch(self.pool, block)):
                    pinned[block.block_id] = True
                elif not pinned[block.block_id]:
                    has_others = True
                    continue
            holders = block.ref_cnt = block.ref_cnt - 1
            if not holders:
                last.next_free_block = block
                block.prev_free_block = last
                last = block
                count += 1
        last.next_free_block = tail
        tail.prev_free_block = last
        self.queue.num_free_blocks += count
        return [block for block in blocks if not pinned[block.block_id]] if has_others else []

    def resume(self, blocks: Sequence[Any]) -> Sequence[Any]:
        """Take those of ``blocks`` that wait out of the queue, each with a holder; returns the others.

        vLLM's own function would make a call for each, and take it out of the other queue's count.
        """
        pinned, metrics = self.pinned, self.pool.metrics_collector
        waiting = [block for block in blocks if not block.ref_cnt and pinned[block.block_id]]
        if not waiting:
            return blocks
        twice = 0
        for block in waiting:
            if block.ref_cnt:
                # vLLM takes a block twice in one call, too.
                block.ref_cnt += 1
                twice += 1
                continue
            before, behind = block.prev_free_block, block.next_free_block
            before.next_free_block = behind
            behind.prev_free_block = before
            block.prev_free_block = block.next_free_block = None
            block.ref_cnt = 1
            if metrics:
                metrics.on_block_accessed(block)
        self.queue.num_free_blocks -= len(waiting) - twice
        if len(waiting) == len(blocks):
            return []
        resumed = {block.block_id for block in waiting}
        return [block for block in blocks if block.block_id not in resumed]

    def make_room(self, count: int, kept: Collection[int]) -> None:
        """Demote the oldest, so that ``count`` blocks are free; nothing if that is not enough.

        ``kept`` are the ids of blocks that the caller is about to hold.
        """
        lacking = count - self.pool.free_block_queue.num_free_blocks
        if lacking <= 0 or lacking > self.queue.num_free_blocks:
            return
        if not kept:
            self.demote_oldest(lacking)
            return
        oldest: list[Any] = []
        block = self.queue.fake_free_list_head.next_free_block
        while block is not self.queue.fake_free_list_tail and len(oldest) < lacking:
            if block.block_id not in kept:
                oldest.append(block)
            block = block.next_free_block
        if len(oldest) == lacking:
            for block in oldest:
                self.queue.remove(block)
            self.demote(oldest)

    def demote(self, blocks: list[Any]) -> None:
        """``blocks``, taken out of the queue, are pinned no longer: they are free. What waits is always cached."""
        self.demoted += len(blocks)
        for block in blocks:
            self.pinned[block.block_id] = False
        self.pool.free_block_queue.append_n(blocks)

    def demote_oldest(self, count: int) -> None:
        """Demote the first ``count`` blocks of the queue, which has as many; they move as they are linked."""
        pinned, head, tail = self.pinned, self.queue.fake_free_list_head, self.pool.free_block_queue.fake_free_list_tail
        first, last = head.next_free_block, head
        for _ in range(count):
            last = last.next_free_block
            pinned[last.block_id] = False
        head.next_free_block, last.next_free_block.prev_free_block = last.next_free_block, head
        first.prev_free_block, tail.prev_free_block.next_free_block = tail.prev_free_block, first
        last.next_free_block, tail.prev_free_block = tail, last
        self.demoted += count
        self.queue.num_free_blocks -= count
        self.pool.free_block_queue.num_free_blocks += count

    def unpin(self, block: Any) -> None:
        """A waiting block is pinned no longer: it is free."""
        self.pinned[block.block_id] = False
        self.queue.remove(block)
        if self.scratch_first and is_scratch(self.pool, block):
            self.pool.free_block_queue.prepend_n([block])
        else:
            self.pool.free_block_queue.append(block)

    def forget(self, block: Any) -> None:
        """The content of ``block`` is forgotten: it is pinned no longer."""
        if self.pinned[block.block_id] and block.ref_cnt == 0:
            self.unpin(block)
        self.pinned[block.block_id] = False
