"""How many tokens of a prefix a block spans: the one place where slots become tokens.

vLLM's own specs count a block in tokens, compressed or not. Those of vLLM-Ascend count a block of compressed attention
in slots, each for as many tokens as the compress ratio says. A spec may also stand for many layers. Then it is
unpacked: it has no ratio itself, and a caller that asks it for one takes a block of 16384 tokens for one of 128
(vllm-project/vllm-ascend#10193).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SLOT_COUNTING_PACKAGE = "vllm_ascend"


class DisagreementError(ValueError):
    """The layers of one group have blocks of different lengths: one block table cannot serve them."""

    def __init__(self, spans: Mapping[str, int]) -> None:
        first: dict[int, str] = {}
        for layer, tokens in spans.items():
            first.setdefault(tokens, layer)
        said = ", ".join(f"{tokens} tokens ({layer})" for tokens, layer in sorted(first.items()))
        super().__init__(f"the layers of one KV-cache group have blocks of different lengths: {said}")


def prefix_block_size_tokens(spec: Any) -> int:
    """How many tokens of the prefix a block of a group with this spec spans.

    Raises:
        DisagreementError: the spec stands for layers that differ in it.
    """
    layers = getattr(spec, "kv_cache_specs", None)
    if layers is None:
        size_tokens: int = spec.block_size * (compress_ratio(spec) if counts_slots(spec) else 1)
        return size_tokens
    spans = {layer: prefix_block_size_tokens(each) for layer, each in layers.items()}
    if len(set(spans.values())) != 1:
        raise DisagreementError(spans)
    return next(iter(spans.values()))


def compress_ratio(spec: Any) -> int:
    """How many tokens share a slot. vLLM-Ascend also writes 0 for one."""
    return max(getattr(spec, "compress_ratio", 1), 1)


def counts_slots(spec: Any) -> bool:
    """Whether the block size of ``spec`` is in slots: vLLM-Ascend's spec of full attention.

    Its windows have a ratio of 1, and so have slots for tokens.
    """
    defined_in = {each.__module__.partition(".")[0] for each in type(spec).__mro__}
    return SLOT_COUNTING_PACKAGE in defined_in and _is_full(spec)


def _is_full(spec: Any) -> bool:
    from vllm.v1.kv_cache_interface import FullAttentionSpec

    return isinstance(spec, FullAttentionSpec)
