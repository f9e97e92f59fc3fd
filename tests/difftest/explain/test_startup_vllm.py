"""With how many blocks vLLM reckons when it starts.

Goal: the report is right about whether a server starts. Method: vLLM 0.20.2's own check on the same groups and pools.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kvgate.explain.retained import blocks_at_start, largest_at_start
from kvreference.attention import Kind
from kvreference.geometry import Geometry, Group
from kvreference.settings import Settings


def _spec(group: Group) -> Any:
    """The same of vLLM's."""
    import torch
    from vllm.v1.kv_cache_interface import ChunkedLocalAttentionSpec, FullAttentionSpec, MambaSpec, SlidingWindowSpec

    if group.keeps_states:
        return MambaSpec(
            block_size=group.block_size_tokens,
            shapes=((16, 8),),
            dtypes=(torch.float32,),
            page_size_padded=1024,
            mamba_cache_mode="align",
            num_speculative_blocks=group.draft_states,
        )
    sizes: dict[str, Any] = {
        "block_size": group.block_size_tokens,
        "num_kv_heads": 1,
        "head_size": 128 // group.block_size_tokens,
        "dtype": torch.float32,
    }
    window_tokens = group.window_tokens or 0
    if group.kind is Kind.SLIDING_WINDOW:
        return SlidingWindowSpec(**sizes, sliding_window=window_tokens)
    if group.kind is Kind.CHUNKED_LOCAL:
        return ChunkedLocalAttentionSpec(**sizes, attention_chunk_size=window_tokens)
    return FullAttentionSpec(**sizes)


GROUPS = {
    "full": (Group(Kind.FULL, 16),),
    "window": (Group(Kind.FULL, 32), Group(Kind.SLIDING_WINDOW, 16, 100), Group(Kind.SLIDING_WINDOW, 16, 40)),
    "local": (Group(Kind.FULL, 16), Group(Kind.CHUNKED_LOCAL, 16, 64)),
    "states": (Group(Kind.FULL, 16), Group(Kind.MAMBA, 16, states="align", draft_states=2)),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", GROUPS)
@pytest.mark.parametrize("batched_tokens", [33, 4096])
def test_the_estimate_is_vllms(name: str, batched_tokens: int) -> None:
    """Block for block, and with it the longest request that it lets start."""
    from vllm.v1.core import kv_cache_utils
    from vllm.v1.kv_cache_interface import KVCacheGroupSpec

    settings = Settings(Geometry(GROUPS[name]), 30, tokens_max=2000, chunk_tokens=20, drafts_max=2 * (name == "states"))
    groups = [KVCacheGroupSpec([f"{index}"], _spec(group)) for index, group in enumerate(settings.geometry.groups)]
    page = groups[0].kv_cache_spec.page_size_bytes
    config: Any = SimpleNamespace(
        model_config=SimpleNamespace(max_model_len=2000),
        scheduler_config=SimpleNamespace(max_num_batched_tokens=batched_tokens),
        parallel_config=SimpleNamespace(decode_context_parallel_size=1, prefill_context_parallel_size=1),
        cache_config=SimpleNamespace(mamba_cache_mode="align"),
    )
    for tokens in (1, 15, 16, 17, 100, 500, 2000):
        config.model_config.max_model_len = tokens
        needed = kv_cache_utils._max_memory_usage_bytes_from_groups(config, groups)
        assert needed // page == blocks_at_start(settings, batched_tokens, tokens), tokens
    longest = kv_cache_utils._estimate_max_model_len_from_groups(config, groups, 30 * page)
    assert longest == largest_at_start(settings, batched_tokens)
