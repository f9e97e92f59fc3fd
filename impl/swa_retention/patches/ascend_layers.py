"""vLLM-Ascend's layers of DeepSeek-V4, and its model runner: block sizes that can be chosen.

vLLM-Ascend writes 128 slots, and what follows from it, into each layer. Here each layer's spec is vLLM-Ascend's own
with the block size, and the padded page, of the size that was asked for. None of it has been run on an NPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any

from attrs import astuple

from swa_retention.compressed.block_sizes import BLOCK_SIZES, DEFAULT_SLOTS, BlockSizes, resolve
from swa_retention.patches.attach import active
from swa_retention.patches.compressed import TOLD, UNTIL_TOLD, allocate_kv_cache_tensors, kv_cache_tensors
from swa_retention.register import Patch

DEEPSEEK = "deepseek_v4"


def refresh_block_size(original: Any) -> Callable[..., None]:
    """``refresh_block_size``, which always sets 128; afterwards the requested size is restored."""

    @wraps(original)
    def refresh_block_size(vllm_config: Any) -> None:
        cache, model = vllm_config.cache_config, vllm_config.model_config
        asked = None
        if cache is not None and getattr(cache, "user_specified_block_size", False):
            asked = cache.block_size
        original(vllm_config)
        variable_slots = active().compressed_block_size_slots
        if variable_slots is None or not cache or not model or model.hf_config.model_type != DEEPSEEK:
            return
        sizes = resolve(variable_slots, asked)
        assert sizes is not None, "the variable is set"
        cache.block_size = sizes.mla

    return refresh_block_size


def _sizes() -> BlockSizes:
    slots = active().compressed_block_size_slots
    return BLOCK_SIZES[DEFAULT_SLOTS if slots is None else slots]


def compressed_spec(original: Any) -> Callable[..., Any]:
    """``get_kv_cache_spec`` of compressed attention, or of its indexer."""

    def get_kv_cache_spec(self: Any, vllm_config: Any) -> Any:
        spec = original(self, vllm_config)
        # A layer without compression has its cache elsewhere.
        return None if spec is None else replace(spec, block_size=_sizes().mla)

    return get_kv_cache_spec


def window_spec(original: Any) -> Callable[..., Any]:
    """``get_kv_cache_spec`` of a sliding window."""

    def get_kv_cache_spec(self: Any, vllm_config: Any) -> Any:
        return replace(original(self, vllm_config), block_size=_sizes().sliding_window)

    return get_kv_cache_spec


def state_spec(original: Any) -> Callable[..., Any]:
    """``get_kv_cache_spec`` of a compressor's state, which is padded to the page of another group."""

    def get_kv_cache_spec(self: Any, vllm_config: Any) -> Any:
        spec, sizes = original(self, vllm_config), _sizes()
        return replace(
            spec,
            block_size=sizes.state(self.compress_ratio),
            page_size_padded=sizes.page_bytes(spec.page_size_padded),
        )

    return get_kv_cache_spec


def supported_kernel_block_sizes(original: Any) -> Any:
    """``get_supported_kernel_block_sizes`` with the block sizes that were asked for.

    By the source of its operators they take them, which was read and not run on an NPU: npu_sparse_attn_sharedkv and
    npu_quant_lightning_indexer take multiples of 16 slots up to 1024, and compressor takes states of any size.
    """

    def get_supported_kernel_block_sizes() -> list[int]:
        supported: list[int] = original.__func__()
        if active().compressed_block_size_slots is None:
            return supported
        return list(dict.fromkeys((*supported, *astuple(_sizes()))))

    return staticmethod(get_supported_kernel_block_sizes)


_WHY = "Every layer has blocks of 128 slots, so that no prompt of less than 16384 tokens hits anything."
_HOW = "The spec is vLLM-Ascend's own, with the block size that was asked for; 128 where nothing was."
_UPSTREAM = "vllm-project/vllm-ascend#10193"
_UNTIL = "vLLM-Ascend lets the block size be chosen"
_ASCEND = "vllm_ascend"
_COMPRESSOR = "vllm_ascend.patch.worker.patch_deepseek_compressor"


def _layer(target: str, written_for: str, replacement: Callable[[Any], Any]) -> Patch:
    return Patch(target, _WHY, _HOW, _UPSTREAM, _UNTIL, written_for, replacement, only_where=_ASCEND)


PATCHES = (
    _layer("vllm_ascend.utils:refresh_block_size", "c795c4dd53cc8f7d", refresh_block_size),
    _layer(
        "vllm_ascend.models.layer.attention.layer:DSAAttention.get_kv_cache_spec", "46846d614dc74d48", compressed_spec
    ),
    _layer(f"{_COMPRESSOR}:AscendDeepseekV4IndexerCache.get_kv_cache_spec", "268f6f4977807d1f", compressed_spec),
    _layer(f"{_COMPRESSOR}:AscendDeepseekV4SWACache.get_kv_cache_spec", "c52d5aa077ba7409", window_spec),
    _layer(f"{_COMPRESSOR}:AscendCompressorStateCache.get_kv_cache_spec", "b9bc6cd0bde70377", state_spec),
    Patch(
        "vllm_ascend.attention.dsa_v1:AscendDSABackend.get_supported_kernel_block_sizes",
        "Kernels are said to have blocks of 8, 32 and 128 slots: no block of 2 or 4 is made of these, and one of 64 is "
        "divided in the block table and not in memory.",
        "The sizes that were asked for are supported too, as in vLLM-Ascend 0.23.0: the operators take them.",
        _UPSTREAM,
        "vLLM-Ascend says that its kernels have blocks of 2, 4, 16 and 64 slots",
        "d6e99c7d2e72d7f8",
        supported_kernel_block_sizes,
        only_where=_ASCEND,
    ),
    Patch(
        "vllm_ascend.patch.platform.patch_kv_cache_utils:_get_kv_cache_config_deepseek_v4",
        "A layer whose page size is not in the first group gets no tensor, and tensors without a layer take memory.",
        "Page sizes are those of all groups, a tensor that no layer shares is left out, and draft layers stay alone.",
        _UPSTREAM,
        "vLLM-Ascend counts the page sizes of all groups",
        "941a00f7a06b13a5",
        kv_cache_tensors,
        only_where=_ASCEND,
    ),
    Patch(
        "vllm_ascend.worker.model_runner_v1:NPUModelRunner._allocate_kv_cache_tensors",
        "A layer without a tensor is a bare assertion.",
        TOLD,
        _UPSTREAM,
        UNTIL_TOLD,
        "e6ebc58f259b38b2",
        allocate_kv_cache_tensors,
        only_where=_ASCEND,
    ),
)
