"""Finding 010: One group's draft layer makes all groups like it ask for a look-ahead block."""

from __future__ import annotations

from attrs import evolve

from kvgate.findings.explaining import hits_whole_blocks
from kvgate.findings.finding import Finding, LiveReference
from kvreference.answers import Hit
from kvreference.choices import Choices
from kvreference.geometry import Geometry
from kvreference.hit_lookup import longest_hit
from kvreference.manager import OWN, Manager
from kvreference.population import Population
from kvreference.settings import Settings


class LookAheadSpreads(Manager):
    """Groups that are alike but for a draft layer are looked up together, as if it lived in all of them.

    What decides what is kept for a hit, retention and pins, goes by what the look-up asks for.
    """

    def __init__(self, settings: Settings, choices: Choices = OWN) -> None:
        super().__init__(evolve(settings, geometry=spread(settings.geometry)), choices)
        # Where the draft layers truly live is still what the model says.
        self.population = Population(settings)


def spread(geometry: Geometry) -> Geometry:
    """The same with a draft layer in every group that is like one with a draft layer."""
    flagged = {group for group in geometry.groups if group.lookahead}
    asked = ((group, evolve(group, lookahead=True)) for group in geometry.groups if not group.keeps_states)
    return Geometry(tuple(alike if alike in flagged else group for group, alike in asked))


def _answers_live(live: LiveReference, number: int, hit: Hit) -> bool:
    geometry = spread(live.geometry)
    tokens = len(live.population[number].tokens)
    return geometry != live.geometry and hit == longest_hit(geometry, live.pool.cached, live.prefixes[number], tokens)


FINDING = Finding(
    id="010-lookahead-spreads-to-equal-groups",
    rank=16,
    where=hits_whole_blocks,
    fault=LookAheadSpreads,
    together_with=(
        "002-gate-subtracts-skipped-blocks",
        "006-aligned-before-the-drop",
        "008-external-tokens-take-other-hits",
        "009-load-forgets-its-last-token",
    ),
    explains_hit=_answers_live,
)
