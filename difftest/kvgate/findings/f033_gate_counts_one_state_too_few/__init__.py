"""Finding 033: The admission gate counts one state too few where states are kept at block ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvgate.findings.finding import Acts, Finding
from kvgate.findings.gate_counts import blocks_to_take, counted_with, with_dead_entries_off
from kvreference.admission import blocks_to_come_with
from kvreference.geometry import Group
from kvreference.mamba import StateMode
from kvreference.rules import Delta
from kvreference.settings import Settings


def _keeps_one_state(
    to_come: Callable[..., int], settings: Settings, tokens: int, computed: int, tables: Sequence[Sequence[int]]
) -> int:
    """The state that the running one comes from is not counted, unless it is held: the hit has it."""
    return to_come(settings, tokens, computed, tables) - sum(
        not any(table) and group.entries(tokens, tokens) - group.blocks_unread(computed) > 1 + group.draft_states
        for group, table in zip(settings.geometry.groups, tables, strict=True)
        if _is_aligned(group)
    )


def _is_aligned(group: Group) -> bool:
    return group.states is StateMode.ALIGN


FINDING = Finding(
    id="033-gate-counts-one-state-too-few",
    rank=16,
    statement="KV-OP-03",
    condition="states kept at block ends, and a request of more than one block",
    where=lambda settings: any(map(_is_aligned, settings.geometry.groups)),
    acts=lambda *_run: Acts([Delta(blocks_to_come_with.__name__, _keeps_one_state)]),
    holds=lambda ideal, answered, settings, tokens, computed, tables: (
        0 < ideal - answered <= sum(map(_is_aligned, settings.geometry.groups))
        # Next to windows, finding 002 acts before.
        and any(
            counted_with(settings, ideal, tokens, computed, tables, each)
            for each in (blocks_to_take, with_dead_entries_off)
        )
    ),
)
