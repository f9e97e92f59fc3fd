"""Finding 010: One group's draft layer makes all groups like it ask for a look-ahead block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import evolve

from kvgate.findings.finding import Acts, Finding
from kvgate.findings.in_turn import Longest, hits_whole_blocks, without_look_ahead
from kvreference.hit_lookup import longest_length
from kvreference.rules import Delta
from kvreference.settings import Settings


def spread(settings: Settings) -> Settings:
    """The same with a draft layer in every group that is like one with a draft layer.

    What decides what is kept for a hit, retention and pins, goes by what the look-up asks for.
    """
    groups = settings.geometry.groups
    flagged = {group for group in groups if group.lookahead}
    asked = ((group, evolve(group, lookahead=True)) for group in groups if not group.keeps_states)
    alike = {group: likewise for group, likewise in asked if likewise in flagged}
    return evolve(
        settings, geometry=evolve(settings.geometry, groups=tuple(alike.get(group, group) for group in groups))
    )


def _acts(settings: Settings, _release: str) -> Acts:
    groups = settings.geometry.groups

    def as_given(longest: Longest, found: Sequence[Any], lengths: range, *rest: int) -> int:
        """Only groups that were given a look-ahead block ask for one."""
        given = [each if groups[each.index].lookahead else without_look_ahead(each) for each in found]
        return longest(given, lengths, *rest)

    return Acts(without=[Delta(longest_length.__name__, as_given)])


FINDING = Finding(
    id="010-lookahead-spreads-to-equal-groups",
    rank=0,
    statement="KV-OP-01",
    condition="groups that are alike but for a draft layer",
    where=lambda settings: hits_whole_blocks(settings) and spread(settings) != settings,
    acts=_acts,
    holds=lambda ideal, answered, *_arguments: answered < ideal,
    settings=spread,
)
