"""Reported defects of the hit look-up, put back into vLLM 0.20.2."""

from __future__ import annotations

from typing import Any

from kvgate.mutants.mutant import breaks

_MANAGERS = "vllm.v1.core.single_type_kv_cache_manager"
_LOOKUP = "vllm.v1.core.kv_cache_coordinator:HybridKVCacheCoordinator.find_longest_cache_hit"


@breaks(
    f"{_MANAGERS}:FullAttentionManager.find_longest_cache_hit",
    f"{_MANAGERS}:SlidingWindowManager.find_longest_cache_hit",
    violates="KV-OP-01",
    needs=("eagle",),
)
def look_ahead_dropped_at_every_visit(original: Any, cls: Any, **asked: Any) -> Any:
    """A group with a draft layer drops its look-ahead block whenever it is asked, and not once a length."""
    return original(cls, **asked | {"use_eagle": True})


@breaks(_LOOKUP, violates="KV-OP-01")
def longest_hit_of_any_group(original: Any, self: Any, block_hashes: Any, max_cache_hit_length: int) -> Any:
    """Each group is looked up for itself, and the longest of their hits is taken for all."""
    hits, _ = original(self, block_hashes, max_cache_hit_length)
    found = list(hits)
    length = 0
    for spec, indices, manager in self.attention_groups:
        alone = manager.find_longest_cache_hit(
            block_hashes=block_hashes,
            max_length=max_cache_hit_length,
            kv_cache_group_ids=indices,
            block_pool=self.block_pool,
            kv_cache_spec=spec,
            use_eagle=False,
            alignment_tokens=self.lcm_block_size,
        )
        length = max(length, len(alone[0]) * spec.block_size)
        for index, blocks in zip(indices, alone, strict=True):
            found[index] = blocks
    return tuple(found), length


@breaks("vllm.v1.kv_cache_interface:KVCacheGroupSpec.__init__", violates="KV-OP-01", needs=("eagle",))
def no_group_is_flagged(original: Any, self: Any, *arguments: Any, **named: Any) -> None:
    """No group is flagged as the draft layer's, so that all of them are taken for it."""
    original(self, *arguments, **named)
    self.is_eagle_group = False


@breaks(f"{_MANAGERS}:MambaManager.cache_blocks", violates="KV-OP-20")
def states_not_fenced(original: Any, self: Any, *arguments: Any) -> None:
    """A state may be hit as soon as the chunk that will write it is scheduled."""
    original(self, *arguments)
    self.cached_blocks_this_step.clear()
