"""vLLM-Ascend's worker, as published and then with the plug-in: what it prepares for each step of a scheduler.

Run with ``--npu-sim`` on the CPU, with the stand-ins that ``difftest/ASCEND.md`` lists, or with ``--npu`` on an NPU.
Both are loaded into one process, first what is published: what the plug-in patches stays.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from kvgate.adapters.device.npu import CPU, used_device
from kvgate.adapters.model_runner.block_sizes import SIZES
from kvgate.adapters.registry import ASCEND_WORKERS, DEFAULT_MODELS, Loaded, load_system
from kvgate.adapters.releases import LATER_ASCEND
from kvgate.adapters.releases.description import Release
from kvgate.gate.generator import PRESETS
from kvgate.gate.level import LevelChoice
from kvgate.gate.profiles import models_named
from kvgate.kernel.errors import SystemUnavailableError, UsageError
from kvgate.kernel.models import Model, load
from kvgate.kernel.output import UNAVAILABLE
from kvgate.levels.worker.page import MTP, SUFFIXES

EXAMPLES = 3
"""How many cases a state machine has: the first one of Hypothesis is nearly empty."""
SECONDS = 20.0
"""How long the seeded cases of one model are run, if --time-budget does not say."""
BLOCK_SIZES = [
    *(pytest.param(ASCEND_WORKERS[0], max(SIZES), suffixes) for suffixes in ("", MTP)),
    *(pytest.param(ASCEND_WORKERS[1], slots, suffixes) for slots in SIZES for suffixes in SUFFIXES),
]
"""What is published has one size of compressed blocks, and no partial hits."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for each model that is named, or that the worker is checked with by default."""
    if "served" not in metafunc.fixturenames:
        return
    names = metafunc.config.getoption("--model") or DEFAULT_MODELS[ASCEND_WORKERS[0]]
    try:
        models = models_named(names)
    except UsageError as error:
        raise pytest.UsageError(str(error)) from error
    metafunc.parametrize("served", models, ids=lambda model: model.name)


@pytest.fixture(scope="module", params=ASCEND_WORKERS)
def worker(request: pytest.FixtureRequest, pytestconfig: pytest.Config) -> Iterator[Loaded]:
    """The system; without it nothing is tested, and nothing passes."""
    try:
        yield load_system(request.param, pytestconfig.getoption("--preload"))
    except (SystemUnavailableError, UsageError) as error:
        pytest.exit(str(error), returncode=3)


def test_tables_and_slots_are_those_granted(worker: Loaded, served: Model, search_for: Any) -> None:
    """Goal: every block table and slot is that of the blocks that were granted. Method: seeded cases."""
    limited = search_for if search_for.seconds is not None else evolve(search_for, seconds=SECONDS)
    limited.seeded(LevelChoice.WORKER, worker, served, 1)


@pytest.mark.parametrize("preset", PRESETS)
def test_tables_and_slots_that_hypothesis_asks_for(worker: Loaded, served: Model, preset: str, search_for: Any) -> None:
    """Goal: the same. Method: a state machine, which shrinks what fails."""
    search_for.by_hypothesis(LevelChoice.WORKER, worker, served, preset, EXAMPLES)


@pytest.mark.parametrize(("worker", "slots", "suffixes"), BLOCK_SIZES, indirect=["worker"])
def test_compressed_blocks_of_each_size(worker: Loaded, slots: int, suffixes: str, search_for: Any) -> None:
    """Goal: DeepSeek-V4's groups are served in blocks of each size, with MTP and partial hits. Method: seeded cases."""
    limited = search_for if search_for.seconds is not None else evolve(search_for, seconds=SECONDS / 2)
    limited.seeded(LevelChoice.WORKER, worker, load(f"dsv4-flash-ascend-{slots}{suffixes}+whole-slots"), 1)


@pytest.mark.parametrize("release", LATER_ASCEND, ids=lambda each: each.worker_name)
def test_later_releases(release: Release, tmp_path: Path) -> None:
    """Goal: their workers, too. Method: the command, in a process of its own, for a process has one vLLM."""
    if used_device() != CPU:
        pytest.skip("not run: a process on an NPU has the release that is installed")
    options = (
        "--level",
        "worker",
        "--sut",
        release.worker_name,
        "--time-budget",
        f"{SECONDS:g}s",
        "--report",
        str(tmp_path),
    )
    command = (sys.executable, "-m", "kvgate.cli", "check", *options)
    finished = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if finished.returncode == UNAVAILABLE:
        pytest.skip(f"not run: {finished.stderr.strip()}")
    if finished.returncode:
        pytest.fail(finished.stdout + finished.stderr, pytrace=False)
