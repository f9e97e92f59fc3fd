"""Finding 002: The admission gate admits requests with a long hit that do not fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvgate.findings.finding import Acts, Finding
from kvgate.findings.gate_counts import blocks_to_take, counted_with, counts_by, with_dead_entries_off
from kvreference.admission import blocks_to_come_with
from kvreference.block_pool import NULL
from kvreference.rules import Delta
from kvreference.settings import Settings


def _takes_dead_entries_off(
    to_come: Callable[..., int], settings: Settings, tokens: int, computed: int, tables: Sequence[Sequence[int]]
) -> int:
    """The whole table is taken off what a request holds at once at most, of which the dead entries are no part."""
    right = to_come(settings, tokens, computed, tables)
    counted = counts_by(settings, to_come)
    wrong = with_dead_entries_off(counted, tokens, computed, tables)
    return right + wrong - blocks_to_take(counted, tokens, computed, tables)


def _by_dead_entries(
    ideal: int, answered: int, settings: Settings, tokens: int, computed: int, tables: Sequence[Sequence[int]]
) -> bool:
    """The two differ by no more than there are dead entries."""
    dead = (
        max(list(table).count(NULL), group.blocks_unread(computed))
        for group, table in zip(settings.geometry.groups, tables, strict=True)
        if group.window_tokens
    )
    counted = counted_with(settings, ideal, tokens, computed, tables)
    return counted is not None and abs(ideal - answered) <= sum(dead)


FINDING = Finding(
    id="002-gate-subtracts-skipped-blocks",
    rank=3,
    statement="KV-OP-03",
    condition="a window that has left entries of the table: fewer blocks seem to be needed, or more if they are held",
    where=lambda settings: any(group.window_tokens for group in settings.geometry.groups),
    acts=lambda *_run: Acts([Delta(blocks_to_come_with.__name__, _takes_dead_entries_off)]),
    holds=_by_dead_entries,
)
