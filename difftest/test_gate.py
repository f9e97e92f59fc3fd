"""The gate: a system under test in lockstep with the reference, on every model, by both drivers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from kvgate.adapters.registry import Loaded
from kvgate.cli.check import begun_with, publish
from kvgate.gate.campaign import Campaign
from kvgate.gate.case_runner import Trials
from kvgate.gate.generator import PRESETS
from kvgate.gate.level import LevelChoice
from kvgate.gate.profiles import PROFILES, models_named, plan
from kvgate.kernel.models import Model
from kvgate.kernel.output import Format
from kvgate.levels.manager import GATE, MONITORS, Bench
from kvgate.levels.registry import LEVELS, not_tested
from kvgate.report.page.recording import once_more


@pytest.fixture
def bench(system: Loaded, pytestconfig: pytest.Config) -> Bench:
    """The system with everything that checks it."""
    return Bench(system.factory, MONITORS if pytestconfig.getoption("--monitors-only") else GATE)


def test_no_divergence(
    bench: Bench,
    system: Loaded,
    model: Model,
    seconds: float | None,
    pytestconfig: pytest.Config,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Goal: nothing diverges that is not declared. Method: seeded cases of every preset, as the profile says."""
    profile = pytestconfig.getoption("--profile")
    planned = plan(profile, [model], seed=pytestconfig.getoption("--seed"), seconds=seconds)
    models = len(models_named(pytestconfig.getoption("--model")))
    outcome = Campaign(Trials(bench), evolve(planned, operations=PROFILES[profile].operations // models)).run()
    preloads = pytestconfig.getoption("--preload")
    verdict = outcome.of(begun_with(system, profile, planned.seed, bench.checkers, preloads))
    if not verdict.agrees:
        report: Path | None = pytestconfig.getoption("--report")
        left_out = not_tested(LevelChoice.BLOCKS, system.name)
        publish(verdict, report, Format.TEXT, left_out, once_more(system, bench.detectors))
        pytest.fail(capsys.readouterr().out, pytrace=False)
    assert verdict.operations > 0


def test_no_divergence_under_a_scheduler(system: Loaded, model: Model, search_for: Any) -> None:
    """Goal: nor when vLLM's own scheduler decides. Method: seeded cases, a worker without a model, all checkers."""
    search_for.seeded(LevelChoice.SCHEDULER, system, model, len(models_named(search_for.config.getoption("--model"))))


@pytest.mark.parametrize("preset", PRESETS)
# The connectors of that level are of three releases alone: kvgate check --level tiers --sut native@0.33.0.
@pytest.mark.parametrize("name", [name for name in LEVELS if name != LevelChoice.TIERS.value])
def test_no_divergence_that_hypothesis_finds(
    system: Loaded, model: Model, name: str, preset: str, search_for: Any
) -> None:
    """Goal: nothing diverges that is not declared. Method: a state machine for each level, which shrinks what fails."""
    search_for.by_hypothesis(LevelChoice(name), system, model, preset)
