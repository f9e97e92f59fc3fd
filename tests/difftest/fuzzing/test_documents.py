"""The documents of a run: what is written is read again, and anything else is rejected."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvgate.campaigns.folder import RunFolder
from kvgate.campaigns.plan import FuzzPlan, manifest, read_manifest
from kvgate.campaigns.results import render, understood
from kvgate.campaigns.serving import Task, task_in
from kvgate.campaigns.shard import Known
from kvgate.kernel.errors import UsageError

from .stage import PLAN, record, result


def test_a_manifest_is_read_again(tmp_path: Path) -> None:
    """Goal: a run can be resumed from its manifest alone. Method: there and back."""
    path = tmp_path / "manifest.json"
    path.write_text(manifest(PLAN))
    assert PLAN == read_manifest(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "kvgate-trace"}, "not a manifest"),
        ({"version": 2}, "version 2; this kvgate reads 1"),
        ({"plan": {"models": []}}, "sut"),
        ({"plan": {"sut": "stock", "models": "full"}}, "models"),
        ({"plan": {"sut": "stock", "models": ["full"], "seed": "0"}}, "expected int"),
        ({"plan": {"sut": "stock", "models": ["full"], "seed": -1}}, "seed"),
        ({"plan": {"sut": "stock", "models": ["full"], "run": "rm"}}, "run"),
        ({"plan": {"sut": "stock", "models": ["full"], "level": "none"}}, "level"),
    ],
)
def test_what_is_not_a_manifest_is_rejected(change: dict[str, object], message: str, tmp_path: Path) -> None:
    """Goal: nothing is run by mistake. Method: one flaw each."""
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps({**json.loads(manifest(PLAN)), **change}))
    with pytest.raises(UsageError, match=message):
        read_manifest(path)


def test_a_result_is_read_again() -> None:
    """Goal: a shard's file is enough to report what it found. Method: write and read."""
    expected = result(3, record(), record(finding="001", trace="a\nb\n", at_rest=True))
    assert expected == understood(render(expected))


def test_a_result_under_the_earlier_name_is_read() -> None:
    """Goal: a run that an earlier kvgate began can be resumed. Method: the name that its results have."""
    written = render(result(3, record()))
    assert understood(written) == understood(written.replace("kvgate-fuzz", "kvgate-fuzz-shard"))


@pytest.mark.parametrize(
    ("flaw", "message"),
    [
        (lambda text: "", "cut off"),
        (lambda text: text[: text.rindex("{")], "cut off"),
        (lambda text: text[:-9], "not JSON"),
        (lambda text: text.replace("KV-OP-01", "KV-OP-1"), "no guarantee has the id 'KV-OP-1'"),
        (lambda text: text.replace('"version": 1', '"version": 7'), "version 7"),
        (lambda text: text.replace("kvgate-fuzz", "other"), "not a result"),
        (lambda text: text.replace('"times": 2', '"times": "2"'), "expected int"),
        (lambda text: text.replace('"times": 2', '"times": 2, "more": 1'), "more"),
    ],
)
def test_what_is_not_a_result_is_rejected(flaw: object, message: str, tmp_path: Path) -> None:
    """Goal: half a result counts as none, and says so. Method: one flaw each."""
    assert callable(flaw)
    broken = flaw(render(result(3, record())))
    with pytest.raises(ValueError, match=message):
        understood(broken)
    folder = RunFolder(tmp_path / "run")
    folder.create(PLAN)
    (tmp_path / "run" / "shards" / "00000003.jsonl").write_text(broken)
    with pytest.raises(UsageError, match="the shard is run again"):
        list(folder.results())


def test_a_task_is_read_again() -> None:
    """Goal: a worker receives what the others have shown. Method: write and read."""
    expected = Task(7, Known(frozenset({("lockstep", "KV-OP-01", "answer")}), frozenset({"001"})))
    assert expected == task_in(expected.render())


def test_seeds_of_two_runs_never_meet() -> None:
    """Goal: two seeds are two runs. Method: the last shard of one, and the first of the next."""
    one, two = FuzzPlan("stock", ("full",), seed=1), FuzzPlan("stock", ("full",), seed=2)
    assert one.seed_of(999_999) + 1 == two.seed_of(0)


def test_a_directory_holds_one_run(tmp_path: Path) -> None:
    """Goal: no run is overwritten, and none has two masters. Method: make it twice; hold it twice."""
    folder = RunFolder(tmp_path / "run")
    folder.create(PLAN)
    with pytest.raises(UsageError, match="--resume"):
        RunFolder(tmp_path / "run").create(PLAN)
    with folder.held(), pytest.raises(UsageError, match="another kvgate fuzz runs here"), folder.held():
        pass
    with folder.held():
        assert PLAN == folder.plan()


def test_a_result_is_kept_once(tmp_path: Path) -> None:
    """Goal: nothing counts twice. Method: keep two results of one shard, and one under the number of another."""
    folder = RunFolder(tmp_path / "run")
    folder.create(PLAN)
    folder.keep(result(3))
    folder.keep(result(3, operations=7))
    assert [result(3)] == list(folder.results())
    assert [False, True] == [folder.is_done(2), folder.is_done(3)]
    (tmp_path / "run" / "shards" / "00000004.jsonl").write_text(render(result(3)))
    with pytest.raises(UsageError, match="is the result of shard 3"):
        list(folder.results())


def test_without_a_run_none_is_resumed(tmp_path: Path) -> None:
    """Goal: a mistyped directory is reported. Method: resume an empty one."""
    with pytest.raises(UsageError, match=r"the folder has no manifest\.json"):
        RunFolder(tmp_path).plan()
