"""The record of all releases: nothing is left out, runs are kept and read back, and a damaged line is rejected."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from attrs import evolve
from benchmarks.history import Machine
from benchmarks.record import Run, chosen, line_of, main, page, read, run_of, systems

from kvgate.adapters.releases import RELEASES
from kvgate.adapters.releases.ascend_schedulers import OWN_SCHEDULERS
from kvgate.kernel.errors import UsageError
from kvgate.kernel.output import FAULT

MACHINE = Machine("x86_64", 2, "3.11.2", "0.20.2", 0.5)
RUN = Run(
    *("native@0.33.0", "scheduler", "2026-11-29T01:00:00+00:00", "abc", MACHINE, 3, "completed", 2.0, 7, 100),
    alarms=("WRONG ANSWER, KV-OP-01",),
    findings=("007-events-span-null-blocks",),
)


def test_every_release_is_run() -> None:
    """At both levels where its scheduler is described, and each scheduler of vLLM-Ascend's own."""
    found = systems()
    assert len(found) == len(set(found))
    drawn = [name for name, release in RELEASES.items() if release.scheduler is not None]
    assert {"stock", *drawn, *OWN_SCHEDULERS} == dict(found).keys()
    assert {("native@0.33.0", "blocks"), ("native@0.33.0", "scheduler")} <= set(found)
    with pytest.raises(UsageError, match="no system ascend-recompute at the level blocks: there are stock"):
        chosen(["ascend-recompute"], "blocks")


def test_a_run_reads_back() -> None:
    """A line that is not a run, has another version or has an unknown key is rejected with its place."""
    assert RUN == run_of(line_of(RUN).encode(), "here")
    document = json.loads(line_of(RUN))
    for wrong in (
        {**document, "format": "other"},
        {**document, "version": 2},
        {**document, "more": 1},
        {**document, "operations": -1},
        {key: value for key, value in document.items() if key != "seed"},
    ):
        with pytest.raises(UsageError, match="here: "):
            run_of(json.dumps(wrong).encode(), "here")


def test_the_page_sums_up_runs() -> None:
    """Operations and alarms over all runs of a release at a level, the rate of the last, and each alarm by its seed."""
    later = evolve(RUN, seed=4, operations=30, alarms=(), findings=("002-gate-subtracts-skipped-blocks",), seconds=3.0)
    text = page([RUN, later, evolve(RUN, level="blocks", alarms=())])
    assert "| `native@0.33.0` | scheduler | 2 | 130 | 1 | 2 |" in text
    assert "2026-11-29, abc | 10 |" in text
    assert "| `native@0.33.0` | blocks | 1 | 100 | 0 | 1 |" in text
    assert "- `native@0.33.0`, scheduler, seed 3, 2026-11-29: WRONG ANSWER, KV-OP-01" in text
    assert "No run had an alarm." in page([later])


@pytest.mark.ci
def test_a_release_is_checked_and_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two runs of the installed vLLM: each with a seed of its own, appended, and on the page."""
    pytest.importorskip("vllm")
    arguments = ["--seconds", "5", "--system", "stock", "--level", "blocks", "--out", str(tmp_path)]
    assert [0, 0] == [main(arguments), main(arguments)]
    runs = read(tmp_path / "record.jsonl")
    assert [0, 1] == [run.seed for run in runs]
    assert all(run.operations > 100 and run.cases > 0 and run.findings and not run.alarms for run in runs)
    assert "time budget" == runs[0].ended
    assert "| `stock` | blocks | 2 |" in (tmp_path / "RECORD.md").read_text(encoding="utf-8")
    (tmp_path / "record.jsonl").write_text("{}\n", encoding="utf-8")
    assert 2 == main([*arguments[:-1], str(tmp_path)])
    assert "line 1: format None" in capsys.readouterr().err


def test_what_makes_no_sense_is_rejected(tmp_path: Path) -> None:
    """No seconds, and an unknown system: nothing is written."""
    for wrong in (["--seconds", "0"], ["--system", "nope"]):
        assert 2 == main([*wrong, "--out", str(tmp_path)])
    assert [] == list(tmp_path.iterdir())
    (tmp_path / "file").write_text("", encoding="utf-8")
    assert 2 == main(["--page", "--out", str(tmp_path / "file")])


@pytest.mark.parametrize(
    ("ends", "code"), [((0, 0), 0), ((0, 3), 3), ((1, 3), 1), ((3, -9), FAULT), ((-9, 1), 1)], ids=str
)
def test_a_run_that_ends_otherwise_is_not_a_success(
    ends: tuple[int, int], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does it hide that something was found; a killed or unavailable run is not recorded."""
    left = iter(ends)

    def check(system: str, level: str, _seconds: int, _seed: int) -> tuple[Run | None, int]:
        ended = next(left)
        return (evolve(RUN, system=system, level=level) if ended in (0, 1) else None), ended

    monkeypatch.setattr("benchmarks.record.check", check)
    assert code == main(["--system", "stock", "--out", str(tmp_path)])
    assert sum(each in (0, 1) for each in ends) == len(read(tmp_path / "record.jsonl"))


def test_an_empty_record_claims_nothing(tmp_path: Path) -> None:
    """The page says that the record is empty."""
    assert 0 == main(["--page", "--out", str(tmp_path)])
    assert "No run is recorded" in (tmp_path / "RECORD.md").read_text(encoding="utf-8")
