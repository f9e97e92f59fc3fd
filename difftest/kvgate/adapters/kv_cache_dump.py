"""From vLLM's KVCacheConfig to a dump that ``kvgate explain`` reads.

It recognises specs by attributes, not by classes, so that it takes the specs of other releases and of
vLLM-Ascend as well.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kvgate.adapters.groups import spec_block_size_tokens, spec_compress_ratio

FORMAT = "kvgate-kv-cache-config"
FORMAT_VERSION = 1
_KINDS = (
    ("Mamba", "mamba"),
    ("SlidingWindow", "sliding_window"),
    ("ChunkedLocal", "chunked_local"),
    ("Full", "full"),
    ("MLA", "full"),
)
"""What the names of spec classes contain, the more special first."""


def document_of(kv_cache_config: Any) -> dict[str, Any]:
    """The dump of a ``vllm.v1.kv_cache_interface.KVCacheConfig``.

    Raises:
        ValueError: a group of a kind that the reference does not know.
    """
    import vllm

    size = sum(tensor.size for tensor in kv_cache_config.kv_cache_tensors)
    blocks = kv_cache_config.num_blocks
    return {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "vllm": vllm.__version__,
        "num_blocks": blocks,
        "block_bytes": size // blocks if size >= blocks > 0 else None,
        "groups": groups_of(kv_cache_config.kv_cache_groups),
    }


def groups_of(kv_cache_groups: Sequence[Any]) -> list[dict[str, Any]]:
    """The groups as a dump has them."""
    return [_group(group) for group in kv_cache_groups]


def write(kv_cache_config: Any, path: str | Path) -> None:
    """Write the dump of ``kv_cache_config`` to ``path``."""
    Path(path).write_text(json.dumps(document_of(kv_cache_config), indent=1) + "\n", encoding="utf-8")


def _group(group: Any) -> dict[str, Any]:
    spec = group.kv_cache_spec
    # One spec for each layer, where layers differ in size alone: all of them count as one of a kind.
    inner = list(getattr(spec, "kv_cache_specs", {}).values())
    one = inner[0] if inner else spec
    kind = _kind(type(one).__name__)
    found: dict[str, Any] = {
        "kind": kind,
        "block_size_tokens": spec_block_size_tokens(one),
        "layers": max(1, len(group.layer_names)),
        "lookahead": bool(getattr(group, "is_eagle_group", False)),
    }
    ratio = max(map(spec_compress_ratio, inner or [spec]))
    if kind == "full" and ratio > 1:
        found["compress_ratio"] = ratio
    if kind == "sliding_window":
        found["window_tokens"] = one.sliding_window
    if kind == "chunked_local":
        found["window_tokens"] = one.attention_chunk_size
    if kind == "mamba":
        found["states"] = one.mamba_cache_mode
        found["draft_states"] = one.num_speculative_blocks
    return found


def _kind(name: str) -> str:
    for part, kind in _KINDS:
        if part in name:
            return kind
    raise ValueError(f"a group of {name}: kvgate knows full, sliding-window, chunked local and state-space layers")
