"""Mutants of content identity: what a block's hash depends on.

Only the hash is broken; the extra keys that the events name stay as they are.
"""

from __future__ import annotations

from typing import Any

from kvgate_mutants.mutants.mutant import HYBRID, breaks

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
    equivalent="To reverse is one to one: two blocks' reversed tokens agree exactly if their tokens do.",
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
