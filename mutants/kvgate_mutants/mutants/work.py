"""Mutants of the work that a decode step does: everything stays right, and costs more the longer the context is."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from kvgate_mutants.mutants.mutant import breaks

_GONE_OVER: WeakKeyDictionary[Any, set[str]] = WeakKeyDictionary()
"""Per manager, the requests whose null blocks were gone over since they were admitted."""
_POOL = "vllm.v1.core.block_pool:BlockPool"
_MANAGER = "vllm.v1.core.single_type_kv_cache_manager:SingleTypeKVCacheManager"


@breaks("vllm.v1.request:Request.update_block_hashes", violates="KV-WORK-02")
def all_blocks_hashed_again(original: Any, self: Any) -> None:
    """Whenever a request gets a token, all of its blocks are hashed again."""
    self.block_hashes.clear()
    original(self)


@breaks(f"{_MANAGER}.cache_blocks", violates="KV-WORK-01")
def all_blocks_offered_again(original: Any, self: Any, request: Any, num_tokens: int) -> None:
    """In every step a request offers all of its full blocks to the cache, those that are cached already among them."""
    blocks = self.req_to_blocks[request.request_id]
    for position in range(self.num_cached_block.get(request.request_id, 0)):
        block = list.__getitem__(blocks, position)
        if block.block_hash is not None:
            block.reset_hash()
            events, self.block_pool.enable_kv_cache_events = self.block_pool.enable_kv_cache_events, False
            self.block_pool.cache_full_blocks(
                request=request,
                blocks=blocks,
                num_cached_blocks=position,
                num_full_blocks=position + 1,
                block_size=self.block_size,
                kv_cache_group_id=self.kv_cache_group_id,
            )
            self.block_pool.enable_kv_cache_events = events
    original(self, request, num_tokens)


@breaks(f"{_MANAGER}.get_num_blocks_to_allocate", violates="KV-WORK-02")
def held_blocks_counted_one_by_one(original: Any, self: Any, request_id: str, *arguments: Any, **named: Any) -> int:
    """Before every step the blocks that a request holds are counted, entry by entry."""
    held = sum(not block.is_null for block in self.req_to_blocks.get(request_id, ()))
    needed: int = original(self, request_id, *arguments, **named)
    return max(needed, -held)


@breaks(f"{_MANAGER}.get_num_blocks_to_allocate", violates="KV-WORK-02")
def null_blocks_gone_over_after_a_hit(original: Any, self: Any, request_id: str, *arguments: Any, **named: Any) -> int:
    """The first step after a request was admitted goes over the null blocks at the beginning of its table."""
    gone_over = _GONE_OVER.setdefault(self, set())
    blocks = self.req_to_blocks.get(request_id, ())
    if not blocks:
        gone_over.discard(request_id)
    elif request_id not in gone_over:
        gone_over.add(request_id)
        next((place for place, block in enumerate(blocks) if not block.is_null), 0)
    needed: int = original(self, request_id, *arguments, **named)
    return needed


@breaks(f"{_POOL}.get_num_free_blocks", violates="KV-WORK-02")
def free_blocks_counted_one_by_one(_original: Any, self: Any) -> int:
    """How many blocks are free is found out by going through the free queue."""
    return len(self.free_block_queue.get_all_free_blocks())


@breaks(f"{_POOL}._maybe_evict_cached_block", violates="KV-WORK-02")
def forgotten_by_searching_the_map(original: Any, self: Any, block: Any) -> Any:
    """To find out whether an allocated block is still cached, all cached blocks are searched."""
    listed = [key for key in self.cached_block_hash_to_block._cache if key == block.block_hash]
    return original(self, block) if listed or block.block_hash is None else False
