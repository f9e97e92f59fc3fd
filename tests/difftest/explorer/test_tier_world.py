"""The world of a second tier.

Goal: all of a tiny one is visited, its form merges nothing that differs, and its stories can be read. Method: figures
that were counted when this was written; forms that leave something out; the story of a design that does not work.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import pytest

from kvgate.explore.bisimulation import unlike
from kvgate.explore.designs import DESIGNS
from kvgate.explore.exploration import Limits
from kvgate.explore.explored import Explored
from kvgate.explore.tier_world import TierWorld
from kvgate.explore.tiny_models import MODELS
from kvgate.report.exploration import report_of

from .stage import AMPLE, explore

SMALL = Limits(states_max=20, seconds_max=60.0)


@pytest.mark.ci
def test_all_of_the_smallest() -> None:
    seen = explore(MODELS["tiny-tier"].world(), AMPLE)
    assert (True, 1466, 6911, 15) == (seen.exhaustive, seen.states, seen.edges, seen.depth)


def _without(column: int) -> Callable[[Any], Hashable]:
    return lambda key: (*key[:column], None, *key[column + 1 :])


@pytest.mark.ci
@pytest.mark.parametrize(
    ("column", "model"),
    [(2, "tiny-tier"), (3, "tiny-tier"), (4, "tiny-tier-window")],
    ids=["jobs", "blocks", "chunks"],
)
def test_a_form_that_leaves_something_out_is_caught(column: int, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of requests nothing need be kept near the initial state: what blocks hold, and their holders, decide."""
    whole, forget = TierWorld.key, _without(column)
    monkeypatch.setattr(TierWorld, "key", lambda self, state: forget(whole(self, state)))
    assert unlike(MODELS[model].world(), states_max=400, pairs_max=400) is not None


def test_a_story() -> None:
    """A load whose chunk is evicted, as a user of the command reads it."""
    design = DESIGNS["job-holds-no-block"]
    world = MODELS[design.model].world(design=design)
    report = report_of([Explored(world, explore(world, AMPLE), design)])
    lines = report.found[0].text.splitlines()
    assert (
        "KV-TIER-02: No block of either tier is used for anything else before the jobs that read or write it"
        in lines[1]
    )
    assert "     0  A request asks for a" in lines
    assert any("leaves" in line or "is to be stored" in line for line in lines)


def test_what_is_claimed_of_it() -> None:
    """Its own guarantees, and those of a block manager only if one is explored as well."""
    claims = []
    for names in (["tiny-tier"], ["tiny-full", "tiny-tier"]):
        worlds = [MODELS[name].world() for name in names]
        claims.append(report_of([Explored(world, explore(world, SMALL)) for world in worlds]).claimed)
    assert not any("KV-MEM" in claim for claim in claims[0])
    assert any("KV-TIER-02" in claim for claim in claims[0])
    assert set(claims[0]) < set(claims[1])
    assert any("KV-MEM" in claim for claim in claims[1])
