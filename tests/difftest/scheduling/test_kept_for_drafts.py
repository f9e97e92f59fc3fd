"""Finding 075: what it recognises, and what is near it and is another hang.

Method: the state of an engine by hand: 36 blocks of 16 tokens, six groups, one draft, one request of 81 tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from attrs import evolve

from kvgate.findings.f075_load_kept_out_by_its_own_drafts import FINDING, blocks_of_a_draft_step
from kvgate.kernel.difference import Difference, Divergence
from kvgate.monitors.wait_graph import Reason, Wait
from kvreference.geometry import Geometry, Group
from kvreference.population import Status
from kvreference.settings import Settings

SETTINGS = Settings(Geometry((Group("full", 16),) * 6), blocks=37, tokens_max=200, drafts_max=1)
HANG = Difference("KV-LIVE-03", "progress", "a request makes progress, or something changes", "36 blocks are free")


def recognised(
    detector: str = "progress",
    difference: Difference = HANG,
    free: int = 36,
    kept: int = 6,
    tokens: int = 81,
    loads: Mapping[int, bool] | None = None,
    edges: tuple[Wait, ...] = (),
    drafts: int = 1,
) -> bool:
    """Whether the finding explains that requests wait which ``loads`` names, and whether each would load."""
    offered = {0: True} if loads is None else loads
    alive = {number: SimpleNamespace(status=Status.WAITING, tokens=[0] * tokens) for number in offered}

    class Alive(dict[int, Any]):
        alive: Any

    population = Alive(alive)
    population.alive = alive
    followed = SimpleNamespace(
        snapshot=lambda: SimpleNamespace(blocks_free=free, tables={}), kept_last=kept, population=population
    )
    engine: Any = SimpleNamespace(
        settings=evolve(SETTINGS, drafts_max=drafts),
        followed=followed,
        progress=SimpleNamespace(waiting=SimpleNamespace(edges=edges)),
        nodes=SimpleNamespace(offers={number: SimpleNamespace(loads=each) for number, each in offered.items()}),
    )
    assert FINDING.explains_engine is not None
    return bool(FINDING.explains_engine(Divergence(0, None, detector, difference), engine))


def test_a_load_that_fits_alone_and_not_with_a_draft_step_is_recognised() -> None:
    """36 blocks are free, it needs 36, and 6 are kept."""
    assert 6 == blocks_of_a_draft_step(SETTINGS)
    assert recognised()


BEHIND = (Wait(1, Reason.LINE, 0),)


@pytest.mark.parametrize(
    "other",
    [
        {"detector": "line"},
        {"difference": evolve(HANG, statement="KV-LIVE-02", subject="request 0")},
        {"free": 35},
        {"kept": 0},
        {"kept": 12},
        # Both fit, and neither fits.
        {"tokens": 64},
        {"tokens": 97},
        {"drafts": 40},
        {"loads": {0: False}},
        # The first request does not load, and one after it does; or the first is unknown.
        {"loads": {0: False, 1: True}, "edges": BEHIND},
        {"loads": {0: True, 1: True}},
    ],
)
def test_what_is_near_it_is_another_hang(other: dict[str, Any]) -> None:
    """The controls are a request that loads before another, and before one whose connector has not answered."""
    assert recognised(loads={0: True, 1: False}, edges=BEHIND)
    assert recognised(loads={0: True, 1: False}, edges=(Wait(1, Reason.ANSWER),))
    assert not recognised(**other)
