"""vLLM 0.20.2 with the plug-in, in lockstep with the reference.

Goal: a switched-on feature does what the reference says, on every mechanism that the plug-in has, with drafts and with
transfers. With nothing switched on, the plug-in's patches in place make no difference. Method: lockstep over generated
cases, in which only declared findings may differ. The plug-in broken, one thing at a time, is in
test_plugin_mutants.py.
"""

from __future__ import annotations

from collections import Counter

import pytest

from kvgate.adapters.registry import load_system
from kvgate.findings import explain
from kvgate.gate.case_runner import Lane
from kvgate.gate.generator import PRESETS, Generator
from kvgate.kernel.models import load
from kvgate.levels.manager import Bench, draw_case, run

pytest.importorskip("vllm")

AGREED = (
    "mixed-blocks+masked+scratch",
    "mixed-blocks+mtp+masked+scratch+transfers",
    "mixed-blocks+eagle+retention=64+scratch",
    "gpt-oss-hybrid+retention+scratch",
    "gemma-hybrid+pinned=2",
    "mixed-blocks+eagle+pinned=1+retention=32+scratch",
    "mixed-blocks+pinned=2+transfers",
    "mixed-blocks+mtp+masked",
    "gpt-oss-hybrid+retention=32",
    "gemma-hybrid+eagle+scratch",
    "full",
    "gpt-oss-hybrid+mtp",
)
"""Models on which nothing differs that is not declared; the last ones have nothing switched on."""
OPERATIONS = 1500


def differences(model: str, operations: int = OPERATIONS) -> Counter[str]:
    """The differences in generated cases, by statement, apart from declared findings."""
    bench, found, performed, index = Bench(load_system("retention").factory), Counter[str](), 0, 0
    while performed < operations:
        lane = Lane(load(model), ("tiny", "hostile", "long")[index % 3])
        generator = Generator(PRESETS[lane.preset], lane.model.geometry, lane.model.features)
        case = draw_case(generator, lane, f"retention/{index}", 0)
        lockstep, divergences = run(bench, case.settings, case.operations)
        for divergence in divergences:
            found[explain(divergence, lockstep) or f"undeclared {divergence.difference.statement}"] += 1
        performed, index = performed + len(lockstep.performed), index + 1
    return found


def undeclared(found: Counter[str]) -> set[str]:
    """The statements of what nothing explains."""
    return {name.removeprefix("undeclared ") for name in found if name.startswith("undeclared")}


@pytest.mark.few(1)
@pytest.mark.parametrize("model", AGREED)
def test_it_agrees(model: str) -> None:
    """Nothing that is not declared of vLLM itself."""
    assert set() == undeclared(differences(model))
