"""Finding 033: The admission gate counts one state too few where states are kept at block ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvgate.findings.finding import Acts, Finding
from kvreference.admission import blocks_at_peak, blocks_to_come_with
from kvreference.block_pool import NULL
from kvreference.geometry import Group
from kvreference.mamba import StateMode
from kvreference.rules import Delta
from kvreference.settings import Settings


def _keeps_one_state(
    to_come: Callable[..., int], settings: Settings, tokens: int, computed: int, tables: Sequence[Sequence[int]]
) -> int:
    """A request takes the running state and one for each draft, and not the state that the running one comes from."""
    count = to_come(settings, tokens, computed, tables)
    for group, table in zip(settings.geometry.groups, tables, strict=True):
        if _is_aligned(group):
            live = sum(block != NULL for block in table)
            counted = 1 + group.draft_states if group.entries(tokens, tokens) > len(table) else 0
            count += counted - max(0, blocks_at_peak(settings, group, tokens, computed) - live)
    return count


def _is_aligned(group: Group) -> bool:
    return group.states is StateMode.ALIGN


FINDING = Finding(
    id="033-gate-counts-one-state-too-few",
    rank=16,
    statement="KV-OP-03",
    condition="states kept at block ends, and a request of more than one block",
    where=lambda settings: any(map(_is_aligned, settings.geometry.groups)),
    acts=lambda *_run: Acts([Delta(blocks_to_come_with.__name__, _keeps_one_state)]),
    holds=lambda ideal, answered, *_arguments: answered < ideal,
)
