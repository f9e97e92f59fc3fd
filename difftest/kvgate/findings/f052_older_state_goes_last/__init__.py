"""Finding 052: The state before last goes to the back of the free queue, although it is scratch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvgate.findings.finding import Acts, Finding
from kvreference.block_pool import NULL
from kvreference.geometry import Group
from kvreference.holdings import goes_last
from kvreference.mamba import StateMode
from kvreference.rules import Delta
from kvreference.settings import Settings


def _after_a_gap(
    last: Callable[[Group, Sequence[int]], Sequence[int]], group: Group, blocks: Sequence[int]
) -> Sequence[int]:
    """The states after the first place that a step passed, if the dead blocks are searched from their end."""
    if group.states is not StateMode.ALIGN or NULL not in blocks:
        return last(group, blocks)
    return (*last(group, blocks), *(block for block in blocks[blocks.index(NULL) :] if block != NULL))


def _can_act(settings: Settings) -> bool:
    return settings.scratch_first and any(group.states is StateMode.ALIGN for group in settings.geometry.groups)


FINDING = Finding(
    id="052-older-state-goes-last",
    rank=52,
    statement="KV-OP-05",
    condition="states kept at block ends, scratch that goes first, and a chunk of several blocks",
    where=_can_act,
    acts=lambda *_run: Acts([Delta(goes_last.__name__, _after_a_gap)]),
    holds=lambda _ideal, _answered, group, blocks: group.states is StateMode.ALIGN and NULL in blocks,
)
