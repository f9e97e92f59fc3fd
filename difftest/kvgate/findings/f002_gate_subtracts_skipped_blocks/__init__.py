"""Finding 002: The admission gate lets in requests with a long hit for which there is no room."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvgate.findings.finding import Acts, Finding
from kvreference.admission import blocks_to_come_with
from kvreference.block_pool import NULL
from kvreference.rules import Delta
from kvreference.settings import Settings


def _counts_dead_entries(
    to_come: Callable[..., int], settings: Settings, tokens: int, computed: int, tables: Sequence[Sequence[int]]
) -> int:
    """The whole table is taken off what a request holds at once at most, of which the dead entries are no part."""
    del computed
    return to_come(settings, tokens, 0, [(1,) * len(table) for table in tables])


def _holds_dead_entries(settings: Settings, computed: int, tables: Sequence[Sequence[int]]) -> bool:
    """Whether blocks are still held that the window has left: those of a session, until it has its next part's."""
    unread = [group.blocks_unread(computed) for group in settings.geometry.groups]
    return any(block != NULL for dead, table in zip(unread, tables, strict=True) for block in table[:dead])


def _too_few_at_most(settings: Settings, tokens: int, computed: int, tables: Sequence[Sequence[int]]) -> int:
    """How many dead entries there are by which the bound on what is held at once was not lowered."""
    count = 0
    for group, table in zip(settings.geometry.groups, tables, strict=True):
        entries, most = (
            group.entries(tokens, tokens),
            group.blocks_held_at_most(settings.chunk_tokens, settings.tokens_max),
        )
        lowered = min(entries, most) - min(entries - group.blocks_unread(computed), most)
        count += max(0, list(table).count(NULL) - lowered)
    return count


def _follows(
    ideal: int, answered: int, settings: Settings, tokens: int, computed: int, tables: Sequence[Sequence[int]]
) -> bool:
    """No more blocks are too few than there are such entries."""
    if answered < ideal:
        return ideal - answered <= _too_few_at_most(settings, tokens, computed, tables)
    return _holds_dead_entries(settings, computed, tables)


def _leaves_blocks_dead(settings: Settings) -> bool:
    groups = settings.geometry.groups
    return any(group.window_tokens for group in groups) and not any(group.keeps_states for group in groups)


FINDING = Finding(
    id="002-gate-subtracts-skipped-blocks",
    rank=3,
    statement="KV-OP-03",
    condition="a window that has left entries of the table: fewer blocks seem to be needed, or more if they are held",
    where=_leaves_blocks_dead,
    acts=lambda *_run: Acts([Delta(blocks_to_come_with.__name__, _counts_dead_entries)]),
    holds=_follows,
)
