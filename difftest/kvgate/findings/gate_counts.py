"""How many blocks the admission gate counts, said once more. Findings 002 and 033.

Their deltas add to what the reference counts, and a gate rarely decides otherwise for a few blocks. So where they act,
what the reference counts is compared with this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attrs import evolve

from kvreference.block_pool import NULL
from kvreference.geometry import Group
from kvreference.settings import Settings


def blocks_to_take(settings: Settings, tokens: int, computed: int, tables: Sequence[Sequence[int]]) -> int:
    """How many blocks a request of ``tokens`` tokens takes at most, besides the live ones of its tables."""
    return sum(
        _still_taken(settings, tokens, group, computed, sum(block != NULL for block in table))
        for group, table in zip(settings.geometry.groups, tables, strict=True)
    )


def with_dead_entries_off(settings: Settings, tokens: int, computed: int, tables: Sequence[Sequence[int]]) -> int:
    """The same, if all entries of the table of a window count as live."""
    return sum(
        _still_taken(settings, tokens, group, 0, len(table))
        if group.window_tokens
        else _still_taken(settings, tokens, group, computed, sum(block != NULL for block in table))
        for group, table in zip(settings.geometry.groups, tables, strict=True)
    )


def _still_taken(settings: Settings, tokens: int, group: Group, computed: int, live: int) -> int:
    most = group.blocks_held_at_most(settings.chunk_tokens, settings.tokens_max)
    return max(0, min(group.entries(tokens, tokens) - group.blocks_unread(computed), most) - live)


def counts_by(settings: Settings, to_come: Callable[..., int]) -> Settings:
    """The settings by which a gate that counts ``to_come`` counts: what all steps in flight compute may be one step."""
    at_once = all_at_once(settings)
    asked = settings.tokens_max, 0, [()] * len(settings.geometry.groups)
    # A gate that counts all steps as one counts one step that computes as much alike, the longest request too.
    return at_once if to_come(settings, *asked) == to_come(evolve(at_once, steps_in_flight_max=1), *asked) else settings


def all_at_once(settings: Settings) -> Settings:
    """The settings of a step that computes what all steps in flight compute."""
    return evolve(settings, chunk_tokens=settings.chunk_tokens * settings.steps_in_flight_max)


def counted_with(
    settings: Settings,
    count: int,
    tokens: int,
    computed: int,
    tables: Sequence[Sequence[int]],
    counts: Callable[..., int] = blocks_to_take,
) -> Settings | None:
    """The settings by which a gate that ``counts`` so finds so many blocks; None if there are none.

    A release may count what all steps in flight compute as one step.
    """
    those = (each for each in (settings, all_at_once(settings)) if counts(each, tokens, computed, tables) == count)
    return next(those, None)
