"""A step as the worker was sent it, and what becomes of it where a load within it fails."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from attrs import evolve, field, frozen

from kvgate.levels.scheduler.adapter.names import name_of
from kvgate.levels.scheduler.nodes import OtherNodes


@frozen
class Spoilt:
    """A request whose step is worth nothing, since a load within it fails."""

    valid_tokens: int
    """The tokens before this one are valid, except in blocks that another request of the step loads."""
    restart_tokens: int
    """From where it computes again: whoever shares a block with an earlier one leaves that to it."""


@frozen
class Sent:
    """A step in flight."""

    output: Any
    """What the scheduler said."""
    scheduled: tuple[str, ...]
    """Who computes, by vLLM's names."""
    sampled: Mapping[int, list[int]]
    """What the model answers to whom."""
    pooled: Collection[int]
    """Whose prompt the model answers."""
    spoilt: Mapping[int, Spoilt]
    """Of whom a load fails within the step."""
    drafts: Mapping[int, tuple[int, ...]]
    """Per request, the drafts that it verifies."""
    rejected: dict[int, int] = field(factory=dict)
    """Per request, how many of them its grammar rejected after the step was sent."""


def spoilt_by(nodes: OtherNodes, scheduler: Any, scheduled: Mapping[int, int]) -> dict[int, Spoilt]:
    """Whose step is worth nothing since a load within it fails, their own or that of a block that they share.

    The blocks that fail are told with the step's output.
    """
    loads, nodes.within_step = nodes.within_step, {}
    invalid = frozenset[int]().union(*(load.invalid for load in loads.values()))
    nodes.signals.invalid |= invalid
    spoilt: dict[int, Spoilt] = {}
    size, left = nodes.block_tokens, set(invalid)
    for number, tokens in scheduled.items() if invalid else ():
        name = name_of(number)
        before = scheduler.requests[name].num_computed_tokens - tokens
        table = scheduler.kv_cache_manager.get_block_ids(name)[0][: -(-before // size)]
        failed = [index * size for index, block in enumerate(table) if block in invalid]
        if failed:
            restart = next((index * size for index, block in enumerate(table) if block in left), before)
            spoilt[number] = Spoilt(loads[number].valid if number in loads else before, restart)
            left.difference_update(table)
    for number, load in nodes.loading.items() if invalid else ():
        # What it hit is worth nothing, so what it loads is not either.
        hit = nodes.tables[number][0][: load.start // size]
        failed = [index * size for index, block in enumerate(hit) if block in invalid]
        if failed:
            nodes.loading[number] = evolve(load, valid=failed[0])
            spoilt[number] = Spoilt(failed[0], failed[0])
    return spoilt
