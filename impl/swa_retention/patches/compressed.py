"""vLLM's look-up and tensors, for models with several groups of compressed attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from swa_retention.compressed.cut import cut
from swa_retention.compressed.pages import Shared, block_bytes, layout
from swa_retention.compressed.raw_tensors import check_raw_tensors
from swa_retention.patches.attach import active
from swa_retention.register import UNPATCHED, Patch

ASCEND_TENSORS = "vllm_ascend.patch.platform.patch_kv_cache_utils"
"""The module that puts vLLM-Ascend's layout of DeepSeek-V4's tensors in the place of vLLM's."""


def find_longest_cache_hit(original: Any) -> Callable[..., Any]:
    """``HybridKVCacheCoordinator.find_longest_cache_hit``, after which every table ends where the hit ends.

    Where hits may end inside blocks, or windows have few blocks, it is the plug-in's own look-up.
    """

    def find_longest_cache_hit(self: Any, block_hashes: Any, max_cache_hit_length: int) -> Any:
        look_up = getattr(self, "look_up", None)
        if look_up is not None:
            return look_up.find(block_hashes, max_cache_hit_length)
        blocks, hit_tokens = original(self, block_hashes, max_cache_hit_length)
        if getattr(self, "cut_groups", ()):
            cut(self, blocks, hit_tokens)
        return blocks, hit_tokens

    return find_longest_cache_hit


def lives_alone(layer: str) -> bool:
    """Whether ``layer`` has a tensor of its own. vLLM-Ascend gives one to each layer of the draft model."""
    import sys

    return "mtp" in layer and ASCEND_TENSORS in sys.modules


def _tensors(groups: Any) -> list[Shared]:
    return layout(groups, lives_alone)


def _is_on() -> bool:
    return active().compressed_block_size_slots is not None


def kv_cache_tensors(original: Any) -> Callable[..., Any]:
    """``_get_kv_cache_config_deepseek_v4`` with the page sizes of all groups, and without tensors that no layer
    uses."""

    def _get_kv_cache_config_deepseek_v4(vllm_config: Any, kv_cache_groups: Any, available_memory: int) -> Any:
        from vllm.v1.core.kv_cache_utils import may_override_num_blocks
        from vllm.v1.kv_cache_interface import KVCacheTensor

        if not _is_on():
            return original(vllm_config, kv_cache_groups, available_memory)
        tensors = _tensors(kv_cache_groups)
        blocks = may_override_num_blocks(vllm_config, available_memory // block_bytes(tensors))
        return blocks, [
            KVCacheTensor(size=tensor.page_bytes * blocks, shared_by=list(tensor.layers)) for tensor in tensors
        ]

    return _get_kv_cache_config_deepseek_v4


def pool_bytes_per_block(original: Any) -> Callable[..., int]:
    """``_pool_bytes_per_block`` that counts the tensors that there are."""

    def _pool_bytes_per_block(kv_cache_groups: Any) -> int:
        if not _is_on() or not has_many_specs(kv_cache_groups):
            return int(original(kv_cache_groups))
        return block_bytes(_tensors(kv_cache_groups))

    return _pool_bytes_per_block


def max_memory_usage_bytes(original: Any) -> Callable[..., int]:
    """``_max_memory_usage_bytes_from_groups`` that counts the tensors that there are."""

    def _max_memory_usage_bytes_from_groups(vllm_config: Any, kv_cache_groups: Any) -> int:
        if not _is_on() or not has_many_specs(kv_cache_groups):
            return int(original(vllm_config, kv_cache_groups))
        blocks = sum(group.kv_cache_spec.max_memory_usage_pages(vllm_config) for group in kv_cache_groups)
        return int(blocks) * block_bytes(_tensors(kv_cache_groups))

    return _max_memory_usage_bytes_from_groups


def has_many_specs(groups: Any) -> bool:
    """Whether this is the layout of DeepSeek-V4: several groups, and each layer has a spec of its own."""
    return len(groups) > 1 and all(hasattr(group.kv_cache_spec, "kv_cache_specs") for group in groups)


def allocate_kv_cache_tensors(original: Any) -> Callable[..., Any]:
    """A model runner's ``_allocate_kv_cache_tensors`` that says which layers have no tensor, or should not have one."""

    def _allocate_kv_cache_tensors(self: Any, kv_cache_config: Any) -> Any:
        if _is_on():
            check_raw_tensors(kv_cache_config, self.runner_only_attn_layers)
        return original(self, kv_cache_config)

    return _allocate_kv_cache_tensors


_UTILS = "vllm.v1.core.kv_cache_utils"
_PAGES = "vllm-project/vllm-ascend#10193"
_UNTIL_PAGES = "vLLM counts the page sizes of all groups"
TOLD = "The engine stops all the same, and says which layers have no tensor, which are too many, and what there is."
UNTIL_TOLD = "the model runner says so itself"

LOOKUP = (
    Patch(
        "vllm.v1.core.kv_cache_coordinator:HybridKVCacheCoordinator.find_longest_cache_hit",
        "Of several groups of full attention only the first is cut to the hit; no hit ends inside a block; and where "
        "windows have few blocks, each that is missing is looked up.",
        "All groups are cut, after vLLM's own look-up; with partial hits or retention it is the plug-in's own, which "
        "finds the same where hits end at blocks, and asks once for each window that lacks a block.",
        "vllm-project/vllm#52828; vllm-project/vllm-ascend#10193",
        "vLLM 0.33, which cuts all",
        {"0.20.2": "d20387e8d2425c42", "0.23.0": "a96e7925ee7116fe", "0.33.0": UNPATCHED},
        find_longest_cache_hit,
    ),
)
PAGES = (
    Patch(
        f"{_UTILS}:_get_kv_cache_config_deepseek_v4",
        "A layer whose page size is not in the first group gets no tensor, and tensors without a layer take memory.",
        "Page sizes are those of all groups, and a tensor that no layer shares is left out.",
        _PAGES,
        _UNTIL_PAGES,
        "50ad2a68b185438f",
        kv_cache_tensors,
        replaced_by=ASCEND_TENSORS,
    ),
    Patch(
        f"{_UTILS}:_pool_bytes_per_block",
        "What a block of the pool takes must be what its tensors take.",
        "It is counted over the tensors that there are.",
        _PAGES,
        _UNTIL_PAGES,
        "982e65041c90f8c2",
        pool_bytes_per_block,
    ),
    Patch(
        f"{_UTILS}:_max_memory_usage_bytes_from_groups",
        "What a request can need at most must be counted in what a block takes.",
        "It is counted over the tensors that there are.",
        _PAGES,
        _UNTIL_PAGES,
        "d8099b5e75117869",
        max_memory_usage_bytes,
    ),
    Patch(
        "vllm.v1.worker.gpu_model_runner:GPUModelRunner._allocate_kv_cache_tensors",
        "A layer without a tensor is a bare assertion.",
        TOLD,
        _PAGES,
        UNTIL_TOLD,
        "9a7e29d77313633e",
        allocate_kv_cache_tensors,
        # A process that only schedules never imports it.
        only_where="vllm.v1.worker.gpu_model_runner",
    ),
)
