"""Mutants of what a group keeps: blocks that are cached, leave a window or a chunk, or are freed at the end."""

from __future__ import annotations

from typing import Any

from kvgate_mutants.mutants.mutant import HYBRID, WINDOWED, breaks

# Mutants of caching: which blocks are registered, when and how often.

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
    """The first block after a hit counts as cached, and so never is."""
    original(self, request_id, *hit)
    self.num_cached_block[request_id] += 1


# Mutants of the sliding window: what is released when, and in which order. What a hit needs of a window is broken in
# ``hit_lookup``, what the admission gate thinks of it in ``allocation``.

_RELEASE = "vllm.v1.core.single_type_kv_cache_manager:SingleTypeKVCacheManager.remove_skipped_blocks"
_SKIPPED = "vllm.v1.core.single_type_kv_cache_manager:SlidingWindowManager.get_num_skipped_tokens"


@breaks(_RELEASE, violates="KV-OP-06", models=WINDOWED)
def window_released_a_block_early(original: Any, self: Any, request_id: str, total_computed_tokens: int) -> None:
    """A block is released when the window still reaches into its last tokens."""
    original(self, request_id, total_computed_tokens + self.block_size)


@breaks(_RELEASE, violates="KV-OP-06", models=WINDOWED)
def window_released_a_block_late(original: Any, self: Any, request_id: str, total_computed_tokens: int) -> None:
    """A block that no later token reads is kept until the next one is not read either."""
    original(self, request_id, max(0, total_computed_tokens - self.block_size))


@breaks(_RELEASE, violates="KV-OP-06", models=WINDOWED)
def window_never_released(_original: Any, _self: Any, _request_id: str, _total_computed_tokens: int) -> None:
    """Blocks that no later token reads are kept until the request ends."""


@breaks(_RELEASE, violates="KV-OP-06", models=WINDOWED)
def window_released_front_first(original: Any, self: Any, request_id: str, total_computed_tokens: int) -> None:
    """Of the blocks that no later token reads the earlier are released first."""
    # Step by step: each call finds one dead block more than the one before it.
    for computed in range(total_computed_tokens % self.block_size, total_computed_tokens + 1, self.block_size):
        original(self, request_id, computed)


@breaks(_SKIPPED, violates="KV-MEM-01", models=WINDOWED)
def window_one_token_short(original: Any, self: Any, num_computed_tokens: int) -> Any:
    """The window is taken to reach one token less far back than it does."""
    return original(self, num_computed_tokens + 1)


@breaks(_SKIPPED, violates="KV-OP-06", models=WINDOWED)
def window_one_token_long(original: Any, self: Any, num_computed_tokens: int) -> Any:
    """The window is taken to reach one token further back than it does."""
    return original(self, num_computed_tokens - 1)


@breaks(
    "vllm.v1.core.single_type_kv_cache_manager:SingleTypeKVCacheManager.allocate_new_computed_blocks",
    violates="KV-OP-06",
    models=WINDOWED,
    equivalent="The look-up returns the null block for everything before the window, so there is nothing to pass over.",
)
def blocks_before_the_window_of_a_hit_not_passed_over(original: Any, self: Any, *arguments: Any) -> None:
    """The blocks of a hit go into the table as they are, those before the window too."""
    self.get_num_skipped_tokens = lambda _num_computed_tokens: 0
    try:
        original(self, *arguments)
    finally:
        del self.get_num_skipped_tokens


# Mutants of chunked local attention: where an attention chunk ends, and what is freed when it does.

_SKIPPED_CHUNKED_LOCAL = "vllm.v1.core.single_type_kv_cache_manager:ChunkedLocalAttentionManager.get_num_skipped_tokens"


@breaks(_SKIPPED_CHUNKED_LOCAL, violates="KV-MEM-01", models=("local",))
def attention_chunk_ends_a_token_early(original: Any, self: Any, num_computed_tokens: int) -> Any:
    """An attention chunk is taken to be over when its last token is still to be computed."""
    return original(self, num_computed_tokens + 1)


@breaks(_SKIPPED_CHUNKED_LOCAL, violates="KV-OP-06", models=("local",))
def attention_chunk_ends_a_token_late(original: Any, self: Any, num_computed_tokens: int) -> Any:
    """An attention chunk is taken to continue when the first token of the next one is to be computed."""
    return original(self, max(0, num_computed_tokens - 1))


# Mutants of a request's end: what is released, in which order, and what remains of it.

_COORDINATOR = "vllm.v1.core.kv_cache_coordinator:KVCacheCoordinator.free"
_GROUP = "vllm.v1.core.single_type_kv_cache_manager:SingleTypeKVCacheManager.free"


@breaks(_GROUP, violates="KV-OP-07")
def table_released_front_first(original: Any, self: Any, request_id: str) -> None:
    """A request that ends releases its first block first."""
    if request_id in self.req_to_blocks:
        self.req_to_blocks[request_id].reverse()
    original(self, request_id)


@breaks(_COORDINATOR, violates="KV-OP-07", models=HYBRID)
def groups_released_in_reverse(_original: Any, self: Any, request_id: str) -> None:
    """A request that ends releases the blocks of the last group first."""
    for manager in reversed(self.single_type_managers):
        manager.free(request_id)


@breaks(_COORDINATOR, violates="KV-LEAK-01", models=HYBRID)
def first_group_alone_released(_original: Any, self: Any, request_id: str) -> None:
    """A request that ends releases the blocks of the first group alone."""
    self.single_type_managers[0].free(request_id)


@breaks("vllm.v1.core.kv_cache_manager:KVCacheManager.free", violates="KV-LEAK-01", needs=("preemption",))
def last_block_kept_after_preemption(original: Any, self: Any, request: Any) -> None:
    """A request that was preempted before never gives its last block back."""
    for table in self.coordinator.get_blocks(request.request_id):
        if request.num_preemptions > 0:
            self.block_pool.touch(table[-1:])
    original(self, request)


@breaks(_GROUP, violates="KV-LEAK-01")
def cached_count_outlives_request(original: Any, self: Any, request_id: str) -> None:
    """How many of its blocks are cached is remembered of a request that is gone."""
    count = self.num_cached_block.get(request_id)
    original(self, request_id)
    if count is not None:
        self.num_cached_block[request_id] = count


@breaks(_GROUP, violates="KV-LEAK-01")
def empty_table_outlives_request(original: Any, self: Any, request_id: str) -> None:
    """An empty table remains of a request that is gone."""
    original(self, request_id)
    self.req_to_blocks[request_id].clear()


@breaks(_GROUP, violates="KV-INV-01")
def table_outlives_request(original: Any, self: Any, request_id: str) -> None:
    """A request's table still names the blocks that were released."""
    table = self.req_to_blocks.get(request_id)
    original(self, request_id)
    if table:
        self.req_to_blocks[request_id] = table


@breaks(_GROUP, violates="KV-OP-08")
def content_ends_with_its_request(original: Any, self: Any, request_id: str) -> None:
    """The content of a request that ends is forgotten with it, unless others use it."""
    table = list(self.req_to_blocks.get(request_id, ()))
    original(self, request_id)
    self.block_pool.evict_blocks({block.block_id for block in table if block.ref_cnt == 0 and not block.is_null})


@breaks(_GROUP, violates="KV-SYS-01")
def end_without_table_raises(original: Any, self: Any, request_id: str) -> None:
    """A request that is aborted before it got a block has no table, and that is an error."""
    if request_id not in self.req_to_blocks:
        raise KeyError(request_id)
    original(self, request_id)
