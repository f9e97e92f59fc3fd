"""vLLM's free queue: blocks that can serve no request are allocated first.

A block that is free and not cached has nothing to lose. At the front of the queue it is used again before anything is
forgotten that a later request could hit. At its back, where vLLM 0.20.2 puts it, it pushes others out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from swa_retention.register import UNPATCHED, Patch
from swa_retention.scratch import is_scratch, scratch_and_rest

KVCacheBlock = Any
"""vLLM's block. Nothing of vLLM is imported before a patch is put in place."""


def prepend_n(self: Any, blocks: list[KVCacheBlock]) -> None:
    """Put ``blocks`` at the front of the queue, in their order: the first of them is allocated next."""
    if not blocks:
        return
    head = self.fake_free_list_head
    follower = head.next_free_block
    assert follower is not None, "the queue always has its two ends"
    before = head
    for block in blocks:
        before.next_free_block = block
        block.prev_free_block = before
        before = block
    before.next_free_block = follower
    follower.prev_free_block = before
    self.num_free_blocks += len(blocks)


def free_blocks(_original: Any) -> Callable[..., None]:
    """``BlockPool.free_blocks`` that can put blocks at the front, and does so with scratch where retention is on."""

    def free_blocks(self: Any, ordered_blocks: Iterable[KVCacheBlock], prepend: bool = False) -> None:
        blocks = list(ordered_blocks)
        if not blocks:
            # Most steps release nothing, and ask all the same.
            return
        tier: Any = getattr(self, "pinned_tier", None)
        if tier is not None:
            blocks = tier.release_pinned(blocks)
        for block in blocks:
            block.ref_cnt -= 1
        front, back = [], [block for block in blocks if not block.ref_cnt and not block.is_null]
        if prepend:
            front, back = back, front
        elif getattr(self, "scratch_first", False):
            front, back = scratch_and_rest(self, back)
        self.free_block_queue.append_n(back)
        if front:
            self.free_block_queue.prepend_n(front)

    return free_blocks


def evict_blocks(original: Any) -> Callable[..., None]:
    """``BlockPool.evict_blocks`` after which a block is not pinned and begins with nothing that is known.

    With scratch first, a free block that lost its content stands in front.
    """

    def evict_blocks(self: Any, block_ids: set[int]) -> None:
        scratch_first = getattr(self, "scratch_first", False)
        tier, boundaries = getattr(self, "pinned_tier", None), getattr(self, "boundaries", None)
        if not scratch_first and tier is None and boundaries is None:
            original(self, block_ids)
            return
        # vLLM's own function rejects an unknown id: asked first for those, it changes nothing.
        original(self, {block_id for block_id in block_ids if block_id >= len(self.blocks)})
        for block_id in block_ids:
            block = self.blocks[block_id]
            was_cached = not is_scratch(self, block)
            original(self, {block_id})
            if boundaries is not None:
                boundaries.forget(block_id)
            if tier is not None:
                tier.forget(block)
            if scratch_first and was_cached and block.ref_cnt == 0 and is_scratch(self, block):
                self.free_block_queue.remove(block)
                self.free_block_queue.prepend_n([block])

    return evict_blocks


_QUEUE = "vllm.v1.core.kv_cache_utils:FreeKVCacheBlockQueue"
_POOL = "vllm.v1.core.block_pool:BlockPool"
_UNTIL = "vLLM 0.23, which has it"

EVICT = Patch(
    f"{_POOL}.evict_blocks",
    "A block without content serves no hit, and a free one that is uncached is used again first.",
    "Its pin and its entries end with its content; with retention, it moves to the front of the queue.",
    "none: vLLM leaves it where it is",
    "vLLM orders its queue itself",
    "9815723d7b4ec926",
    evict_blocks,
)
PATCHES = (
    Patch(
        f"{_QUEUE}.prepend_n",
        "Blocks that hold nothing useful must be used again first.",
        "A method is added.",
        "vllm-project/vllm#43447",
        _UNTIL,
        {"0.20.2": None, "0.23.0": UNPATCHED},
        lambda _nothing: prepend_n,
    ),
    Patch(
        f"{_POOL}.free_blocks",
        "Uncached blocks that are freed push cached ones out of the queue.",
        "Uncached blocks go to the front, cached ones to the back; nothing changes where retention is off.",
        "vllm-project/vllm#43447",
        _UNTIL,
        {"0.20.2": "cdbe29fcb7de4c80", "0.23.0": UNPATCHED},
        free_blocks,
    ),
    EVICT,
)
