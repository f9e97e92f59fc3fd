"""Mutants of the hit look-up: how long a hit may be, and what each group must have for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kvgate_mutants.mutants.mutant import FULL, WINDOWED, breaks

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
    """A hit is served to its last matched block although a draft layer needs the states behind it."""
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
