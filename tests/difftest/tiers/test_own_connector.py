"""User-written connectors at the level of two tiers.

Goal: a sound one passes; a broken one is found; one that cannot be used is rejected in one message. Method: the
example, and what inherits from it; each run in a process that has the release.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.published import published

from kvgate.adapters.releases import release_named
from kvgate.kernel.errors import UsageError
from kvgate.levels.tiers.level import see_connector
from kvgate.levels.tiers.operations import TierStage

ROOT = Path(__file__).parents[3]
NAME = "native@0.33.0"
EXAMPLE = "examples.connector.host_store:HostStore"
BROKEN = "tests.difftest.tiers.connectors:"
PROGRAM = """
import json, sys
from attrs import evolve
import kvgate.conformance
from kvgate.conformance import connector as call

# What is found is not to be made smaller.
campaign = call.Campaign
call.Campaign = lambda trials, plan: campaign(trials, evolve(plan, shrinks=False))
for connector, config, given in json.loads(sys.argv[1]):
    given.setdefault("operations", 6000)
    report = kvgate.conformance.check_connector(connector, config, **given)
    found = sorted({each.divergence.difference.statement for each in report.verdict.found})
    declared = sorted({each.finding for each in report.verdict.declared})
    said = [report.passed, found, report.verdict.operations, report.error, declared, report.document().not_tested]
    print("RESULT", json.dumps(said))
"""
FAILS = {"fails_every": 3}


def run(*command: str) -> subprocess.CompletedProcess[str]:
    """A process that can import the example, and what is broken."""
    return subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "difftest")))},
    )


def results(*asked: tuple[str, Any, dict[str, Any]]) -> list[list[Any]]:
    """What the one call says of each."""
    pytest.importorskip("vllm")
    published(release_named(NAME))
    ended = run("-c", PROGRAM, json.dumps(asked))
    assert 0 == ended.returncode, ended.stderr[-3000:]
    lines = [line.removeprefix("RESULT ") for line in ended.stdout.splitlines() if line.startswith("RESULT ")]
    return [json.loads(line) for line in lines]


@pytest.mark.ci
def test_a_sound_connector_passes() -> None:
    """Also where loads fail, in both policies: what was not tested says that both were."""
    plain, failing, windows = results(
        (EXAMPLE, {}, {}),
        (EXAMPLE, FAILS, {"operations": 12_000}),
        (EXAMPLE, FAILS, {"operations": 2000, "models": ["swa+scratch"]}),
    )
    for passed, found, operations, error, _declared, _left_out in (plain, failing):
        assert passed, (found, error)
        assert operations >= 6000
    fails = (
        "Loads that fail and are computed again: none happened.",
        "Loads that fail and end their request: none happened.",
    )
    assert {*fails} < {*plain[-1]}
    assert not {*fails}.intersection(failing[-1]), failing[-1]
    assert "Loads that a request waits for: none happened." in failing[-1]
    assert "Loads within a step: none happened." not in failing[-1]
    # What vLLM does with a load that fails is known, and shown, and nothing else is.
    assert {"021", "062"} <= {each[:3] for each in failing[4]} <= {"021", "062", "063", "066"}
    assert windows[0], windows
    assert {"034"} <= {each[:3] for each in windows[4]} <= {"021", "034", "062", "063", "066"}


@pytest.mark.ci
def test_loads_that_a_request_waits_for_pass_and_no_loads_do_not() -> None:
    """A connector that brings nothing was not tested."""
    waiting, nothing = results((BROKEN + "Asynchronous", {}, {}), (BROKEN + "DoesNothing", {}, {"operations": 1000}))
    assert waiting[0], waiting
    assert "Loads that a request waits for: none happened." not in waiting[-1]
    assert (False, []) == (nothing[0], nothing[1])
    assert "brought nothing" in nothing[3]


BROKEN_LOADS = {"ReportsNoFailure": "KV-TIER-01", "StoresAfterFailure": "KV-TIER-04", "StoresWhatFailed": "KV-TIER-04"}


@pytest.mark.ci
def test_a_broken_connector_is_found() -> None:
    names = "LoadsTheBlockBefore", "SavesTooEarly", "LoadsTooLate", "HitsTheLastToken"
    broken = {name: {"KV-TIER-01", "KV-MEM-01", "KV-SYS-01"} for name in names}
    broken |= {name: {statement} for name, statement in BROKEN_LOADS.items()}
    broken |= {"ReportsALostLoad": {"KV-TIER-01"}, "NeverReports": {"KV-TIER-06"}, "KeepsBlocks": {"KV-TIER-06"}}
    # What is stored after a failed load is seldom loaded again.
    operations = {"StoresAfterFailure": 10_000}
    asked = [
        (BROKEN + name, FAILS if name in BROKEN_LOADS else {}, {"operations": operations.get(name, 1000)})
        for name in broken
    ]
    for (name, statements), (passed, found, _, error, *_rest) in zip(broken.items(), results(*asked), strict=True):
        assert not passed, name
        assert error is None, (name, error)
        assert statements.intersection(found), (name, found)


@pytest.mark.ci
def test_a_trace_is_replayed_with_the_connector_that_is_named(tmp_path: Path) -> None:
    """The trace says which that was, and how it was configured; it is not trusted to name it."""
    pytest.importorskip("vllm")
    published(release_named(NAME))
    name = BROKEN + "ReportsNoFailure"
    asked: tuple[tuple[list[str], int, str], ...] = (
        (["--connector", name], 1, "that brought nothing, and was not reported to have failed"),
        (["--connector", EXAMPLE], 0, "no divergence"),
        ([], 2, f"written for the connector {name}; to run that code, say so with --connector {name}"),
        (["--connector", "nowhere:Connector"], 2, "cannot be imported"),
        (["--connector", name, "--as-pytest"], 2, "take no --connector"),
    )
    ended = run("-c", REPLAYS, name, json.dumps(FAILS), str(tmp_path), json.dumps([options for options, _, _ in asked]))
    assert 0 == ended.returncode, ended.stderr[-3000:]
    command, *said = json.loads(ended.stdout.splitlines()[-1])
    assert f"kvgate replay {tmp_path / 'divergence-1.jsonl'} --connector {name}" == command
    for (options, code, words), (got, text) in zip(asked, said, strict=True):
        assert code == got, (options, text)
        assert words in " ".join(text.split()), (options, text)


REPLAYS = """
import contextlib, io, json, sys
import kvgate.conformance
from kvgate.cli.app import main

name, config, folder, asked = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3], json.loads(sys.argv[4])
report = kvgate.conformance.check_connector(name, config, operations=1000)
with contextlib.redirect_stdout(io.StringIO()):
    report.write(folder)
trace = f"{folder}/divergence-1.jsonl"
said = [report.document({0: trace}).found[0].again]
for options in asked:
    sys.argv = ["kvgate", "replay", trace, *options]
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(out):
        try:
            code = main()
        except SystemExit as end:
            code = end.code
    said.append([code or 0, out.getvalue()])
print(json.dumps(said))
"""


SHARER = """
from attrs import evolve
from kvgate.adapters.registry import load_system
from kvgate.gate.case_runner import run_case
from kvgate.kernel.models import load
from kvgate.levels.scheduler.operations import ResetCache, Serve
from kvgate.levels.tiers.adapter.own import choose
from kvgate.levels.tiers.engine import TierEngine
from kvgate.levels.tiers.level import TIERS
from kvgate.levels.tiers.operations import OWN, TierStage
from kvreference.operations import Arrive, Run
from kvreference.scheduler.operations import Reply, Step
from kvreference.settings import Settings

bench = TIERS.bench(load_system("native@0.33.0"), TIERS.gate)
choose("examples.connector.host_store:HostStore", {"fails_every": 2})
settings = Settings(load("full").geometry, 40, 200, 64, 4, tells_events=False, scratch_first=True)
step = Step((Reply(),))


def serve(number, own, tokens):
    return Serve(Arrive(number, (Run(0, 16), Run(1000 * own, tokens))), 1)


forget = ResetCache(False, False)
operations = [
    # The first 16 tokens are stored, and loaded once; the second load of them fails.
    *(serve(0, 1, 8), step, step, forget, serve(1, 2, 8), step, step, forget),
    # Another request hits them in the same step, and computes the next 16 from them. Then they are loaded once more.
    *(serve(2, 3, 8), serve(3, 4, 20), step, step, serve(4, 5, 8), step, step),
    # What it computed is hit.
    *(serve(5, 4, 24), step, step),
]
for ends in (True, False, None):
    if ends is None:
        # Ghost memory that does not follow what is computed from a failed load sees nothing.
        ends, TierEngine._spoil = True, lambda self, first, chains: self._wrong_reads(first, chains)
    case = TIERS.case(settings, operations, TierStage(running_max=4, connector=OWN, failed_loads_end=ends))
    run = run_case(bench, evolve(case, model="full", preset="legal", seed="by hand"))
    print("RESULT", [(each.finding, each.divergence.difference.got) for each in run.found()])
"""


@pytest.mark.ci
def test_what_a_sharer_of_a_failed_load_computed_is_finding_066() -> None:
    """With the policy that computes it again, the same run shows nothing."""
    pytest.importorskip("vllm")
    published(release_named(NAME))
    ended = run("-c", SHARER)
    assert 0 == ended.returncode, ended.stderr[-3000:]
    got = "what kvgate-request-3 computed from a load of kvgate-request-2 that failed"
    expected = [[("066-sharer-of-a-failed-load-stays-cached", got)], [], []]
    assert [f"RESULT {each}" for each in expected] == ended.stdout.splitlines()


def test_a_trace_of_another_connector_takes_none() -> None:
    with pytest.raises(UsageError, match="not a case of a connector of your own"):
        see_connector(Path("trace.jsonl"), TierStage(), "my:Connector")


@pytest.mark.ci
def test_a_connector_that_cannot_be_used_is_rejected() -> None:
    asked: tuple[tuple[str, Any, dict[str, Any], str], ...] = (
        ("nowhere:Connector", {}, {}, "cannot be imported: ModuleNotFoundError"),
        ("json:Connector", {}, {}, "json has no Connector"),
        ("json:JSONDecoder", {}, {}, "is not a subclass of KVConnectorBase_V1"),
        (BROKEN + "Half", {}, {}, "lacks get_num_new_matched_tokens, "),
        (BROKEN + "Raises", {}, {}, "cannot be built: OSError: no room on the host"),
        ("nothing", {}, {}, "connector: write MODULE:CLASS, not 'nothing'"),
        (EXAMPLE, [], {}, "config: a mapping, not list"),
        (EXAMPLE, {"path": "x" * 5000}, {}, "is longer than 4000 characters"),
        (EXAMPLE, {}, {"system": "native@0.99.0"}, "system: one of native@0.23.0, native@0.30.0, native@0.33.0, not "),
        (EXAMPLE, {}, {"models": []}, "models: a list of names"),
        (EXAMPLE, {}, {"models": ["nothing"]}, "nothing"),
        (EXAMPLE, {}, {"models": ["gpt-oss-hybrid+scratch"]}, "takes models with one group"),
        (EXAMPLE, {}, {"profile": "nothing"}, "profile: one of "),
        (EXAMPLE, {}, {"operations": 0}, "operations: more than 0, not 0"),
        (EXAMPLE, {}, {"operations": -1}, "operations: more than 0, not -1"),
        (EXAMPLE, {}, {"seconds": 0}, "seconds: more than 0, not 0"),
    )
    said = results(*((name, config, given) for name, config, given, _ in asked))
    for (name, _, given, words), (passed, _found, operations, error, *_rest) in zip(asked, said, strict=True):
        assert (False, 0) == (passed, operations), (name, given)
        assert words in error, (name, given, error)
        assert error.count("\n") == 0
