"""vLLM-Ascend's block manager: blocks counted in tokens, and keywords of newer coordinators.

Each of these is vLLM-Ascend's own function until the block manager counts tokens. From then on it is vLLM's own, with
whole slots: nothing is written, and no block is needed, for a slot whose last token is yet to come.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from swa_retention.compressed.units import whole_slots
from swa_retention.newer_keywords import saying, set_aside
from swa_retention.patches.newer_keywords import coordinator
from swa_retention.register import Patch


def _counts_tokens(manager: Any) -> bool:
    return hasattr(manager, "slot_tokens")


def get_num_blocks_to_allocate(original: Any) -> Callable[..., int]:
    """``CompressAttentionManager.get_num_blocks_to_allocate`` in tokens."""
    from vllm.v1.core.single_type_kv_cache_manager import FullAttentionManager

    def get_num_blocks_to_allocate(
        self: Any,
        request_id: str,
        num_tokens: int,
        new_computed_blocks: Sequence[Any],
        total_computed_tokens: int,
        num_tokens_main_model: int,
        apply_admission_cap: bool = False,
    ) -> int:
        more = (new_computed_blocks, total_computed_tokens, num_tokens_main_model, apply_admission_cap)
        if not _counts_tokens(self):
            return int(original(self, request_id, num_tokens, *more))
        return FullAttentionManager.get_num_blocks_to_allocate(self, request_id, whole_slots(self, num_tokens), *more)

    return get_num_blocks_to_allocate


def allocate_new_computed_blocks(original: Any) -> Callable[..., None]:
    """``CompressAttentionManager.allocate_new_computed_blocks`` in tokens."""
    from vllm.v1.core.single_type_kv_cache_manager import FullAttentionManager

    def allocate_new_computed_blocks(
        self: Any,
        request_id: str,
        new_computed_blocks: Sequence[Any],
        num_local_computed_tokens: int,
        num_external_computed_tokens: int,
    ) -> None:
        external = num_external_computed_tokens
        if not _counts_tokens(self):
            original(self, request_id, new_computed_blocks, num_local_computed_tokens, external)
            return
        # The local ones are a hit, and so whole blocks.
        external = whole_slots(self, num_local_computed_tokens + external) - num_local_computed_tokens
        FullAttentionManager.allocate_new_computed_blocks(
            self, request_id, new_computed_blocks, num_local_computed_tokens, external
        )

    return allocate_new_computed_blocks


def allocate_new_blocks(original: Any) -> Callable[..., list[Any]]:
    """``CompressAttentionManager.allocate_new_blocks`` in tokens."""
    from vllm.v1.core.single_type_kv_cache_manager import FullAttentionManager

    def allocate_new_blocks(self: Any, request_id: str, num_tokens: int, num_tokens_main_model: int) -> list[Any]:
        if not _counts_tokens(self):
            return list(original(self, request_id, num_tokens, num_tokens_main_model))
        tokens = whole_slots(self, num_tokens)
        return FullAttentionManager.allocate_new_blocks(self, request_id, tokens, num_tokens_main_model)

    return allocate_new_blocks


def cache_blocks(original: Any) -> Callable[..., None]:
    """``CompressAttentionManager.cache_blocks`` under keys that stand for the whole prefix."""
    from vllm.v1.core.single_type_kv_cache_manager import FullAttentionManager

    def cache_blocks(self: Any, request: Any, num_tokens: int, **_newer: Any) -> None:
        if not _counts_tokens(self):
            original(self, request, num_tokens)
            return
        FullAttentionManager.cache_blocks(self, request, num_tokens)

    return cache_blocks


def find_longest_cache_hit(original: Any) -> Callable[..., Any]:
    """``AscendHybridKVCacheCoordinator.find_longest_cache_hit`` in tokens: vLLM's own, with every table cut."""
    from vllm.v1.core.kv_cache_coordinator import HybridKVCacheCoordinator

    def find_longest_cache_hit(self: Any, block_hashes: Any, max_cache_hit_length: int) -> Any:
        if not getattr(self, "looks_up_tokens", False):
            return original(self, block_hashes, max_cache_hit_length)
        return HybridKVCacheCoordinator.find_longest_cache_hit(self, block_hashes, max_cache_hit_length)

    return find_longest_cache_hit


def get_kv_cache_coordinator(original: Any) -> Callable[..., Any]:
    """vLLM-Ascend's ``get_kv_cache_coordinator`` that takes what a newer scheduler says."""

    @wraps(original)
    def get_kv_cache_coordinator(*arguments: Any, **keywords: Any) -> Any:
        with saying(set_aside(original, keywords)):
            return original(*arguments, **keywords)

    return get_kv_cache_coordinator


_ASCEND = "vllm_ascend"
_MANAGER = "vllm_ascend.core.single_type_kv_cache_manager:CompressAttentionManager"
_MODULE = "vllm_ascend.patch.platform.patch_kv_cache_coordinator"
_KEYS = (
    "A block is cached under the hash of fewer tokens than it holds, and another prompt's block is a hit.",
    "Blocks are counted in tokens, by vLLM's own code; memory is still counted in whole slots.",
    "vllm-project/vllm-ascend#10193",
    "vLLM-Ascend counts blocks in tokens",
)


def _manager(name: str, written_for: str, replacement: Callable[[Any], Any]) -> Patch:
    return Patch(f"{_MANAGER}.{name}", *_KEYS, written_for, replacement, only_where=_ASCEND)


PATCHES = (
    _manager("get_num_blocks_to_allocate", "f59e6c8ae8418233", get_num_blocks_to_allocate),
    _manager("allocate_new_computed_blocks", "c3f9c24c146e8a64", allocate_new_computed_blocks),
    _manager("allocate_new_blocks", "6d0d0171222ab564", allocate_new_blocks),
    _manager("cache_blocks", "3f28b77fbc4a2f83", cache_blocks),
    Patch(
        f"{_MODULE}:AscendHybridKVCacheCoordinator.find_longest_cache_hit",
        "Slots are taken for tokens, and of two groups of full attention one is not cut to the hit.",
        "It is vLLM's own look-up, over specs in tokens, with every table cut.",
        "vllm-project/vllm-ascend#14810, #10193",
        "vLLM-Ascend looks up in tokens, and cuts all",
        "9fb2d27bf7cad0f9",
        find_longest_cache_hit,
        only_where=_ASCEND,
    ),
    Patch(
        f"{_MODULE}:AscendHybridKVCacheCoordinator.__init__",
        "A scheduler that was written for a newer vLLM says more than this constructor takes.",
        "Newer keywords are set aside, for the code that needs them.",
        "vllm-project/vllm-ascend#10193",
        "vLLM-Ascend takes it",
        "902983d36b7d1143",
        coordinator,
        only_where=_ASCEND,
        only_wraps=True,
    ),
    Patch(
        f"{_MODULE}:get_kv_cache_coordinator",
        "A scheduler that was written for a newer vLLM says more than this function takes.",
        "Newer keywords are set aside, for the code that needs them.",
        "vllm-project/vllm-ascend#10193",
        "vLLM-Ascend takes it",
        "dac63785f2a9842d",
        get_kv_cache_coordinator,
        only_where=_ASCEND,
    ),
)
