"""The order in which Python reads sets changes nothing at the level of two tiers.

Goal: the same case does the same in every process. Method: cases by their seeds in two processes that hash strings to
something else. Both perform the same operations, find the same, and leave the same in both tiers.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from tests.published import published

from kvgate.adapters.releases import LMCACHE, release_named
from kvgate.levels.tiers.level import ASCEND_SYSTEMS, NIXL_SYSTEMS, OWN_SYSTEMS, SYSTEMS, TIERING_SYSTEMS

PROGRAM = """
import sys
from hashlib import sha256
from kvgate.adapters.registry import load_system
from kvgate.gate.case_runner import run_case
from kvgate.kernel.models import load
from kvgate.levels.tiers.adapter.own import HOSTED, choose
from kvgate.levels.tiers.level import CONNECTOR, TIERS
from kvgate.levels.tiers.operations import OWN

name, suffix, cases, connectors = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:]
bench = TIERS.bench(load_system(name), TIERS.gate)
MODELS = {"lmcache": ("full",), "ascend-store": ("gemma-hybrid",)}


def content(tier):
    held = {}
    for place in sorted(tier):
        try:
            held[place] = tier[place]
        except KeyError:
            pass
    return held


for connector in connectors:
    if connector in HOSTED:
        choose(connector)
    needs = [CONNECTOR + (OWN if connector in HOSTED else connector)]
    for model in MODELS.get(connector, ("full", "gemma-hybrid+eagle")):
        for preset in ("legal", "hostile"):
            for number in range(cases):
                drawn = TIERS.draw(load(model + suffix), preset, f"order/{number}", needs=needs)
                run = run_case(bench, TIERS.allowed(bench, drawn))
                (engine,) = TIERS.parts(run.world, run.case)
                found = [(each.finding, str(each.divergence.difference)) for each in run.found()]
                held = content(engine.memory.device), content(engine.memory.host)
                seen = engine.lockstep.digest, sha256(repr(held).encode()).hexdigest(), run.performed, found
                print("RESULT", connector, model, preset, number, seen, flush=True)
"""


def connectors_of(name: str) -> list[str]:
    """The connectors that are driven on a system."""
    if name in ASCEND_SYSTEMS:
        return ["ascend-store"]
    named = {"nixl": NIXL_SYSTEMS, "tiering": TIERING_SYSTEMS, "lmcache": ("native@0.33.0",), "multi": OWN_SYSTEMS}
    return ["offloading", "simple", *(each for each, systems in named.items() if name in systems)]


@pytest.mark.ci
@pytest.mark.parametrize("name", [*SYSTEMS, *ASCEND_SYSTEMS])
def test_no_run_depends_on_the_order_of_a_set(name: str) -> None:
    pytest.importorskip("vllm")
    published(release_named(name))
    published(LMCACHE)
    suffix = "" if name in ("native@0.21.0", "native@0.22.1") else "+scratch"
    command = [sys.executable, "-c", PROGRAM, name, suffix, "4", *connectors_of(name)]
    running = [
        subprocess.Popen(
            command,
            env={**os.environ, "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for seed in ("0", "1")
    ]
    outputs = [each.communicate(timeout=900)[0] for each in running]
    first, second = ([line for line in each.splitlines() if line.startswith("RESULT")] for each in outputs)
    assert [0, 0] == [each.returncode for each in running]
    assert 8 <= len(first)
    assert first == second
