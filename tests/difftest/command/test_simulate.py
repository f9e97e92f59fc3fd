"""``kvgate simulate``.

Goal: simulation results are printed as asked, exit codes say whether to believe them, and an interrupt keeps what is
done. Method: the command itself, on workloads of a fraction of a second; a real process where processes matter.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from attrs import evolve
from typer.testing import CliRunner

from kvgate.cli.app import app
from kvgate.kernel.errors import UsageError
from kvgate.report.document import from_json
from kvgate.report.simulations import results_of
from kvgate.simulation import reference
from kvgate.simulation.result import Result
from kvreference.holdings import Holdings

from .stage import run_kvgate

SMALL = ("prefixes:prefixes=4,prefix_tokens=200,own_tokens=16,answer_tokens=4", "--model", "compressed")
CONFIGS = Path(__file__).parents[1] / "explain" / "configs"
POOL = ("--blocks", "120", "--max-num-batched-tokens", "128")


def results_in(text: str) -> list[Result]:
    """The simulations in a report."""
    return results_of(from_json(text, "out"), "out")


def test_policies_side_by_side() -> None:
    """Goal: one simulation for each combination. Method: two policies, two pools, as JSON."""
    arguments = ["simulate", *SMALL, *POOL, "--blocks", "500", "--policy", "dense", "--policy", "masked+scratch"]
    ended = CliRunner().invoke(app, [*arguments, "--processes", "1", "--format", "json"])
    assert 0 == ended.exit_code
    results = results_in(ended.stdout)
    assert [(120, "dense"), (120, "masked+scratch"), (500, "dense"), (500, "masked+scratch")] == [
        (each.blocks, each.policy) for each in results
    ]
    assert results[0].hit_tokens < results[2].hit_tokens
    assert {True} == {each.soundness.sound for each in results}
    assert "completed" == from_json(ended.stdout, "out").ended


def test_the_table() -> None:
    """Goal: the table has both hit rates, and what was checked. Method: print one."""
    ended = CliRunner().invoke(app, ["simulate", *SMALL, *POOL, "--processes", "1"])
    assert 0 == ended.exit_code
    assert f"{SMALL[0]} on compressed: 4 requests counted" in ended.stdout
    for word in ("hit rate", "server's hit rate", "evictions", "reads checked", "dense", "release"):
        assert word in ended.stdout


def drafting(*arguments: str) -> tuple[int, str]:
    """Exit code and report of prompts of 65 tokens, of which 32 tokens hit only without finding 006."""
    workload = "prefixes:prefixes=1,prefix_tokens=64,own_tokens=1,answer_tokens=4,rounds=2"
    common = ("simulate", workload, "--model", "mixed-blocks+eagle", *POOL, "--processes", "1")
    ended = CliRunner().invoke(app, [*common, *arguments])
    return ended.exit_code, ended.stdout


def test_the_release_is_the_default_and_its_findings_are_named() -> None:
    """Goal: a known difference from the reference is reported, and does not fail. Method: finding 006, and without."""
    code, shown = drafting("--ideal")
    assert 0 == code
    (line,) = [line for line in shown.splitlines() if line.startswith("DIFFERENT BY WHAT IS KNOWN: ")]
    assert "release and reference: request " in line
    assert "finding 006-aligned-before-the-drop acted" in line
    code, shown = drafting("--ideal", "--vllm-version", "0.19.1")
    assert (0, False) == (code, "DIFFERENT" in shown)
    assert "native@0.19.1: its block manager is followed" in shown
    assert "vLLM 0.19.1: its scheduler is not described" in shown
    code, shown = drafting("--format", "json")
    assert [("release", "stock")] == [(each.arm, each.system) for each in results_in(shown)]


def test_drafts_follow_the_model() -> None:
    """Goal: a model with a draft layer drafts, and no other. Method: what is computed, with and without the option."""

    def computed(*arguments: str) -> int:
        return results_in(drafting(*arguments, "--format", "json")[1])[0].computed_tokens

    assert computed() == computed("--drafts", "1") > computed("--drafts", "0")
    assert computed("--model", "mixed-blocks") == computed("--model", "mixed-blocks", "--drafts", "0")


STATES = ("--model", "mamba-align+eagle", "--blocks", "500")


def test_states_follow_the_drafts() -> None:
    """Goal: a model with states is simulated, with one draft if it has a draft layer. Method: what is computed."""

    def computed(*arguments: str) -> int:
        ended = CliRunner().invoke(app, ["simulate", SMALL[0], *STATES, "--jobs", "1", "--format", "json", *arguments])
        return results_in(ended.stdout)[0].computed_tokens

    assert computed() == computed("--drafts", "1") != computed("--drafts", "0")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--model", "mamba-align+eagle", "--drafts", "9"), "--drafts 9: states kept at block ends need blocks"),
        (("--model", "mamba-all", "--vllm-version", "0.33.0"), "vLLM 0.33.0 keeps those at block ends, or none"),
        (("--model", str(CONFIGS / "falcon-h1/config.json"), "--drafts", "2"), "give --speculative-config, or --mtp"),
    ],
)
def test_states_that_cannot_be_served(arguments: tuple[str, ...], message: str) -> None:
    """Goal: the message says what to do. Method: more drafts than states, a release without them, states of a file."""
    error = CliRunner().invoke(app, ["simulate", SMALL[0], *arguments]).exception
    assert isinstance(error, UsageError)
    assert message in str(error)


@pytest.mark.parametrize(
    ("version", "policy"),
    [("0.23.0", "dense+scratch"), ("0.27.1", "masked+scratch"), ("0.33.0", "retention=0+junctions")],
)
def test_what_a_release_keeps_of_states_by_default(version: str, policy: str) -> None:
    """Goal: a release is simulated with its own retention interval, for states too. Method: states, and its policy."""
    arguments = ("simulate", SMALL[0], "--model", "mamba-align", "--blocks", "500", "--processes", "1")
    shown = CliRunner().invoke(app, [*arguments, "--vllm-version", version]).stdout
    assert policy in shown
    assert "is not simulated" not in shown


def test_a_crash_of_the_release_exits_1(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: if the arm ``release`` ends in a step, the report says where and why. Method: its check for finding 037 is
    replaced by one that always raises."""
    from kvgate.simulation.reference import EngineEndedError
    from kvgate.simulation.release import ReleasedScheduler

    def ends(*_arguments: object) -> None:
        raise EngineEndedError("request 0 holds 3 blocks of states and needs 2")

    monkeypatch.setattr(ReleasedScheduler, "_end_with_fewer_drafts", ends)
    ended = CliRunner().invoke(app, ["simulate", SMALL[0], *STATES, "--jobs", "1"])
    assert 1 == ended.exit_code
    assert "CRASH: release, dense, step 2: request 0 holds 3 blocks of states and needs 2" in ended.stdout


@pytest.mark.parametrize(
    ("version", "policy"),
    [
        ("0.20.2", "dense"),
        ("0.22.1", "masked"),
        ("0.23.0", "masked+scratch"),
        ("0.33.0", "retention=0+junctions+scratch"),
    ],
)
def test_the_policy_is_that_of_the_release(version: str, policy: str) -> None:
    """Goal: without an option the cache is as the release has it. Method: releases with different defaults."""
    assert [policy] == [each.policy for each in results_in(drafting("--vllm-version", version, "--format", "json")[1])]


def test_what_there_is() -> None:
    """Goal: everything that can be named is listed. Method: the list."""
    listed = CliRunner().invoke(app, ["simulate", "--list"]).stdout
    for word in ("repeat-rate", "input_tokens=8192", "agents", "infinite", "retention"):
        assert word in listed


def test_an_unsound_read_exits_1(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a broken block manager's hit rate is not a success. Method: windows are released too early."""
    original = Holdings.release_dead
    monkeypatch.setattr(Holdings, "release_dead", lambda self, request, tokens: original(self, request, tokens + 16))
    ended = CliRunner().invoke(app, ["simulate", *SMALL, *POOL, "--processes", "1"])
    assert 1 == ended.exit_code
    assert "UNSOUND: release, dense" in ended.stdout


def test_arms_that_differ_exit_1(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: two arms that must agree, and do not, are no success. Method: one of them keeps windows for longer."""
    from kvgate.simulation import arm

    class Forgetful(reference.ReferenceArm):
        name = "forgetful"

        def run(self, setting: arm.Setting, progress: arm.Progress | None = None) -> Result:
            found = super().run(setting, progress)
            return evolve(found, arm=self.name, evictions=found.evictions + 1)

    monkeypatch.setattr(reference, "forgetful", Forgetful, raising=False)
    monkeypatch.setattr(arm, "ARMS", {**arm.ARMS, "forgetful": ("kvgate.simulation.reference:forgetful", "")})
    arguments = ["simulate", *SMALL, *POOL, "--processes", "1", "--arm", "reference", "--arm", "forgetful"]
    ended = CliRunner().invoke(app, arguments)
    assert 1 == ended.exit_code
    assert "DIFFERENT: dense, 120 blocks: reference and forgetful: evictions" in ended.stdout


def test_a_sweep_over_an_option_makes_no_difference() -> None:
    """Goal: arms are compared on one workload. Method: two workloads that differ in one option; two arms that agree."""
    option = "repeat-rate:input_tokens=300,answer_tokens=8,lanes=2,prompts=4,warm="
    warm, cold = f"{option}yes", f"{option}no"
    arguments = ["simulate", warm, cold, "--model", "full", *POOL, "--arm", "reference", "--arm", "ranges"]
    ended = CliRunner().invoke(app, [*arguments, "--processes", "1", "--format", "json"])
    assert (0, [warm, warm, cold, cold]) == (
        ended.exit_code,
        [each.workload for each in results_in(ended.stdout)],
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nothing",), "no workload 'nothing'"),
        (("--policy", "sparse"), "no word 'sparse'"),
        (("--arm", "nobody"), "no arm 'nobody': there are release, reference"),
        (("--vllm-version", "0.8.0"), "vLLM 0.8.0 is not known: what is known are 0.16.0"),
        (("--vllm-version", "99.0"), "vLLM 99.0 is not known"),
        (("--vllm-version", "0.33.0", "--policy", "dense"), "policy 'dense': "),
        (
            ("--model", "gemma-hybrid", "--vllm-version", "0.27.1", "--policy", "dense+scratch+pinned=2"),
            "the plug-in does not run on vLLM 0.27.1",
        ),
        (("--model", "compressed+masked"), "say with --policy what stays in the cache"),
        (("--model", "compressed", "--blocks", "9"), "and the pool has 8"),
        (("--max-model-len", "100"), "and the context is 100"),
        (("--policy", "retention=100"), "does not fit dsv4-flash-ascend-128"),
    ],
)
def test_bad_usage(arguments: tuple[str, ...], message: str) -> None:
    """Goal: a message that says what was wrong, before anything is run. Method: names and numbers that do not fit."""
    error = CliRunner().invoke(app, ["simulate", *arguments]).exception
    assert isinstance(error, UsageError)
    assert message in str(error)


@pytest.mark.ci
def test_processes_and_plots(tmp_path: Path) -> None:
    """Goal: parallel and sequential runs agree, and plots are written. Method: both in a real process."""
    pytest.importorskip("matplotlib")
    arguments = ("simulate", *SMALL, *POOL, "--policy", "dense", "--policy", "masked", "--format", "json")
    apart = run_kvgate(tmp_path, *arguments, "--processes", "2", "--plot", "out")
    assert 0 == apart.code
    assert 3 == len(list((tmp_path / "out").glob("*.svg")))
    alone = CliRunner().invoke(app, [*arguments, "--processes", "1"])

    def rows_of(text: str) -> list[tuple[object, ...]]:
        return [(each.policy, each.served, each.evictions) for each in results_in(text)]

    assert rows_of(alone.stdout) == rows_of(apart.out)


def test_an_interrupt_keeps_what_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: Ctrl-C loses nothing. Method: the second simulation is interrupted."""
    original = reference.ReferenceArm.run
    begun = []

    def run(self: reference.ReferenceArm, setting: object, progress: object = None) -> object:
        begun.append(setting)
        if len(begun) == 2:
            raise KeyboardInterrupt
        return original(self, setting, progress)  # type: ignore[arg-type]  # as the original's

    monkeypatch.setattr(reference.ReferenceArm, "run", run)
    arguments = ["simulate", *SMALL, *POOL, "--processes", "1", "--policy", "dense", "--policy", "masked"]
    ended = CliRunner().invoke(app, [*arguments, "--arm", "reference", "--format", "json"])
    assert 130 == ended.exit_code
    assert "interrupted" == from_json(ended.stdout, "out").ended
    assert ["dense"] == [each.policy for each in results_in(ended.stdout)]
