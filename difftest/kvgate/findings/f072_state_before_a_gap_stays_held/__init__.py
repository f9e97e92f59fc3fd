"""Finding 072: With asynchronous steps, a state before a gap stays held until its request ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvgate.findings.finding import Acts, Finding
from kvreference.block_pool import NULL
from kvreference.geometry import Group
from kvreference.holdings import places_released
from kvreference.mamba import StateMode
from kvreference.rules import Delta
from kvreference.settings import Settings


def _up_to_a_gap(
    released: Callable[[Group, Sequence[int], range], Sequence[int]], group: Group, blocks: Sequence[int], passed: range
) -> Sequence[int]:
    """Those before a null block are not, but for the last before the state that is computed now."""
    places = released(group, blocks, passed)
    if group.states is not StateMode.ALIGN:
        return places
    gap = max((place for place in passed if blocks[place] == NULL), default=passed.start - 1)
    now = len(blocks) - 1 - group.draft_states
    before = max((place for place in range(passed.start, now) if blocks[place] != NULL), default=now)
    return tuple(place for place in places if place >= gap or place == before or blocks[place] == NULL)


def _can_act(settings: Settings) -> bool:
    return any(group.states is StateMode.ALIGN for group in settings.geometry.groups)


FINDING = Finding(
    id="072-state-before-a-gap-stays-held",
    rank=72,
    statement="KV-OP-06",
    condition="states kept at block ends, asynchronous steps, and a chunk of several blocks",
    where=_can_act,
    on=lambda stage: stage.asynchronous,
    acts=lambda *_run: Acts([Delta(places_released.__name__, _up_to_a_gap)]),
    holds=lambda _ideal, _answered, _group, blocks, passed: any(blocks[place] != NULL for place in passed),
)
