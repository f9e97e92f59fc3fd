"""Mutants of masked caching: what is passed over, looked at again, and told."""

from __future__ import annotations

from typing import Any

from kvgate_mutants.mutants.mutant import breaks
from kvgate_mutants.mutants.plugin import checks
from kvgate_mutants.mutants.plugin.left_out import vllms_own

_CACHE = "vllm.v1.core.single_type_kv_cache_manager:SingleTypeKVCacheManager.cache_blocks"
_REGISTER = "vllm.v1.core.block_pool:BlockPool.cache_full_blocks"
_MASKED = "mixed-blocks+mtp+masked+scratch"
_STATES = "compressed+masked+scratch"
"""Windows of two blocks of four tokens: what drafts fill leaves them at once."""
_SPARSE = "mixed-blocks+retention=4+scratch"
"""An interval of twice the window: half of its blocks serve no hit."""


@breaks(_CACHE, violates="KV-OP-15", models=(_SPARSE,))
def everything_is_cached(original: Any, *arguments: Any, **named: Any) -> Any:
    """Every full block is cached, as by vLLM itself."""
    return vllms_own(original)(*arguments, **named)


@breaks(_REGISTER, shown_by=checks.a_mask_leaves_blocks_out)
def no_mask(original: Any, *arguments: Any, **named: Any) -> Any:
    """Blocks cannot be left out where they are cached."""
    named.pop("block_mask", None)
    return vllms_own(original)(*arguments, **named)


@breaks(_CACHE, violates="KV-OP-15", models=(_SPARSE,))
def cached_a_token_late(original: Any, self: Any, request: Any, num_tokens: int) -> None:
    """A boundary is taken for reached when the token behind it is."""
    original(self, request, num_tokens - 1 if hasattr(self, "reach") else num_tokens)


@breaks(_CACHE, violates="KV-OP-15", models=(_MASKED,))
def what_is_not_due_is_forgotten(original: Any, self: Any, request: Any, num_tokens: int) -> None:
    """A block that is full before it is due is never looked at again."""
    original(self, request, num_tokens)
    if hasattr(self, "reach"):
        self.num_cached_block[request.request_id] = num_tokens // self.block_size


@breaks(_CACHE, violates="KV-OP-15", models=("full", _SPARSE))
def nothing_is_cached(_original: Any, self: Any, request: Any, num_tokens: int) -> None:
    """Nothing is cached, whether retention is on or not."""
    self.num_cached_block[request.request_id] = num_tokens // self.block_size


@breaks("swa_retention.patches.caching:_runs", shown_by=checks.a_mask_leaves_blocks_out)
def one_run_for_all(_original: Any, _blocks: Any, positions: Any) -> Any:
    """All blocks between the first and the last that are wanted are cached, and told of."""
    return [(positions[0], positions[-1] + 1)]


@breaks("swa_retention.patches.caching:_runs", violates="KV-OP-12", models=(_STATES,), needs=("drafts", "events"))
def released_blocks_told(_original: Any, _blocks: Any, positions: Any) -> Any:
    """An event names the tokens of blocks that were released before they were due."""
    return [(positions[0], positions[-1] + 1)]


@breaks(_CACHE, violates="KV-OP-12", models=(_SPARSE,), needs=("events",))
def cached_and_not_told(original: Any, self: Any, *arguments: Any) -> None:
    """No event tells of a block that is cached."""
    pool = self.block_pool
    told, pool.enable_kv_cache_events = pool.enable_kv_cache_events, False
    original(self, *arguments)
    pool.enable_kv_cache_events = told


@breaks("swa_retention.patches.caching:Beginning.__init__", violates="KV-SYS-01", models=(_SPARSE,))
def one_hash_too_few(original: Any, self: Any, request: Any, hashes: int) -> None:
    """The last hash of a run is not known."""
    original(self, request, hashes - 1)
