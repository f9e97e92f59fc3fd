"""Retention by the boundaries that a replay is said to resume at. Findings 015, 016 and 031."""

from __future__ import annotations

from collections.abc import Callable, Collection

from kvgate.findings.finding import Acts
from kvreference.caching import due_tokens
from kvreference.geometry import Group
from kvreference.retention import Retention, next_boundary
from kvreference.rules import Delta
from kvreference.settings import Settings


def retains_some(settings: Settings) -> bool:
    """Whether retention leaves out blocks that some hit could read."""
    interval = settings.retention_interval_tokens
    return settings.caches and interval is not None and interval != settings.geometry.alignment_tokens


def keeps_replays(settings: Settings, boundaries: Callable[[Settings, int], Collection[int]]) -> Acts:
    """The boundaries that a replay is said to resume at decide what is kept besides interval and junction."""

    def due(
        due_tokens: Callable[..., int | None], retention: Retention, group: Group, index: int, prompt_tokens: int
    ) -> int | None:
        if not group.is_sparse:
            return due_tokens(retention, group, index, prompt_tokens)
        # Of an empty prompt, no replay: what is left are multiples of the interval, and the junction.
        kept = due_tokens(retention, group, index, 0) is not None
        if not kept and not any(ends_at(group, index, each) for each in boundaries(settings, prompt_tokens)):
            return None
        return when_reached(settings, group, index)

    return Acts([Delta(due_tokens.__name__, due)])


def when_reached(settings: Settings, group: Group, index: int) -> int:
    """How many tokens must be computed for a block to be full, and the first alignment reached that could need it."""
    size, alignment = group.block_size_tokens, settings.geometry.alignment_tokens
    return max(next_boundary(index, alignment, size, group.lookahead_tokens), (index + 1) * size)


def ends_at(group: Group, index: int, boundary: int) -> bool:
    """Whether a block is of the tail that a hit at ``boundary`` would read, if there were one at 0 as well."""
    end = (boundary + group.lookahead_tokens) // group.block_size_tokens
    # Of states a hit reads one.
    needed = 1 if group.window_tokens is None else group.blocks_occupied(group.window_tokens - 1) + group.lookahead
    return end - needed <= index < end
