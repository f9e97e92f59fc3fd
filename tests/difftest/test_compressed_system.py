"""Models with several groups of compressed attention, on vLLM 0.20.2 with the plug-in, and as published.

Goal: with two groups of full attention vLLM's own managers leave a table longer than the hit; with the plug-in they do
what the reference says. Method: lockstep over drawn cases; and the plug-in broken, which must differ again.
"""

from __future__ import annotations

from collections import Counter

import pytest

from kvgate.campaign import Lane, draw_case
from kvgate.declared import explain
from kvgate.generators import PRESETS, Generator
from kvgate.models import load
from kvgate.runner import Bench, run
from kvgate.systems import load_system

pytest.importorskip("vllm")

MODELS = ("compressed", "compressed+eagle", "compressed+mtp+masked+scratch", "compressed+pinned=2+transfers")
OPERATIONS = 900
TRIES_MAX = 12


def differences(system: str, model: str, operations: int = OPERATIONS) -> Counter[str]:
    """What differs in drawn cases and is not declared, by statement."""
    bench, found, performed, index = Bench(load_system(system).factory), Counter[str](), 0, 0
    while performed < operations:
        lane = Lane(load(model), ("tiny", "hostile")[index % 2])
        generator = Generator(PRESETS[lane.preset], lane.model.geometry, lane.model.features)
        case = draw_case(generator, lane, f"compressed/{index}", 0)
        lockstep, divergences = run(bench, case.settings, case.operations)
        found.update(each.difference.statement for each in divergences if not explain(each, lockstep))
        performed, index = performed + len(lockstep.performed), index + 1
    return found


@pytest.mark.parametrize("model", MODELS)
def test_it_agrees(model: str) -> None:
    """Nothing that is not declared of vLLM itself."""
    assert Counter() == differences("retention", model)


def test_vllm_as_published_does_not() -> None:
    """The second group's blocks go on behind the hit: what the plug-in is for."""
    assert "KV-OP-05" in differences("stock", "compressed")


def test_a_plug_in_that_cuts_nothing_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is vLLM as published again."""
    load_system("retention")
    monkeypatch.setattr("swa_retention.patches.compressed.cut", lambda *_all: None)
    assert "KV-OP-05" in differences("retention", "compressed")
