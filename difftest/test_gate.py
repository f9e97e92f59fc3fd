"""The gate: a system under test in lockstep with the reference, on every model, by both drivers."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from attrs import evolve
from hypothesis import settings

from kvgate.adapters.registry import Loaded
from kvgate.cli.check import publish, verdict_of
from kvgate.gate.campaign import Campaign
from kvgate.gate.case_runner import Lane, Trials
from kvgate.gate.generator import PRESETS
from kvgate.gate.level import LevelChoice
from kvgate.gate.machine import DivergenceError, machine_for, search
from kvgate.gate.profiles import PROFILES, models_named, plan
from kvgate.gate.verdict import Verdict
from kvgate.kernel.errors import UsageError
from kvgate.kernel.models import Model
from kvgate.kernel.output import Format
from kvgate.levels.manager import GATE, MONITORS, Bench
from kvgate.levels.registry import LEVELS, not_tested, prepare
from kvgate.report.page.recording import once_more

EXAMPLES_OF = {"blocks": 1, "scheduler": 3, "pair": 3, "worker": 20}
"""By what the number of a state machine's cases is divided: schedulers take longer to build."""


@pytest.fixture
def bench(system: Loaded, pytestconfig: pytest.Config) -> Bench:
    """The system with everything that judges it."""
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
    verdict = verdict_of(system, profile, planned.seed, bench.judges, outcome, preloads)
    if verdict.found:
        report: Path | None = pytestconfig.getoption("--report")
        publish(verdict, report, Format.TEXT, not_tested(LevelChoice.BLOCKS), once_more(system, bench.detectors))
        pytest.fail(capsys.readouterr().out, pytrace=False)
    assert verdict.operations > 0


def test_no_divergence_under_a_scheduler(
    system: Loaded,
    model: Model,
    seconds: float | None,
    pytestconfig: pytest.Config,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Goal: nor when vLLM's own scheduler decides. Method: seeded cases, a worker without a model, the same judges."""
    try:
        (prepared,) = prepare(
            LevelChoice.SCHEDULER,
            system,
            [model],
            pytestconfig.getoption("--profile"),
            seed=pytestconfig.getoption("--seed"),
            seconds=seconds,
            monitors_only=pytestconfig.getoption("--monitors-only"),
        )
    except UsageError as error:
        pytest.skip(str(error))
    models = len(models_named(pytestconfig.getoption("--model")))
    planned = evolve(prepared.plan, operations=prepared.plan.operations // models)
    outcome = Campaign(prepared.trials, planned).run()
    preloads = pytestconfig.getoption("--preload")
    profile = pytestconfig.getoption("--profile")
    verdict = verdict_of(system, profile, planned.seed, prepared.trials.bench.judges, outcome, preloads)
    if verdict.found:
        publish(verdict, pytestconfig.getoption("--report"), Format.TEXT, not_tested(LevelChoice.SCHEDULER))
        pytest.fail(capsys.readouterr().out, pytrace=False)
    assert verdict.operations > 0


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", LEVELS)
def test_no_divergence_that_hypothesis_finds(
    system: Loaded,
    model: Model,
    name: str,
    preset: str,
    pytestconfig: pytest.Config,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Goal: nothing diverges that is not declared. Method: a state machine for each level, which shrinks what fails."""
    level, seconds = LEVELS[name], PROFILES[pytestconfig.getoption("--profile")].shrink_seconds / 2
    try:
        bench = level.bench(system, level.monitors if pytestconfig.getoption("--monitors-only") else level.gate)
        examples = settings().max_examples // EXAMPLES_OF[name]
        search(machine_for(bench, Lane(model, preset)), settings(max_examples=examples), seconds)
    except UsageError as error:
        pytest.skip(str(error))
    except DivergenceError as error:
        # What Hypothesis has left gets smaller where it did not look.
        smallest = Trials(bench).smallest(error.found, time.monotonic() + seconds)
        verdict = Verdict(
            system.name,
            system.version,
            pytestconfig.getoption("--profile"),
            pytestconfig.getoption("--seed"),
            bench.judges,
            found=(smallest,),
            preloads=tuple(map(str, pytestconfig.getoption("--preload"))),
        )
        # Hypothesis complains of the time that it was given.
        capsys.readouterr()
        publish(verdict, pytestconfig.getoption("--report"), Format.TEXT, not_tested(LevelChoice(name)))
        program = "\n".join(getattr(error, "__notes__", ()))
        pytest.fail(f"{capsys.readouterr().out}\n{program}", pytrace=False)
