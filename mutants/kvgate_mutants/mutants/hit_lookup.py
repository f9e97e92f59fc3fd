"""Mutants of hits: what a block hash covers, and which cached blocks serve a request."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kvgate_mutants.mutants.mutant import FULL, HYBRID, WINDOWED, breaks

# Mutants of content identity: what a block's hash depends on. Only the hash is broken; the extra keys that the events
# name stay as they are.

_UTILITIES = "vllm.v1.core.kv_cache_utils"
_EXTRA_KEYS = f"{_UTILITIES}:generate_block_hash_extra_keys"
_HASH = f"{_UTILITIES}:hash_block_tokens"
_COARSE_HASH = f"{_UTILITIES}:BlockHashListWithBlockSize._get_value_at"


@breaks(_EXTRA_KEYS, violates="KV-OP-09", needs=("salt",))
def salt_ignored(original: Any, request: Any, *span: Any) -> Any:
    """Two requests with different cache salts share content."""
    salt, request.cache_salt = request.cache_salt, None
    try:
        return original(request, *span)
    finally:
        request.cache_salt = salt


@breaks(_EXTRA_KEYS, violates="KV-OP-09", needs=("adapter",))
def adapter_ignored(original: Any, request: Any, *span: Any) -> Any:
    """Two requests with different LoRA adapters share content."""
    adapter, request.lora_request = request.lora_request, None
    try:
        return original(request, *span)
    finally:
        request.lora_request = adapter


@breaks(_EXTRA_KEYS, violates="KV-OP-09", needs=("media",))
def media_identifier_ignored(original: Any, *asked: Any) -> Any:
    """Two multimodal items at the same place share content."""
    keys, following = original(*asked)
    return keys and tuple(("item", key[1]) if isinstance(key, tuple) else key for key in keys), following


@breaks(_EXTRA_KEYS, violates="KV-OP-09", needs=("media",))
def media_offset_ignored(original: Any, *asked: Any) -> Any:
    """The same multimodal item at different places shares content."""
    keys, following = original(*asked)
    return keys and tuple(key[0] if isinstance(key, tuple) else key for key in keys), following


@breaks(_EXTRA_KEYS, violates="KV-OP-09", needs=("media",))
def second_media_item_ignored(original: Any, *asked: Any) -> Any:
    """Of several multimodal items in one block only the first counts."""
    keys, following = original(*asked)
    items = [key for key in keys or () if isinstance(key, tuple)]
    return keys and tuple(key for key in keys if key not in items[1:]), following


@breaks(_HASH, violates="KV-OP-09")
def parent_ignored(original: Any, hash_function: Any, _parent: Any, *rest: Any) -> Any:
    """A block's content does not depend on what comes before the block."""
    return original(hash_function, None, *rest)


@breaks(_HASH, violates="KV-OP-09", needs=("near-twins",))
def last_token_ignored(original: Any, hash_function: Any, parent: Any, tokens: Any, *rest: Any) -> Any:
    """A block's content does not depend on its last token."""
    return original(hash_function, parent, tokens[:-1], *rest)


@breaks(
    _HASH,
    violates="KV-OP-09",
    equivalent="To reverse is one to one: two blocks' reversed tokens agree if and only if their tokens do.",
)
def tokens_hashed_in_reverse(original: Any, hash_function: Any, parent: Any, tokens: Any, *rest: Any) -> Any:
    """A block's hash takes its tokens from the last to the first."""
    return original(hash_function, parent, tokens[::-1], *rest)


@breaks("vllm.v1.core.block_pool:make_block_hash_with_group_id", violates="KV-OP-09", models=HYBRID)
def group_ignored(original: Any, block_hash: Any, _group_id: int) -> Any:
    """The same tokens in different groups share content."""
    return original(block_hash, 0)


@breaks(_COARSE_HASH, violates="KV-OP-09", models=("mixed-blocks",))
def first_grain_names_the_block(_original: Any, self: Any, idx: int) -> Any:
    """A block of several grains is identified by the first of them."""
    return self.block_hashes[idx * self.scale_factor]


@breaks(
    _COARSE_HASH,
    violates="KV-OP-09",
    models=("mixed-blocks",),
    equivalent="A grain's hash contains the hash of the grain before it, so the last one identifies the whole block; "
    "and all blocks of a group have as many grains.",
)
def last_grain_names_the_block(_original: Any, self: Any, idx: int) -> Any:
    """A block of several grains is identified by the last of them."""
    return self.block_hashes[(idx + 1) * self.scale_factor - 1]


# Mutants of the hit look-up: how long a hit may be, and what each group must have for it.

_COORDINATOR = "vllm.v1.core.kv_cache_coordinator"
_LONGEST_HIT = (
    f"{_COORDINATOR}:UnitaryKVCacheCoordinator.find_longest_cache_hit",
    f"{_COORDINATOR}:HybridKVCacheCoordinator.find_longest_cache_hit",
)
_FULL_HIT = "vllm.v1.core.single_type_kv_cache_manager:FullAttentionManager.find_longest_cache_hit"
_WINDOW_HIT = "vllm.v1.core.single_type_kv_cache_manager:SlidingWindowManager.find_longest_cache_hit"


@breaks(*_LONGEST_HIT, violates="KV-OP-01")
def hit_covers_the_last_token(original: Any, self: Any, block_hashes: Any, max_cache_hit_length: int) -> Any:
    """A hit may cover all tokens of a request, so that none is left to compute."""
    return original(self, block_hashes, max_cache_hit_length + 1)


@breaks(*_LONGEST_HIT, violates="KV-OP-01")
def hit_leaves_two_tokens(original: Any, self: Any, block_hashes: Any, max_cache_hit_length: int) -> Any:
    """A hit leaves at least two tokens to compute instead of one."""
    return original(self, block_hashes, max(0, max_cache_hit_length - 1))


@breaks(_FULL_HIT, _WINDOW_HIT, violates="KV-OP-01", models=("mixed-blocks",))
def hit_not_aligned(original: Any, cls: Any, **asked: Any) -> Any:
    """A group's hit need not end where the blocks of all groups end."""
    return original(cls, **asked | {"alignment_tokens": asked["kv_cache_spec"].block_size})


@breaks(_FULL_HIT, violates="KV-OP-01", models=FULL)
def hit_goes_on_behind_a_gap(original: Any, cls: Any, **asked: Any) -> Any:
    """A full-attention hit passes over blocks that are not cached."""
    pool, groups = asked["block_pool"], asked["kv_cache_group_ids"]
    asked["block_hashes"] = [key for key in asked["block_hashes"] if pool.get_cached_block(key, groups)]
    return original(cls, **asked)


@breaks(_WINDOW_HIT, violates="KV-OP-01", models=WINDOWED)
def window_hit_one_block_short(original: Any, cls: Any, **asked: Any) -> Any:
    """A hit in a sliding-window group needs one block fewer than the window reaches."""
    return original(cls, **_window_changed(asked, -1))


@breaks(_WINDOW_HIT, violates="KV-OP-01", models=WINDOWED)
def window_hit_one_block_long(original: Any, cls: Any, **asked: Any) -> Any:
    """A hit in a sliding-window group needs one block more than the window reaches."""
    return original(cls, **_window_changed(asked, 1))


@breaks(_WINDOW_HIT, violates="KV-OP-01", models=WINDOWED, needs=("eagle",))
def window_look_ahead_not_matched(original: Any, cls: Any, **asked: Any) -> Any:
    """A hit in a sliding-window group with a draft layer does not need the look-ahead block besides the window."""
    return original(cls, **(_window_changed(asked, -1) if asked["use_eagle"] else asked))


def _window_changed(asked: dict[str, Any], blocks: int) -> dict[str, Any]:
    """The same question about a window that is longer by ``blocks`` blocks."""
    spec = asked["kv_cache_spec"]
    changed = replace(spec, sliding_window=spec.sliding_window + blocks * spec.block_size)
    return asked | {"kv_cache_spec": changed}


@breaks(_WINDOW_HIT, violates="KV-OP-01", models=WINDOWED)
def window_not_asked(_original: Any, _cls: Any, **asked: Any) -> Any:
    """A sliding-window group agrees to any hit, whether it has the window or not."""
    blocks = asked["max_length"] // asked["alignment_tokens"] * asked["alignment_tokens"]
    blocks //= asked["kv_cache_spec"].block_size
    return tuple([asked["block_pool"].null_block] * blocks for _ in asked["kv_cache_group_ids"])


@breaks(
    "vllm.v1.core.block_pool:BlockPool.get_cached_block",
    violates="KV-OP-01",
    models=("gemma-hybrid",),
)
def one_group_answers_for_all(original: Any, self: Any, block_hash: Any, kv_cache_group_ids: Any) -> Any:
    """Of the groups of one attention kind the first answers for all, and its blocks serve them all."""
    found = original(self, block_hash, kv_cache_group_ids[:1])
    return found and found * len(kv_cache_group_ids)


@breaks(f"{_COORDINATOR}:KVCacheCoordinator.__init__", violates="KV-OP-01", needs=("eagle",))
def look_ahead_not_dropped(original: Any, self: Any, *arguments: Any, **named: Any) -> None:
    """A hit is served to its last matched block although a draft layer needs the states after it."""
    original(self, *arguments, **named)
    self.eagle_group_ids = set()


@breaks(_FULL_HIT, _WINDOW_HIT, violates="KV-OP-01", needs=("eagle",))
def look_ahead_dropped_twice(original: Any, cls: Any, **asked: Any) -> Any:
    """A hit loses its last aligned stretch once more after the look-ahead block was dropped."""
    found = original(cls, **asked)
    if asked["use_eagle"]:
        for blocks in found:
            del blocks[-(asked["alignment_tokens"] // asked["kv_cache_spec"].block_size) :]
    return found


@breaks("vllm.v1.core.kv_cache_manager:KVCacheManager.get_computed_blocks", violates="KV-OP-01", needs=("no-read",))
def hit_for_those_who_may_not_read(original: Any, self: Any, request: Any) -> Any:
    """A request that may not be served from the cache is served from it."""
    forbidden, request.skip_reading_prefix_cache = request.skip_reading_prefix_cache, False
    try:
        return original(self, request)
    finally:
        request.skip_reading_prefix_cache = forbidden
