"""How many tokens of a prefix a block spans.

Goal: slots become tokens where a spec counts slots, and nowhere else, whether a group has one spec or one for each
layer. Method: vLLM's own specs, and classes that are vLLM-Ascend's by their module.
"""

from __future__ import annotations

from typing import Any

import pytest

from swa_retention.compressed.prefix_block_size import DisagreementError, prefix_block_size_tokens

pytest.importorskip("vllm")

SHAPE: dict[str, Any] = {"num_kv_heads": 1, "head_size": 1}


def specs() -> Any:
    """vLLM's module of specs."""
    import vllm.v1.kv_cache_interface as interface

    return interface


def mla(block_size: int, ratio: int) -> Any:
    """vLLM's own spec of compressed attention."""
    import torch

    return specs().MLAAttentionSpec(block_size=block_size, dtype=torch.float32, compress_ratio=ratio, **SHAPE)


def ascend_mla(block_size: int, ratio: int) -> Any:
    """One whose class was defined in vLLM-Ascend."""
    import torch

    of_ascend = type("AscendMLA", (specs().MLAAttentionSpec,), {"__module__": "vllm_ascend.patch.somewhere"})
    return of_ascend(block_size=block_size, dtype=torch.float32, compress_ratio=ratio, **SHAPE)


def ascend_window(block_size: int) -> Any:
    """A window whose class was defined in vLLM-Ascend."""
    import torch

    of_ascend = type("AscendWindow", (specs().SlidingWindowMLASpec,), {"__module__": "vllm_ascend.patch.somewhere"})
    return of_ascend(block_size=block_size, dtype=torch.float32, sliding_window=128, compress_ratio=1, **SHAPE)


def uniform(**layers: Any) -> Any:
    """One group with a spec for each layer."""
    return specs().UniformTypeKVCacheSpecs(block_size=next(iter(layers.values())).block_size, kv_cache_specs=layers)


@pytest.mark.parametrize(("slots", "ratio", "tokens"), [(128, 128, 16384), (128, 4, 512), (32, 128, 4096), (64, 1, 64)])
def test_vllm_ascend_counts_slots(slots: int, ratio: int, tokens: int) -> None:
    """Each for as many tokens as the ratio says."""
    assert tokens == prefix_block_size_tokens(ascend_mla(slots, ratio))


def test_a_ratio_of_zero_is_none() -> None:
    """Some of vLLM-Ascend's layers say so."""
    assert 128 == prefix_block_size_tokens(ascend_mla(128, 0))


def test_vllm_counts_tokens() -> None:
    """Its block is 256 tokens for every size of a slot."""
    assert [256, 256] == [prefix_block_size_tokens(mla(256, ratio)) for ratio in (4, 128)]


def test_windows_count_tokens() -> None:
    """vLLM-Ascend's too."""
    assert 128 == prefix_block_size_tokens(ascend_window(128))


def test_a_group_of_many_specs_is_unpacked() -> None:
    """It has no ratio itself; those of its layers count."""
    assert 16384 == prefix_block_size_tokens(uniform(a=ascend_mla(128, 128), b=ascend_mla(128, 128)))
    assert 256 == prefix_block_size_tokens(uniform(a=mla(256, 4), b=mla(256, 128)))


def test_layers_that_disagree_are_rejected() -> None:
    """One block table cannot serve both; the message names one of each."""
    with pytest.raises(DisagreementError) as caught:
        prefix_block_size_tokens(uniform(a=ascend_mla(128, 4), b=ascend_mla(128, 4), c=ascend_mla(128, 128)))
    assert (
        "the layers of one KV-cache group have blocks of different lengths: 512 tokens (a), 16384 tokens (c)"
    ) == str(caught.value)
