"""Finding 059: The first step after a hit goes over all null blocks of its states."""

from __future__ import annotations

from collections.abc import Callable

from kvgate.findings.finding import Acts, Finding
from kvgate.monitors.work import nulls_passed
from kvreference.geometry import Group
from kvreference.mamba import StateMode
from kvreference.rules import Delta
from kvreference.settings import Settings


def _until_retired(passed: Callable[[Group, int], int], group: Group, added: int) -> int:
    """Null blocks of states are retired one by one, once, in the step after the one that added them."""
    return added if group.states is StateMode.ALIGN else passed(group, added)


def _can_act(settings: Settings) -> bool:
    return any(group.states is StateMode.ALIGN for group in settings.geometry.groups)


FINDING = Finding(
    id="059-null-blocks-gone-over-once",
    rank=59,
    statement="KV-WORK-02",
    condition="states kept at block ends, and null blocks that were added just before the step",
    where=_can_act,
    acts=lambda *_run: Acts([Delta(nulls_passed.__name__, _until_retired)]),
    detector="work",
    holds=lambda _ideal, _answered, group, added: group.states is StateMode.ALIGN and added > 0,
)
