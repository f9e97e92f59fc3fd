"""Every table ends where the hit ends.

vLLM 0.20.2 looks up each group of full attention once, and cuts the blocks of the first to the final hit. With two such
groups, as vLLM-Ascend has for C4 and C128, the second keeps blocks after the hit. They are put into the request's
table, and overwritten although other requests may read them.
"""

from __future__ import annotations

from typing import Any


def cut_every_group(coordinator: Any) -> None:
    """Let the look-up of ``coordinator`` cut all groups of full attention, if there are several."""
    from vllm.v1.kv_cache_interface import FullAttentionSpec

    full = [
        (group, spec.block_size)
        for spec, groups, *_manager in getattr(coordinator, "attention_groups", ())
        if isinstance(spec, FullAttentionSpec)
        for group in groups
    ]
    if len(full) > 1:
        coordinator.cut_groups = full
        """The groups to be cut: the index of each, and its block size in tokens."""


def cut(coordinator: Any, blocks: tuple[list[Any], ...], hit_tokens: int) -> None:
    """Take out of ``blocks``, by group, everything after the hit."""
    for group, block_size_tokens in coordinator.cut_groups:
        del blocks[group][hit_tokens // block_size_tokens :]
