"""Mutants of the free queue: its order, its links and its count."""

from __future__ import annotations

from typing import Any

from kvgate_mutants.mutants.mutant import breaks

_QUEUE = "vllm.v1.core.kv_cache_utils:FreeKVCacheBlockQueue"


@breaks(f"{_QUEUE}.append_n", violates="KV-OP-07")
def released_to_the_front(original: Any, self: Any, blocks: Any) -> None:
    """Released blocks go to the front of the free queue."""
    queued = self.get_all_free_blocks()
    for block in queued:
        self.remove(block)
    original(self, blocks)
    original(self, queued)


@breaks(f"{_QUEUE}.append_n", violates="KV-OP-07")
def released_in_reverse(original: Any, self: Any, blocks: Any) -> None:
    """Blocks that are released together are queued in reverse order."""
    original(self, blocks[::-1])


@breaks(f"{_QUEUE}.append_n", violates="KV-INV-02")
def last_of_several_released_lost(original: Any, self: Any, blocks: Any) -> None:
    """Of several blocks that are released together the last is not queued."""
    original(self, blocks[:-1] if len(blocks) > 1 else blocks)


@breaks(f"{_QUEUE}.append_n", violates="KV-INV-03")
def blocks_released_together_counted_once(original: Any, self: Any, blocks: Any) -> None:
    """Blocks that are released together count as one free block."""
    original(self, blocks)
    self.num_free_blocks -= max(0, len(blocks) - 1)


@breaks(f"{_QUEUE}.popleft_n", violates="KV-OP-05")
def taken_from_the_back(_original: Any, self: Any, n: int) -> Any:
    """New blocks are taken from the back of the free queue."""
    blocks = self.get_all_free_blocks()[::-1][:n]
    for block in blocks:
        self.remove(block)
    return blocks


@breaks(f"{_QUEUE}.popleft_n", violates="KV-INV-03")
def one_taken_block_still_counted(original: Any, self: Any, n: int) -> Any:
    """Of the blocks taken together one is still counted as free."""
    blocks = original(self, n)
    self.num_free_blocks += bool(blocks)
    return blocks


@breaks(f"{_QUEUE}.popleft_n", violates="KV-INV-02")
def new_front_linked_to_a_taken_block(original: Any, self: Any, n: int) -> Any:
    """The new front of the free queue still points back to the last block taken."""
    blocks = original(self, n)
    if blocks:
        self.fake_free_list_head.next_free_block.prev_free_block = blocks[-1]
    return blocks


@breaks(f"{_QUEUE}.remove", violates="KV-INV-03")
def removed_block_still_counted(original: Any, self: Any, block: Any) -> None:
    """A block removed from the middle of the free queue is still counted as free."""
    original(self, block)
    self.num_free_blocks += 1


@breaks(f"{_QUEUE}.remove", violates="KV-INV-02")
def removed_block_still_linked(_original: Any, self: Any, _block: Any) -> None:
    """A block removed from the middle of the free queue is no longer counted, but still linked."""
    self.num_free_blocks -= 1


@breaks(
    f"{_QUEUE}.popleft_n",
    violates="KV-INV-02",
    equivalent="A block's links are read only while it is in the queue, and being queued sets both of them.",
)
def taken_blocks_keep_links(original: Any, self: Any, n: int) -> Any:
    """Blocks that are taken keep links to one another."""
    blocks = original(self, n)
    for block in blocks:
        block.prev_free_block = block.next_free_block = blocks[0]
    return blocks


@breaks(
    f"{_QUEUE}.append",
    violates="KV-INV-03",
    equivalent="Blocks are released in batches, through append_n alone; nothing in the block manager calls append.",
)
def appended_block_not_counted(original: Any, self: Any, block: Any) -> None:
    """A single block appended to the free queue is not counted as free."""
    original(self, block)
    self.num_free_blocks -= 1
