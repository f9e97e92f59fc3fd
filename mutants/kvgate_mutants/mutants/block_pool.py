"""Mutants of the block pool: the free queue, reference counts, and the map of cached blocks."""

from __future__ import annotations

from typing import Any

from kvgate_mutants.mutants.mutant import WINDOWED, breaks

# Mutants of the free queue: its order, its links and its count.

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
    """A block removed from the middle of the free queue is not counted any more, but still linked."""
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


# Mutants of the block pool: who holds a block, and what handing it out or releasing it does. What the cached map says
# about a block's content is broken in ``cached_map``.

_POOL = "vllm.v1.core.block_pool:BlockPool"


@breaks(f"{_POOL}.free_blocks", violates="KV-INV-01")
def first_block_released_twice(original: Any, self: Any, ordered_blocks: Any) -> None:
    """Of the blocks released together the first is released twice."""
    blocks = list(ordered_blocks)
    original(self, [*blocks[:1], *blocks])


@breaks(f"{_POOL}.free_blocks", violates="KV-INV-01")
def every_third_reference_kept(original: Any, self: Any, ordered_blocks: Any) -> None:
    """Every third block keeps its reference when it is released."""
    original(self, [block for block in ordered_blocks if block.block_id % 3 != 2])


@breaks(f"{_POOL}.free_blocks", violates="KV-INV-02")
def shared_block_queued(original: Any, self: Any, ordered_blocks: Any) -> None:
    """A block that one of its holders releases is queued although others still hold it."""
    blocks = [block for block in ordered_blocks if not block.is_null]
    original(self, blocks)
    self.free_block_queue.append_n([block for block in blocks if block.ref_cnt > 0])


@breaks(f"{_POOL}.free_blocks", violates="KV-INV-06", models=WINDOWED)
def null_block_queued(original: Any, self: Any, ordered_blocks: Any) -> None:
    """The null block is queued when a table that names it is released."""
    blocks = list(ordered_blocks)
    original(self, blocks)
    if self.null_block in blocks and self.null_block.next_free_block is None:
        self.free_block_queue.append(self.null_block)


@breaks(
    f"{_POOL}.free_blocks",
    violates="KV-INV-01",
    models=WINDOWED,
    equivalent="Every reader of a reference count skips the null block first, so its count is never seen.",
)
def null_block_references_not_dropped(original: Any, self: Any, ordered_blocks: Any) -> None:
    """A table that is released does not drop its references to the null block."""
    original(self, [block for block in ordered_blocks if not block.is_null])


@breaks(f"{_POOL}.touch", violates="KV-INV-01")
def hits_not_held(_original: Any, _self: Any, _blocks: Any) -> None:
    """The blocks of a hit are used without being held."""


@breaks(f"{_POOL}.touch", violates="KV-INV-02")
def held_hit_still_queued(_original: Any, _self: Any, blocks: Any) -> None:
    """A free block that serves a hit counts its holder, but stays in the free queue."""
    for block in blocks:
        block.ref_cnt += 1


@breaks(f"{_POOL}.touch", violates="KV-INV-01")
def second_holder_not_counted(original: Any, self: Any, blocks: Any) -> None:
    """A block that is held already does not count a further holder."""
    original(self, [block for block in blocks if block.ref_cnt == 0])


@breaks(f"{_POOL}.touch", violates="KV-INV-01")
def free_hit_counted_twice(original: Any, self: Any, blocks: Any) -> None:
    """A free block that serves a hit counts two holders instead of one."""
    free = [block for block in blocks if block.ref_cnt == 0 and not block.is_null]
    original(self, blocks)
    original(self, free)


@breaks(f"{_POOL}.get_new_blocks", violates="KV-OP-10")
def content_outlives_handing_out(original: Any, self: Any, num_blocks: int) -> Any:
    """An allocated block stays cached under its old content."""
    caching, self.enable_caching = self.enable_caching, False
    try:
        return original(self, num_blocks)
    finally:
        self.enable_caching = caching


@breaks(f"{_POOL}.evict_blocks", violates="KV-OP-10", needs=("evict",))
def held_block_not_evicted(original: Any, self: Any, block_ids: Any) -> None:
    """A held block is not evicted by its id."""
    original(self, {block_id for block_id in block_ids if self.blocks[block_id].ref_cnt == 0})


@breaks(f"{_POOL}.get_num_free_blocks", violates="KV-INV-03")
def one_free_block_concealed(original: Any, self: Any) -> Any:
    """One block fewer is reported free than is in the free queue."""
    return max(0, original(self) - 1)


@breaks(f"{_POOL}._maybe_evict_cached_block", violates="KV-LEAK-02")
def evicted_content_remembered(original: Any, self: Any, block: Any) -> Any:
    """The hash of everything ever evicted is kept for good."""
    if block.block_hash is not None:
        vars(self).setdefault("evicted_hashes", []).append(block.block_hash)
    return original(self, block)


# Mutants of the cached map: registering, finding and forgetting content, and resetting it all.

_MAP = "vllm.v1.core.block_pool:BlockHashToBlockMap"


@breaks(f"{_POOL}._maybe_evict_cached_block", violates="KV-INV-05")
def evicted_block_still_listed(original: Any, self: Any, block: Any) -> Any:
    """A block that forgets its content stays listed under it."""
    block_hash = block.block_hash
    evicted = original(self, block)
    if evicted:
        self.cached_block_hash_to_block.insert(block_hash, block)
    return evicted


@breaks(f"{_POOL}._maybe_evict_cached_block", violates="KV-INV-05")
def evicted_block_keeps_its_hash(original: Any, self: Any, block: Any) -> Any:
    """A block that is not listed any more keeps the hash of its content."""
    block_hash = block.block_hash
    evicted = original(self, block)
    block._block_hash = block_hash
    return evicted


@breaks(f"{_MAP}.get_one_block", violates="KV-OP-02", needs=("duplicates",))
def last_duplicate_serves(original: Any, self: Any, key: Any) -> Any:
    """Of several blocks with the same content the last registered serves the hits."""
    blocks = self._cache.get(key)
    return list(blocks.values())[-1] if isinstance(blocks, dict) else original(self, key)


@breaks(f"{_MAP}.insert", violates="KV-INV-05", needs=("duplicates",))
def duplicate_replaces_the_first(_original: Any, self: Any, key: Any, block: Any) -> None:
    """A second block with the same content takes the place of the first in the map."""
    self._cache[key] = block


@breaks(f"{_MAP}.insert", violates="KV-INV-05", needs=("duplicates",))
def duplicate_not_listed(original: Any, self: Any, key: Any, block: Any) -> None:
    """A second block with the same content is not listed."""
    if key not in self._cache:
        original(self, key, block)


@breaks(f"{_MAP}.pop", violates="KV-INV-05", needs=("duplicates",))
def duplicates_forgotten_together(original: Any, self: Any, key: Any, block_id: int) -> Any:
    """If one of several blocks with the same content is forgotten, all of them are."""
    block = original(self, key, block_id)
    self._cache.pop(key, None)
    return block


@breaks(f"{_POOL}.reset_prefix_cache", violates="KV-INV-05", needs=("reset",))
def reset_leaves_hashes(original: Any, self: Any) -> Any:
    """A reset empties the map, but leaves every block the hash of its content."""
    hashes = [block.block_hash for block in self.blocks]
    succeeded = original(self)
    for block, block_hash in zip(self.blocks, hashes, strict=True):
        block._block_hash = block_hash
    return succeeded


@breaks(f"{_POOL}.reset_prefix_cache", violates="KV-OP-11", needs=("reset",))
def reset_forgets_nothing(original: Any, self: Any) -> Any:
    """A reset is reported to have happened, and everything is still cached."""
    cached = self.cached_block_hash_to_block
    hashes = [block.block_hash for block in self.blocks]
    succeeded = original(self)
    self.cached_block_hash_to_block = cached
    for block, block_hash in zip(self.blocks, hashes, strict=True):
        block._block_hash = block_hash
    return succeeded


@breaks(f"{_POOL}.reset_prefix_cache", violates="KV-OP-11", needs=("reset",))
def reset_despite_holders(original: Any, self: Any) -> Any:
    """The cache is reset although requests hold blocks."""
    queue = self.free_block_queue
    counted, queue.num_free_blocks = queue.num_free_blocks, self.num_gpu_blocks - 1
    try:
        return original(self)
    finally:
        queue.num_free_blocks = counted


@breaks(f"{_POOL}._maybe_evict_cached_block", violates="KV-OP-10")
def cached_for_good_without_events(original: Any, self: Any, block: Any) -> Any:
    """Without events, an allocated block stays cached."""
    return self.enable_kv_cache_events and original(self, block)
