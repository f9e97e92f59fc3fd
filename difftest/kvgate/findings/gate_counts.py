"""How many blocks the admission gate counts, said once more. Findings 002 and 033.

Their deltas add to what the reference counts, and a gate rarely decides otherwise for a few blocks. So where they act,
what the reference counts is compared with this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

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


def counts_by(settings: Settings, to_come: Callable[..., int]) -> Settings:
    """The settings by which a gate that counts ``to_come`` counts: what all steps in flight compute may be one step."""
    at_once, nothing = all_at_once(settings), [()] * len(settings.geometry.groups)
    # If the two count the longest request alike, they count every request alike.
    most = to_come(settings, settings.tokens_max, 0, nothing)
    return at_once if most == blocks_to_take(at_once, settings.tokens_max, 0, nothing) else settings


def all_at_once(settings: Settings) -> Settings:
    """The settings of a step that computes what all steps in flight compute."""
    return evolve(settings, chunk_tokens=settings.chunk_tokens * settings.steps_in_flight_max)


def counted_with(
    settings: Settings, count: int, tokens: int, computed: int, tables: Sequence[Sequence[int]]
) -> Settings | None:
    """The settings by which a gate counts so many blocks; None if it counts otherwise.

    A release may count what all steps in flight compute as one step.
    """
    those = (
        each for each in (settings, all_at_once(settings)) if blocks_to_take(each, tokens, computed, tables) == count
    )
    return next(those, None)
