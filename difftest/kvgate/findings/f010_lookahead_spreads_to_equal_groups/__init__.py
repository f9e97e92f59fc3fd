"""Finding 010: One group's draft layer makes all groups like it ask for a look-ahead block."""

from __future__ import annotations

from attrs import evolve

from kvgate.findings.finding import Finding
from kvgate.findings.in_turn import hits_whole_blocks
from kvreference.geometry import Geometry
from kvreference.settings import Settings


def spread(settings: Settings) -> Settings:
    """The same with a draft layer in every group that is like one with a draft layer.

    What decides what is kept for a hit, retention and pins, goes by what the look-up asks for.
    """
    groups = settings.geometry.groups
    flagged = {group for group in groups if group.lookahead}
    asked = ((group, evolve(group, lookahead=True)) for group in groups if not group.keeps_states)
    alike = {group: likewise for group, likewise in asked if likewise in flagged}
    return evolve(settings, geometry=Geometry(tuple(alike.get(group, group) for group in groups)))


FINDING = Finding(
    id="010-lookahead-spreads-to-equal-groups",
    rank=0,
    statement="KV-OP-01",
    condition="groups that are alike but for a draft layer",
    where=lambda settings: hits_whole_blocks(settings) and spread(settings) != settings,
    settings=spread,
)
