"""Mutants of caching: which blocks are registered, when and how often."""

from __future__ import annotations

from typing import Any

from kvgate_mutants.mutants.mutant import breaks

_CACHE = "vllm.v1.core.single_type_kv_cache_manager:SingleTypeKVCacheManager.cache_blocks"
_REGISTER = "vllm.v1.core.block_pool:BlockPool.cache_full_blocks"


@breaks(_CACHE, violates="KV-OP-08")
def block_cached_a_token_late(original: Any, self: Any, request: Any, num_tokens: int) -> None:
    """A full block is cached only when the next block has a token."""
    original(self, request, num_tokens - 1)


@breaks(_CACHE, violates="KV-OP-08")
def part_filled_block_cached(original: Any, self: Any, request: Any, num_tokens: int) -> None:
    """The block that a prompt's chunk fills in part is cached as if the next chunk were computed."""
    filled = -(-num_tokens // self.block_size) * self.block_size
    original(self, request, min(filled, request.num_tokens))


@breaks(_CACHE, violates="KV-OP-08")
def sampled_tokens_not_cached(original: Any, self: Any, request: Any, num_tokens: int) -> None:
    """Only blocks of prompt tokens are cached."""
    original(self, request, min(num_tokens, request.num_prompt_tokens))


@breaks("vllm.v1.core.kv_cache_coordinator:KVCacheCoordinator.cache_blocks", violates="KV-OP-08")
def last_group_not_cached(_original: Any, self: Any, *arguments: Any) -> None:
    """The blocks of the last group are not cached."""
    for manager in self.single_type_managers[:-1]:
        manager.cache_blocks(*arguments)


@breaks("vllm.v1.core.kv_cache_manager:KVCacheManager.allocate_slots", violates="KV-OP-08", needs=("drafts",))
def drafts_cached(original: Any, self: Any, request: Any, *arguments: Any, **named: Any) -> Any:
    """A block is cached when drafts fill it, before they are verified."""
    verified, hashed = request.num_tokens, len(request.block_hashes)
    request._all_token_ids.extend(request.spec_token_ids)
    request.update_block_hashes()
    try:
        return original(self, request, *arguments, **named)
    finally:
        del request._all_token_ids[verified:]
        del request.block_hashes[hashed:]


@breaks(_REGISTER, violates="KV-OP-08")
def last_cached_block_cached_again(original: Any, self: Any, **asked: Any) -> None:
    """The last block that was cached before is cached once more along with the new ones."""
    last = asked["num_cached_blocks"] - 1
    if 0 <= last < asked["num_full_blocks"] - 1 and not asked["blocks"][last].is_null:
        asked["blocks"][last].reset_hash()
        asked["num_cached_blocks"] = last
    original(self, **asked)


@breaks(
    "vllm.v1.core.single_type_kv_cache_manager:SingleTypeKVCacheManager.allocate_new_computed_blocks",
    violates="KV-OP-08",
)
def one_block_too_many_taken_for_cached(original: Any, self: Any, request_id: str, *hit: Any) -> None:
    """The first block behind a hit counts as cached, and so never is."""
    original(self, request_id, *hit)
    self.num_cached_block[request_id] += 1
