"""Block managers that count tokens, where vLLM-Ascend's count slots.

vLLM-Ascend's manager of a compressed group divides tokens by the ratio and continues with blocks of 128. Then block
``i`` of C128, which holds 16384 tokens, is cached under the hash of the first ``(i + 1) * 128`` tokens, and so is that
of any other prompt that begins alike. A replay may get the other prompt's block. Counted in tokens, a block is cached
under the hash of all that it holds, and everything that the plug-in computes for other groups holds here too.

What stays in slots is how much of a request needs memory: a slot is written when the last of its tokens is computed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from swa_retention.compressed.prefix_block_size import compress_ratio, counts_slots, prefix_block_size_tokens


def count_tokens(coordinator: Any) -> None:
    """Let every manager of ``coordinator`` count blocks in tokens, and the look-up too."""
    managers = [manager for manager in coordinator.single_type_managers if counts_slots(manager.kv_cache_spec)]
    for manager in managers:
        manager.block_size = prefix_block_size_tokens(manager.kv_cache_spec)
        manager.slot_tokens = compress_ratio(manager.kv_cache_spec)
    if managers and hasattr(coordinator, "attention_groups"):
        coordinator.attention_groups = [_in_tokens(*group) for group in coordinator.attention_groups]
        coordinator.looks_up_tokens = True


def _in_tokens(spec: Any, groups: list[int], manager: type) -> tuple[Any, list[int], type]:
    """A group of the look-up, by a manager that knows no slots."""
    from vllm.v1.core.single_type_kv_cache_manager import FullAttentionManager

    if not counts_slots(spec):
        return spec, groups, manager
    return replace(spec, block_size=prefix_block_size_tokens(spec)), groups, FullAttentionManager


def whole_slots(manager: Any, tokens: int) -> int:
    """How many of the first ``tokens`` tokens are in slots that are complete."""
    return tokens - tokens % int(manager.slot_tokens)
