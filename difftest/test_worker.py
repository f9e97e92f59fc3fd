"""vLLM-Ascend's worker, as published and then with the plug-in: what it prepares for each step of a scheduler.

Run with ``--npu-sim`` on the CPU, with the stand-ins that ``difftest/ASCEND.md`` lists, or with ``--npu`` on an NPU.
Both are loaded into one process, first what is published: what the plug-in patches stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from attrs import evolve

from kvgate.adapters.registry import ASCEND_WORKERS, DEFAULT_MODELS, Loaded, load_system
from kvgate.gate.generator import PRESETS
from kvgate.gate.level import LevelChoice
from kvgate.gate.profiles import models_named
from kvgate.kernel.errors import SystemUnavailableError, UsageError
from kvgate.kernel.models import Model

EXAMPLES = 3
"""How many cases a state machine has: the first one of Hypothesis is nearly empty."""
SECONDS = 20.0
"""How long the seeded cases of one model are run, if --time-budget does not say."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for each model that is named, or that the worker is checked with by default."""
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
