"""A step as the worker was sent it, and what becomes of it where a load within it fails."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import frozen

from kvgate.levels.scheduler.adapter.names import name_of
from kvgate.levels.scheduler.nodes import OtherNodes


@frozen
class Sent:
    """A step in flight."""

    output: Any
    """What the scheduler said."""
    scheduled: tuple[str, ...]
    """Who computes, by vLLM's names."""
    sampled: Mapping[int, list[int]]
    """What the model answers to whom."""
    spoilt: Mapping[int, int]
    """Of whom a load fails within the step: how many tokens are as they should be."""


def spoilt_by(nodes: OtherNodes, scheduler: Any, scheduled: Mapping[int, int]) -> dict[int, int]:
    """Whose step is worth nothing since a load within it fails, their own or that of a block that they share.

    The blocks that fail are told with the step's output.
    """
    loads, nodes.within_step = nodes.within_step, {}
    invalid = frozenset[int]().union(*(load.invalid for load in loads.values()))
    nodes.signals.invalid |= invalid
    if not invalid:
        return {}
    spoilt = {number: load.valid for number, load in loads.items() if load.invalid}
    size = nodes.block_tokens
    for number, tokens in scheduled.items():
        name = name_of(number)
        before = scheduler.requests[name].num_computed_tokens - tokens
        table = scheduler.kv_cache_manager.get_block_ids(name)[0]
        first = next((index for index, block in enumerate(table[: -(-before // size)]) if block in invalid), None)
        if first is not None:
            spoilt.setdefault(number, first * size)
    return spoilt
