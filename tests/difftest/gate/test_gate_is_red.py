"""``pytest difftest/`` is red with a fault in any of the four packages, or in vLLM, and green without.

Goal: a green gate means something, wherever a fault is. Method: inject one, run the gate as a user would, in a process
of its own, and check its exit code and output. ``python tests/difftest/gate/test_gate_is_red.py`` prints a table.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from attrs import frozen

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

# The same file is a plug-in of the runs below: by its own name, for pytest finds it on the path; mypy does not.
from planted import HYBRID, PLANTS, VARIABLE, Plant  # type: ignore[import-not-found]  # noqa: E402

pytestmark = pytest.mark.ci

ROOT = HERE.parents[2]
SECONDS = 900


@frozen
class Ended:
    """How a run of the gate ended."""

    code: int
    failed: str
    """The first test that failed."""
    output: str
    seconds: float


def gate(name: str | None, model: str, sut: str) -> Ended:
    """Run the gate on one model, with a fault or without, until the first test fails."""
    environment = {key: value for key, value in os.environ.items() if key != VARIABLE}
    environment |= {"PYTHONPATH": str(HERE)} | ({} if name is None else {VARIABLE: name})
    options = ["-x", "-q", "-p", "planted", "--profile", "precommit", "--model", model, "--sut", sut]
    # Until then, findings are shrunk.
    options += ["--time-budget", "20s"]
    started = time.monotonic()
    command = [sys.executable, "-m", "pytest", "difftest", *options]
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=SECONDS)
    failed = re.search(r"(?m)^FAILED (\S+)", ended.stdout)
    failure = failed[1] if failed else ""
    return Ended(ended.returncode, failure, ended.stdout + ended.stderr, time.monotonic() - started)


def test_all_packages_get_a_fault() -> None:
    """Goal: at least ten faults, in each of the four packages and in vLLM. Method: count."""
    packages = {"reference/kvreference", "spec/kvspec", "impl/swa_retention", "difftest/kvgate", "vLLM"}
    assert packages == {plant.package for plant in PLANTS.values()}
    assert len(PLANTS) >= 10


@pytest.mark.deep
def test_without_a_fault_the_gate_is_green() -> None:
    """Goal: the failures below are due to their faults. Method: the same run without a fault."""
    pytest.importorskip("vllm")
    ended = gate(None, HYBRID, "stock")
    assert ended.code == 0, ended.output


QUICK = ("reference-window-a-token-short", "spec-reads-a-token-less", "gate-ghost-looks-away")
"""Those that fail in a proof or in a check, before the gate has run. The others take a minute each."""


@pytest.mark.parametrize(
    ("name", "plant"),
    [
        pytest.param(name, plant, id=name, marks=() if name in QUICK else pytest.mark.deep)
        for name, plant in PLANTS.items()
    ],
)
def test_with_a_fault_the_gate_is_red(name: str, plant: Plant) -> None:
    """Goal: exit 1, and the guarantee that is violated. Method: one fault a run."""
    pytest.importorskip("vllm")
    ended = gate(name, plant.model, plant.sut)
    assert ended.code == 1, ended.output
    assert ended.failed.startswith("difftest/")
    assert plant.says in ended.output, ended.output


if __name__ == "__main__":
    print(f"{'fault':<34} {'in':<22} {'says':<11} {'seconds':>7}  first test that fails")
    for name, plant in PLANTS.items():
        ended = gate(name, plant.model, plant.sut)
        says = plant.says if plant.says in ended.output else "SILENT"
        color = "" if ended.code == 1 else f"EXIT {ended.code} "
        print(f"{name:<34} {plant.package:<22} {says:<11} {ended.seconds:>7.0f}  {color}{ended.failed}", flush=True)
