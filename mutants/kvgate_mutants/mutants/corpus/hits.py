"""Reported defects of the hit look-up, put back into vLLM 0.20.2."""

from __future__ import annotations

from typing import Any

from kvgate_mutants.mutants.mutant import breaks

_MANAGERS = "vllm.v1.core.single_type_kv_cache_manager"
_LOOKUP = "vllm.v1.core.kv_cache_coordinator:HybridKVCacheCoordinator.find_longest_cache_hit"


@breaks(_LOOKUP, violates="KV-OP-01", needs=("eagle",))
def look_ahead_dropped_at_every_visit(_original: Any, self: Any, hashes: Any, tokens_max: int) -> Any:
    """The groups shorten the hit in turn until all agree, and each drops its look-ahead block whenever it is asked."""
    tokens, before = tokens_max, -1
    found: dict[int, list[Any]] = {}
    while tokens != before:
        before = tokens
        for place, asked in enumerate(self.attention_groups):
            alone = _hit_of(self, asked, hashes, tokens, drops=place in self.eagle_attn_group_indices)
            tokens = len(alone[0]) * asked[0].block_size
            found |= dict(zip(asked[1], alone, strict=True))
    sizes = [group.kv_cache_spec.block_size for group in self.kv_cache_config.kv_cache_groups]
    return tuple(found[index][: tokens // size] for index, size in enumerate(sizes)), tokens


@breaks(_LOOKUP, violates="KV-OP-01")
def longest_hit_of_any_group(_original: Any, self: Any, hashes: Any, tokens_max: int) -> Any:
    """Each group is looked up for itself, and the longest of their hits is taken for all."""
    found: dict[int, list[Any]] = {}
    tokens = 0
    for asked in self.attention_groups:
        alone = _hit_of(self, asked, hashes, tokens_max, drops=False)
        tokens = max(tokens, len(alone[0]) * asked[0].block_size)
        found |= dict(zip(asked[1], alone, strict=True))
    return tuple(found[index] for index in sorted(found)), tokens


def _hit_of(coordinator: Any, asked: Any, hashes: Any, tokens_max: int, drops: bool) -> Any:
    """The longest hit of the groups of one kind, where all blocks have the size of a hash."""
    spec, indices, manager = asked
    return manager.find_longest_cache_hit(
        block_hashes=hashes,
        max_length=tokens_max,
        kv_cache_group_ids=indices,
        block_pool=coordinator.block_pool,
        kv_cache_spec=spec,
        use_eagle=drops,
        alignment_tokens=coordinator.lcm_block_size,
    )


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
