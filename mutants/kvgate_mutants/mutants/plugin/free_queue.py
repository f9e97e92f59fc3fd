"""Mutants of the plug-in's free queue: scratch first."""

from __future__ import annotations

from typing import Any

from kvgate_mutants.mutants.mutant import breaks
from kvgate_mutants.mutants.plugin.left_out import vllms_own

_QUEUE = "vllm.v1.core.kv_cache_utils:FreeKVCacheBlockQueue"
_POOL = "vllm.v1.core.block_pool:BlockPool"
_MASKED = "mixed-blocks+masked+scratch"


@breaks(f"{_POOL}.free_blocks", violates="KV-OP-17", models=(_MASKED,))
def scratch_is_queued_last(original: Any, *arguments: Any, **named: Any) -> Any:
    """Scratch goes to the back of the queue, as in vLLM itself."""
    return vllms_own(original)(*arguments, **named)


@breaks(f"{_POOL}.evict_blocks", violates="KV-INV-08", models=(_MASKED,), needs=("evict",))
def evicted_stays_where_it_is(original: Any, *arguments: Any, **named: Any) -> Any:
    """A free block whose content is forgotten stays where it is."""
    return vllms_own(original)(*arguments, **named)


@breaks(f"{_QUEUE}.prepend_n", violates="KV-OP-17", models=(_MASKED,))
def prepended_backwards(original: Any, self: Any, blocks: Any) -> None:
    """Of blocks that are prepended together the last is handed out first."""
    original(self, blocks[::-1])


@breaks(f"{_QUEUE}.prepend_n", violates="KV-INV-03", models=(_MASKED,))
def prepended_not_counted(original: Any, self: Any, blocks: Any) -> None:
    """Blocks at the front are not counted as free."""
    original(self, blocks)
    self.num_free_blocks -= len(blocks)


@breaks(f"{_QUEUE}.prepend_n", violates="KV-INV-02", models=(_MASKED,))
def old_front_linked_to_the_head(original: Any, self: Any, blocks: Any) -> None:
    """The block that was in front still points back to the queue's head."""
    before = self.fake_free_list_head.next_free_block
    original(self, blocks)
    before.prev_free_block = self.fake_free_list_head


@breaks(f"{_POOL}.free_blocks", violates="KV-OP-17", models=(_MASKED,))
def cached_first(original: Any, self: Any, ordered_blocks: Any) -> None:
    """What is cached goes to the front too."""
    original(self, ordered_blocks, prepend=getattr(self, "scratch_first", False))


@breaks(f"{_POOL}.free_blocks", violates="KV-OP-07", models=("full",))
def scratch_first_uninvited(original: Any, self: Any, ordered_blocks: Any) -> None:
    """Scratch goes first where nothing is switched on."""
    before, self.scratch_first = getattr(self, "scratch_first", False), True
    original(self, ordered_blocks)
    self.scratch_first = before


@breaks(f"{_POOL}.evict_blocks", violates="KV-INV-08", models=(_MASKED,), needs=("evict",))
def evicted_goes_last(original: Any, self: Any, block_ids: Any) -> None:
    """A free block whose content is forgotten goes to the back of the queue."""
    cached = [block for block in map(self.blocks.__getitem__, block_ids) if block.block_hash is not None]
    original(self, block_ids)
    for block in cached:
        if block.ref_cnt == 0 and getattr(self, "scratch_first", False):
            self.free_block_queue.remove(block)
            self.free_block_queue.append(block)
