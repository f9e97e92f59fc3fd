"""How many blocks the admission gate counts, said once more. Findings 002 and 033.

Their deltas add to what the reference counts, and a gate rarely decides otherwise for a few blocks. So where they act,
what the reference counts is compared with this.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import evolve

from kvreference.block_pool import NULL
from kvreference.settings import Settings


def blocks_to_take(settings: Settings, tokens: int, computed: int, tables: Sequence[Sequence[int]]) -> int:
    """How many blocks a request of ``tokens`` tokens takes at most, besides the live ones of its tables."""
    count = 0
    for group, table in zip(settings.geometry.groups, tables, strict=True):
        most = group.blocks_held_at_most(settings.chunk_tokens, settings.tokens_max)
        held = min(group.entries(tokens, tokens) - group.blocks_unread(computed), most)
        count += max(0, held - sum(block != NULL for block in table))
    return count


def counted_with(
    settings: Settings, count: int, tokens: int, computed: int, tables: Sequence[Sequence[int]]
) -> Settings | None:
    """The settings by which a gate counts so many blocks; None if it counts otherwise.

    A release may count what all steps in flight compute as one step.
    """
    at_once = evolve(settings, chunk_tokens=settings.chunk_tokens * settings.steps_in_flight_max)
    those = (each for each in (settings, at_once) if blocks_to_take(each, tokens, computed, tables) == count)
    return next(those, None)
