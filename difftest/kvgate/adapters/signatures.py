"""What the adapter for vLLM 0.20.2 relies on, pinned: every symbol, with the parameters it had when this was written.

A vLLM whose symbols differ is not the vLLM that the adapter was written for. It is refused with a message that names
the first symbol that differs, instead of being driven wrongly.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from typing import Any

VLLM_VERSION = "0.20.2"

_MANAGER = "vllm.v1.core.kv_cache_manager:KVCacheManager"
_UTILS = "vllm.v1.core.kv_cache_utils"
_SPECS = "vllm.v1.kv_cache_interface"

_ATTENTION = ("block_size", "num_kv_heads", "head_size", "dtype", "kv_quant_mode", "page_size_padded")
_COMPRESSED = ("cache_dtype_str", "alignment", "compress_ratio", "model_version")

PINNED: Mapping[str, tuple[str, ...] | None] = {
    f"{_MANAGER}.__init__": (
        "self",
        "kv_cache_config",
        "max_model_len",
        "hash_block_size",
        "max_num_batched_tokens",
        "enable_caching",
        "use_eagle",
        "log_stats",
        "enable_kv_cache_events",
        "dcp_world_size",
        "pcp_world_size",
        "metrics_collector",
    ),
    f"{_MANAGER}.get_computed_blocks": ("self", "request"),
    f"{_MANAGER}.can_fit_full_sequence": (
        "self",
        "request",
        "num_new_computed_tokens",
        "new_computed_blocks",
        "num_external_computed_tokens",
        "num_encoder_tokens",
    ),
    f"{_MANAGER}.allocate_slots": (
        "self",
        "request",
        "num_new_tokens",
        "num_new_computed_tokens",
        "new_computed_blocks",
        "num_lookahead_tokens",
        "num_external_computed_tokens",
        "delay_cache_blocks",
        "num_encoder_tokens",
    ),
    f"{_MANAGER}.free": ("self", "request"),
    f"{_MANAGER}.cache_blocks": ("self", "request", "num_computed_tokens"),
    f"{_MANAGER}.get_block_ids": ("self", "request_id"),
    f"{_MANAGER}.new_step_starts": ("self",),
    f"{_MANAGER}.remove_skipped_blocks": ("self", "request_id", "total_computed_tokens"),
    f"{_MANAGER}.evict_blocks": ("self", "block_ids"),
    f"{_MANAGER}.reset_prefix_cache": ("self",),
    f"{_MANAGER}.get_num_common_prefix_blocks": ("self", "running_request_id"),
    f"{_MANAGER}.take_events": ("self",),
    f"{_MANAGER}.make_prefix_cache_stats": ("self",),
    f"{_UTILS}:get_request_block_hasher": ("block_size", "caching_hash_fn"),
    f"{_UTILS}:init_none_hash": ("hash_fn",),
    f"{_UTILS}:FreeKVCacheBlockQueue.__init__": ("self", "blocks"),
    "vllm.v1.request:Request.append_output_token_ids": ("self", "token_ids"),
    f"{_SPECS}:KVCacheConfig": ("num_blocks", "kv_cache_tensors", "kv_cache_groups"),
    f"{_SPECS}:KVCacheGroupSpec": ("layer_names", "kv_cache_spec", "is_eagle_group"),
    f"{_SPECS}:FullAttentionSpec": (*_ATTENTION, "head_size_v", "sliding_window", "attention_chunk_size"),
    f"{_SPECS}:MLAAttentionSpec": (*_ATTENTION, "head_size_v", "sliding_window", "attention_chunk_size", *_COMPRESSED),
    f"{_SPECS}:SlidingWindowSpec": (*_ATTENTION, "sliding_window", "head_size_v"),
    f"{_SPECS}:SlidingWindowMLASpec": (*_ATTENTION, "sliding_window", "head_size_v", *_COMPRESSED),
    f"{_SPECS}:ChunkedLocalAttentionSpec": (*_ATTENTION, "attention_chunk_size"),
    f"{_SPECS}:MambaSpec": (
        "block_size",
        "shapes",
        "dtypes",
        "page_size_padded",
        "mamba_type",
        "mamba_cache_mode",
        "num_speculative_blocks",
    ),
}
"""``module:symbol`` to the names of its parameters, in order."""


def drift(pinned: Mapping[str, tuple[str, ...] | None] = PINNED) -> list[str]:
    """What differs between the vLLM that is found and the pinned one, a sentence each.

    Raises:
        ImportError: a module is there and cannot be imported, or their package is not there at all.
    """
    found = []
    for path, expected in pinned.items():
        parameters = parameters_of(path)
        if parameters == expected:
            continue
        if parameters is None:
            found.append(f"{path} is not there")
        elif expected is None:
            found.append(f"{path} is there, and was not when this was pinned")
        else:
            found.append(f"{path} takes ({', '.join(parameters)}), pinned is ({', '.join(expected)})")
    return found


def parameters_of(path: str) -> tuple[str, ...] | None:
    """The names of the parameters of ``module:symbol``; None if it is not there.

    Raises:
        ImportError: its module is there and cannot be imported, or its package is not there at all.
    """
    module, _, symbol = path.partition(":")
    try:
        value: Any = importlib.import_module(module)
        for part in symbol.split("."):
            value = getattr(value, part)
    except (ModuleNotFoundError, AttributeError) as error:
        if isinstance(error, ModuleNotFoundError):
            # Where even the package is missing, nothing of it is there; and what a module needs is no part of it.
            package = module.partition(".")[0]
            if error.name == package or not f"{module}.".startswith(f"{error.name}."):
                raise
        return None
    return tuple(inspect.signature(value).parameters)
