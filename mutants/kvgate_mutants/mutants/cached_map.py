"""Mutants of the cached map: registering, finding and forgetting content, and resetting it all."""

from __future__ import annotations

from typing import Any

from kvgate_mutants.mutants.mutant import breaks

_MAP = "vllm.v1.core.block_pool:BlockHashToBlockMap"
_POOL = "vllm.v1.core.block_pool:BlockPool"


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
    """A block that is no longer listed keeps the hash of its content."""
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
    """Where no events are told, a block that is handed out stays cached."""
    return self.enable_kv_cache_events and original(self, block)
