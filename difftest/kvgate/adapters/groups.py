"""The groups of a geometry in the words of vLLM 0.20.2, and what it does not have words for.

Heads and head size only matter for memory, which no test of the block manager needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

from attrs import evolve, frozen

from kvreference.attention import Kind
from kvreference.geometry import Geometry, Group
from kvreference.settings import Settings

if TYPE_CHECKING:
    from vllm.v1.kv_cache_interface import KVCacheGroupSpec, KVCacheSpec


@frozen
class Words:
    """What the specs of a release are passed, and under which names; without more those of vLLM 0.20.2."""

    ratio: str = "compress_ratio"
    """What they call the number of tokens in a slot."""
    flags_drafts: bool = True
    """Whether groups say that a draft layer lives in them."""
    drafts_in_full: bool = False
    """Whether it lives in full attention if none says so; else in all groups but those of states."""


def unsupported(settings: Settings) -> str | None:
    """The first setting that vLLM 0.20.2 does not have, and what it has instead; None if there is none."""
    return next(chain(not_retained(settings), counts_begun_slots(settings), not_represented(settings)), None)


def not_retained(settings: Settings) -> Iterator[str]:
    """What vLLM 0.20.2 does not do with cached blocks of any group."""
    if settings.geometry.hashed_ahead_tokens:
        yield "hashes that cover the token after a block: vLLM 0.20.2 has none"
    for index, group in enumerate(settings.geometry.groups):
        if group.copies:
            size = f"a unit of {group.unit} tokens in blocks of {group.block_size_tokens}"
            yield f"partial hits in group {index} ({size}): vLLM 0.20.2 caches whole blocks only"
    if settings.retention_interval_tokens is not None:
        interval = settings.retention_interval_tokens
        yield f"a retention interval of {interval} tokens: vLLM 0.20.2 caches every block that is full"
    if settings.scratch_first:
        yield "scratch first: vLLM 0.20.2 has one free queue, in the order of release"
    if settings.pin_drop_blocks_min is not None:
        yield f"a pinned tier (drops of {settings.pin_drop_blocks_min} blocks and more): vLLM 0.20.2 pins nothing"


def counts_begun_slots(settings: Settings) -> Iterator[str]:
    """Where memory would be taken otherwise than vLLM's own managers do."""
    for index, group in enumerate(settings.geometry.groups):
        if group.whole_slots:
            yield f"memory for whole slots only in group {index}: vLLM 0.20.2 takes it for slots that are begun"


def not_represented(settings: Settings) -> Iterator[str]:
    """What groups of vLLM 0.20.2 cannot represent at all."""
    groups = settings.geometry.groups
    for index, group in enumerate(groups):
        if group.kind is Kind.CHUNKED_LOCAL and group.lookahead:
            yield f"a draft layer in group {index}: vLLM 0.20.2 asserts that chunked local attention has none"
        if group.kind is Kind.CHUNKED_LOCAL and group.block_size_tokens != settings.geometry.alignment_tokens:
            yield f"group {index}: vLLM 0.20.2 asserts that blocks have one size where attention is chunked local"
    if len(groups) > 1 and len({_alike(group) for group in groups}) == 1:
        yield f"{len(groups)} groups that are alike: vLLM 0.20.2 makes one of them, and asserts that they differ"


def spec_block_size_tokens(spec: Any) -> int:
    """How many tokens a block of a spec spans: vLLM-Ascend gives the blocks of full attention in slots."""
    size: int = spec.block_size
    return size * spec_compress_ratio(spec) if counts_slots(spec) else size


def spec_compress_ratio(spec: Any) -> int:
    """How many tokens share a slot. Releases have two names for it, and vLLM-Ascend also writes 0 for one."""
    return getattr(spec, "compress_ratio", getattr(spec, "tokens_per_state", 1)) or 1


def counts_slots(spec: Any) -> bool:
    """Whether its block size is in slots: vLLM-Ascend's spec of compressed attention, whose windows count tokens.

    From 0.30.0rc2 on, where the ratio has its later name, it is in tokens.
    """
    is_full = any(kind.__name__ in ("FullAttentionSpec", "MLAAttentionSpec") for kind in type(spec).__mro__)
    return is_of_ascend(spec) and is_full and getattr(spec, "compress_ratio", 1) > 1


def is_of_ascend(thing: Any) -> bool:
    """Whether vLLM-Ascend defines what ``thing`` is, or adds to it."""
    return any(kind.__module__.partition(".")[0] == "vllm_ascend" for kind in type(thing).__mro__)


def _alike(group: Group) -> object:
    """What two groups share that vLLM looks up together: it does not distinguish groups by their draft layers."""
    return evolve(group, lookahead=False)


def group_specs(geometry: Geometry, words: Words | None = None) -> list[KVCacheGroupSpec]:
    """The groups as vLLM's block manager is given them."""
    from vllm.v1.kv_cache_interface import KVCacheGroupSpec

    compressed = any(group.compress_ratio > 1 for group in geometry.groups)
    words = words or Words()
    # vLLM flags one group of DeepSeek-V4. Of other models it flags none, and takes that for all, states included.
    taken = [group.keeps_all if words.drafts_in_full else not group.keeps_states for group in geometry.groups]
    flagged = taken != [group.lookahead for group in geometry.groups]
    flags = [{"is_eagle_group": flagged and group.lookahead} if words.flags_drafts else {} for group in geometry.groups]
    return [
        KVCacheGroupSpec([f"layer.{index}"], _spec(group, compressed, words), **flag)
        for index, (group, flag) in enumerate(zip(geometry.groups, flags, strict=True))
    ]


def _spec(group: Group, compressed: bool, words: Words) -> KVCacheSpec:
    """One group; in a ``compressed`` model windows are kept like latent attention."""
    import torch
    from vllm.v1.kv_cache_interface import (
        ChunkedLocalAttentionSpec,
        FullAttentionSpec,
        MambaSpec,
        SlidingWindowSpec,
    )

    if group.states is not None:
        return MambaSpec(
            block_size=group.block_size_tokens,
            shapes=((1,),),
            dtypes=(torch.float32,),
            mamba_cache_mode=group.states.value,
            num_speculative_blocks=group.draft_states,
        )
    shape: dict[str, Any] = {
        "block_size": group.block_size_tokens,
        "num_kv_heads": 1,
        "head_size": 1,
        "dtype": torch.float32,
    }
    window = group.window_tokens or 0
    if group.kind is Kind.CHUNKED_LOCAL:
        return ChunkedLocalAttentionSpec(attention_chunk_size=window, **shape)
    if not compressed:
        sliding = group.kind is Kind.SLIDING_WINDOW
        return SlidingWindowSpec(sliding_window=window, **shape) if sliding else FullAttentionSpec(**shape)
    # Older releases have none of these.
    from vllm.v1.kv_cache_interface import MLAAttentionSpec, SlidingWindowMLASpec

    if group.kind is Kind.SLIDING_WINDOW:
        return SlidingWindowMLASpec(sliding_window=window, **shape)
    ratio: dict[str, Any] = {words.ratio: group.compress_ratio}
    return MLAAttentionSpec(**shape, **ratio)
