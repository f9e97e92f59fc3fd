"""Runs of engines as a campaign asks for them, and what a command makes of them.

Goal: a fault of a scheduler is found, shrunk, stored, replayed and described; a sound one passes. Method: a broken
scheduler of vLLM in a campaign, and through ``kvgate check`` and ``kvgate replay``.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from attrs import evolve

pytest.importorskip("vllm")


from kvgate.adapters.registry import Loaded, load_system
from kvgate.gate.campaign import Campaign, Outcome, Plan
from kvgate.gate.case_runner import Lane, Trials, run_case
from kvgate.gate.level import Case, LevelChoice
from kvgate.gate.trace_codec import trace_of, write
from kvgate.gate.verdict import Found, Tally, Verdict
from kvgate.kernel.errors import UsageError
from kvgate.kernel.models import load
from kvgate.levels.registry import checkers_of, not_tested, prepare, read, together, unbounded
from kvgate.levels.scheduler.level import SCHEDULER
from kvgate.levels.scheduler.operations import Stage
from kvgate.report.campaign import report_of
from kvgate_mutants.mutants.scheduler.scheduling import last_come_first_served
from kvreference.geometry import Geometry, Group
from kvreference.operations import Abort
from kvreference.scheduler.operations import Step
from kvreference.settings import Settings

if TYPE_CHECKING:
    from tests.fork_server import ForkServer


pytestmark = pytest.mark.ci

Command = Callable[..., subprocess.CompletedProcess[str]]

PATCH = """
from vllm.v1.core.sched.request_queue import FCFSRequestQueue

FCFSRequestQueue.add_request = lambda self, request: self.appendleft(request)
"""
LANES = (Lane(load("full"), "tiny"),)


def campaign(plan: Plan, detectors: tuple[str, ...] = SCHEDULER.gate) -> Outcome:
    """The findings of a campaign of engines."""
    return Campaign(Trials(SCHEDULER.bench_named(load_system("stock").name, detectors)), plan).run()


@cache
def found() -> Found:
    """The findings of a campaign if the last request is served first."""
    with last_come_first_served.applied():
        (found,) = campaign(Plan(LANES, 20_000, seconds=60.0, kinds_max=1)).found
    return found


def test_a_sound_scheduler_passes() -> None:
    """With the reference and without it; and something was run."""
    for detectors in (SCHEDULER.gate, SCHEDULER.monitors):
        outcome = campaign(Plan(LANES, 400), detectors)
        assert () == outcome.found
        assert sum(tally.operations for tally in outcome.tallies) >= 400


def test_a_fault_is_found_and_made_small() -> None:
    """Two requests and a step suffice."""
    assert ("line", "KV-LIVE-01") == (found().divergence.detector, found().divergence.difference.statement)
    engine = found().driver
    assert isinstance(engine, Case)
    assert 3 == len(engine.operations)
    assert ("full", "tiny") == (engine.model, engine.preset)
    assert "scheduler/tiny" == found().case.preset


def test_what_is_shown_can_be_run_again() -> None:
    """And the scheduler as it is passes it."""
    engine = found().driver
    assert isinstance(engine, Case)
    bench = SCHEDULER.bench_named("stock", SCHEDULER.gate)
    with last_come_first_served.applied():
        (again,) = run_case(bench, engine).found()
    assert found().divergence == again.divergence
    assert () == run_case(bench, engine).divergences


def test_a_run_that_needs_a_missing_part_is_rejected() -> None:
    """By the system's name, or by its settings."""
    with pytest.raises(UsageError, match="no scheduler comes with the system 'reference'"):
        SCHEDULER.bench_named("reference", SCHEDULER.gate)
    settings = Settings(Geometry((Group("full", 16),)), blocks=5, chunk_tokens=4)
    with pytest.raises(UsageError, match="the scheduler does not support the settings it was given"):
        run_case(
            SCHEDULER.bench_named("stock", SCHEDULER.gate),
            SCHEDULER.case(settings, (Step(), Abort(0)), Stage(running_max=8)),
        )


@pytest.fixture
def loaded() -> Loaded:
    """vLLM as it is."""
    return load_system("stock")


def test_both_levels_are_one_verdict(loaded: Loaded) -> None:
    """They share the time, each tally names its level, and each detector is named once."""
    both = prepare(LevelChoice.BOTH, loaded, [load("full")], "quick", seconds=10.0)
    assert ["blocks", "scheduler"] == [each.level.name for each in both]
    assert [5.0, 5.0] == [each.plan.seconds for each in both]
    outcomes = [Campaign(each.trials, Plan(each.plan.lanes[:1], 200)).run() for each in both]
    outcome, checkers = together(both, outcomes), checkers_of(both)
    assert ["legal", "scheduler/legal"] == [tally.preset for tally in outcome.tallies]
    assert len(set(checkers)) == len(checkers)
    assert {"lockstep", "ghost", "leak", "batch", "line"} <= set(checkers)
    assert not any("without the scheduler" in sentence for sentence in not_tested(LevelChoice.BOTH, "stock"))
    assert any("without the scheduler" in sentence for sentence in not_tested(LevelChoice.BLOCKS, "stock"))


@pytest.fixture
def command(fork_server: ForkServer, tmp_path: Path) -> Command:
    """Runs the command as a user does."""
    return lambda *arguments: fork_server.run("-m", "kvgate.cli", *arguments, cwd=tmp_path, timeout=300)


def test_the_command_finds_stores_and_replays(command: Command, tmp_path: Path) -> None:
    """A patch that breaks the scheduler: exit code 1, a story that says what was done to it, and a trace of it."""
    (tmp_path / "patch.py").write_text(PATCH)
    run = ("--preload", "patch.py", "--format", "json", "--report", "out")
    ended = command("check", "--level", "scheduler", "--model", "full", "--time-budget", "90s", *run)
    assert 1 == ended.returncode, ended.stderr
    verdict = json.loads(ended.stdout)
    assert "KV-LIVE-01" in {each["statement"] for each in verdict["found"]}
    traces = [path for path in sorted((tmp_path / "out").glob("divergence-*.jsonl")) if shows(path, "KV-LIVE-01")]
    ended = command("replay", str(traces[0]), "--preload", "patch.py")
    assert 1 == ended.returncode, ended.stderr
    assert "KV-LIVE-01" in ended.stdout
    assert "what was done to it:" in ended.stdout
    assert 0 == command("replay", str(traces[0])).returncode


def shows(path: Path, statement: str) -> bool:
    """Whether a trace of an engine shows that a guarantee is violated."""
    violated = read(path).header.violates
    return violated is not None and statement == violated.statement


def test_a_trace_is_printed_as_a_test(command: Command, tmp_path: Path) -> None:
    """The test passes on the scheduler as it is, and fails on the broken one."""
    engine = found().driver
    assert isinstance(engine, Case)
    path = tmp_path / "trace.jsonl"
    write(trace_of(engine, found().divergence, "stock", "0.20.2", SCHEDULER.gate), path)
    printed = command("replay", str(path), "--as-pytest")
    assert 0 == printed.returncode, printed.stderr
    names: dict[str, object] = {}
    exec(compile(printed.stdout, "printed", "exec"), names)
    test = names["test_replay"]
    assert callable(test)
    test()
    with last_come_first_served.applied(), pytest.raises(AssertionError):
        test()


def test_a_trace_of_code_of_ones_own_is_not_trusted(command: Command, tmp_path: Path) -> None:
    """It is run only if it is named."""
    engine = found().driver
    assert isinstance(engine, Case)
    path = tmp_path / "trace.jsonl"
    write(trace_of(engine, None, "mine:build", "1", SCHEDULER.gate), path)
    ended = command("replay", str(path))
    assert 2 == ended.returncode
    assert "to run that code, say so with --sut mine:build" in ended.stderr


def test_a_case_is_cut_short_where_the_time_is_up() -> None:
    """After the operations that have begun; what remains is still checked."""
    case = SCHEDULER.draw(LANES[0].model, "tiny", "0")
    assert (1, ()) == (
        (run := run_case(SCHEDULER.bench_named("stock", SCHEDULER.gate), case, until=0.0)).performed,
        run.divergences,
    )
    assert run_case(SCHEDULER.bench_named("stock", SCHEDULER.gate), case).performed > 1


def test_models_on_which_findings_were_not_counted_are_named() -> None:
    """The rates are stored of a system, a level and a model: elsewhere a finding may act in every case."""
    stock, other = load_system("stock"), evolve(load_system("stock"), version="0.0")
    models = [load("swa"), load("windows")]
    assert unbounded(prepare(LevelChoice.BOTH, stock, [load("swa")], "quick")) == ()
    (sentence,) = unbounded(prepare(LevelChoice.BOTH, stock, models, "quick"))
    assert "2 of 4 models: windows (blocks), windows (scheduler)." in sentence
    assert "4 of 4 models" in unbounded(prepare(LevelChoice.BOTH, other, models, "quick"))[0]


def test_what_the_reference_did_not_follow_is_reported() -> None:
    """None of this vLLM's, with asynchronous steps or not; those of others are reported."""
    drawn = [(SCHEDULER.draw(LANES[0].model, "tiny", each).stage, each) for each in map(str, range(120))]
    seeds = {stage.asynchronous: seed for stage, seed in drawn if not stage.connector}
    assert {True, False} == set(seeds)
    for seed in seeds.values():
        for detectors in (SCHEDULER.gate, SCHEDULER.monitors):
            trial = Trials(SCHEDULER.bench_named("stock", detectors)).trial(LANES[0], seed, 0)
            assert (0, True) == (trial.alone, trial.operations > 0)
    tally = Tally("full", "tiny", 1, 9, alone=4)
    verdict = Verdict("stock", "0.20.2", "quick", 0, SCHEDULER.gate, (tally, tally))
    sentences = report_of(verdict).not_tested
    assert any("did not follow 8 of 18 operations" in sentence for sentence in sentences)
