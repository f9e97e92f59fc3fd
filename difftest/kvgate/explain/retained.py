"""What a prompt costs the pool: what it holds, what passes through its hands, and what stays cached of it.

From these follows how many prompts of a length are retained: computed one after the other, each can still be hit as far
as it ever could. The numbers are guaranteed, and may be one short of what happens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kvgate.explain.chunks import chunk_ends
from kvreference.admission import blocks_at_peak
from kvreference.geometry import Group
from kvreference.prefix_cache import PrefixCache, new_cache
from kvreference.retention import Dense, Retention
from kvreference.scheduler.room import blocks_to_run
from kvreference.settings import Settings


def blocks_held(settings: Settings, tokens: int) -> list[int]:
    """Per group, the most blocks that a request of ``tokens`` tokens holds at once."""
    return [blocks_at_peak(settings, group, tokens, 0) for group in settings.geometry.groups]


def blocks_taken(settings: Settings, tokens: int) -> int:
    """How many blocks a prompt of ``tokens`` tokens takes out of the free queue in all, over all groups."""
    return sum(_taken(settings, group, tokens) for group in settings.geometry.groups)


def _taken(settings: Settings, group: Group, tokens: int) -> int:
    if group.attention.stops_at_block_ends:
        return len(chunk_ends(settings, tokens)) + group.draft_states
    return group.entries(tokens, min(tokens + settings.lookahead_tokens, settings.tokens_max))


def blocks_kept(settings: Settings, tokens: int) -> list[int]:
    """Per group, how many blocks of a prompt of ``tokens`` tokens are cached."""
    cache = new_cache(settings)
    if not isinstance(cache, PrefixCache):
        return [0] * len(settings.geometry.groups)
    return [_kept(settings, group, cache.retention, tokens) for group in settings.geometry.groups]


def blocks_protected(settings: Settings, tokens: int) -> list[int]:
    """Per group, how many blocks of a prompt the policy means to keep: those that are pinned, or else all cached."""
    return blocks_kept(settings, tokens) if settings.pin_drop_blocks_min is None else _pinned(settings, tokens)


def _kept(settings: Settings, group: Group, retention: Retention, tokens: int) -> int:
    known = max(0, tokens - settings.geometry.hashed_ahead_tokens)
    if group.attention.stops_at_block_ends:
        size = group.block_size_tokens
        ends = [end for end in chunk_ends(settings, tokens) if end % size == 0 and end <= known]
        return sum(retention.due_tokens(group, end // size - 1, tokens) is not None for end in ends)
    full = known // group.block_size_tokens
    if isinstance(retention, Dense):
        return full
    boundaries = retention if group.is_sparse else Dense(settings.geometry)
    admitted = boundaries.boundaries(0, tokens, tokens)
    return _covered((group.blocks_needed(boundary) for boundary in admitted), full)


def _covered(ranges: Iterable[tuple[int, int]], full: int) -> int:
    """How many of the first ``full`` blocks are in one of the half-open ranges; they ascend."""
    count = seen = 0
    for start, stop in ranges:
        first, end = max(start, seen), min(stop, full)
        if first < end:
            count += end - first
            seen = end
    return count


def prefixes_retained(settings: Settings, tokens: int) -> int:
    """How many prompts of ``tokens`` tokens, computed one after the other, can all be hit afterwards.

    Where the free queue has one order, each block that a prompt takes evicts what was cached before. Where
    scratch goes first, or what is worth keeping is pinned, only what stays cached does, once the rest found room.
    """
    free = settings.blocks - 1
    groups = settings.geometry.groups
    held = blocks_to_run(settings, tokens)
    if not settings.caches or held > free:
        return 0
    if settings.scratch_first or settings.pin_drop_blocks_min is not None:
        kept = blocks_protected(settings, tokens)
        others = sum(count for group, count in zip(groups, kept, strict=True) if not group.keeps_all)
        cost = sum(kept)
    else:
        others = sum(_window_scratch_blocks(settings, group, tokens) for group in groups)
        cost = blocks_taken(settings, tokens)
    # If the pool is too small for the blocks that a window drops, the same prompt evicts them.
    left = free - held - others
    return 0 if left < 0 else 1 + left // max(1, cost)


def _window_scratch_blocks(settings: Settings, group: Group, tokens: int) -> int:
    """How many blocks a window may free between the last boundary that a replay hits and the end of the prompt."""
    if not group.slides:
        return 0
    alignment = settings.geometry.alignment_tokens + settings.geometry.lookahead_tokens
    return min(group.blocks_occupied(alignment + settings.chunk_tokens), group.entries(tokens, tokens))


def _pinned(settings: Settings, tokens: int) -> list[int]:
    """Per group, how many blocks of a prompt are pinned: at each long drop its anchor, and at the end all that is held.

    A drop of a chunk is long enough if it has as many blocks as the settings ask for.
    """
    geometry, least = settings.geometry, settings.pin_drop_blocks_min or 1
    kept = []
    for group in geometry.groups:
        full = tokens // group.block_size_tokens
        # A window frees blocks at the next allocation: the blocks that the last chunk drops are held to the end.
        ends = [group.blocks_dead(end) for end in chunk_ends(settings, tokens)[:-1]]
        drops = zip([0, *ends], ends, strict=False) if group.slides else ()
        anchors = [geometry.anchor(group, after) for before, after in drops if after - before >= least]
        kept.append(_covered([*anchors, (ends[-1] if ends else 0, full)], full))
    return kept


def blocks_at_start(settings: Settings, batched_tokens: int, tokens: int) -> int:
    """With how many blocks vLLM reckons for a request of ``tokens`` tokens when it starts.

    It asks the groups for their bounds, and compares with all blocks of the pool. Look-ahead slots and the null block
    are left out, which is why a pool can pass that is too small.
    """
    return sum(group.blocks_held_at_most(batched_tokens, tokens) for group in settings.geometry.groups)


def largest_at_start(settings: Settings, batched_tokens: int) -> int:
    """The longest request that vLLM takes for one that fits when it starts; 0 if none is."""
    return _longest(
        settings.tokens_max, lambda tokens: blocks_at_start(settings, batched_tokens, tokens), settings.blocks
    )


def largest_request(settings: Settings) -> int:
    """The longest a request may become and still be admitted and run to its end in an empty pool; 0 if none may."""
    return _longest(settings.tokens_max, lambda tokens: blocks_to_run(settings, tokens), settings.blocks - 1)


def _longest(tokens_max: int, needed: Callable[[int], int], blocks: int) -> int:
    """The most tokens, up to ``tokens_max``, that need no more than ``blocks``."""
    low, high = 0, tokens_max
    while low < high:
        middle = (low + high + 1) // 2
        if needed(middle) <= blocks:
            low = middle
        else:
            high = middle - 1
    return low
