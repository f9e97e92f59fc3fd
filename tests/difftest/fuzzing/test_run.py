"""A run: every shard is done exactly once, even if its workers fail."""

from __future__ import annotations

import json
from itertools import permutations
from pathlib import Path

import pytest
from attrs import asdict, evolve

from kvgate.campaigns.folder import RunFolder
from kvgate.campaigns.merging import Merged, merge
from kvgate.campaigns.plan import FuzzPlan
from kvgate.campaigns.results import render
from kvgate.campaigns.run import FAULTS_MAX, Run
from kvgate.gate.fault import Fault
from kvgate.gate.verdict import FAILED, Tally
from kvgate.kernel.errors import SystemUnavailableError, UsageError

from .stage import PLAN, Scripted, answered, record, result


def _run(path: Path, workers: Scripted, plan: FuzzPlan = PLAN, seconds: float | None = None) -> tuple[Run, str]:
    folder = RunFolder(path / "run")
    if not (path / "run").exists():
        folder.create(plan)
    run = Run(plan, folder, merge(folder.results()), workers, seconds)
    return run, run.run()


def test_every_shard_is_run_once(tmp_path: Path) -> None:
    """Goal: a run ends when its shards are done. Method: six shards, two workers that answer."""
    workers = Scripted(2, answered)
    run, ended = _run(tmp_path, workers)
    assert "completed" == ended
    assert list(range(6)) == [task.shard for task in workers.begun]
    assert 600 == run.merged.operations == merge(run.folder.results()).operations


def test_a_lost_shard_is_run_again(tmp_path: Path) -> None:
    """Goal: nothing is lost and nothing counts twice. Method: each worker dies at the first attempt of odd shards."""
    workers = Scripted(2, lambda shard, attempt: None if shard % 2 and attempt == 1 else answered(shard, attempt))
    run, ended = _run(tmp_path, workers)
    assert "completed" == ended
    assert 600 == run.merged.operations
    assert {0: 1, 1: 2, 2: 1, 3: 2, 4: 1, 5: 2} == {
        shard: sum(task.shard == shard for task in workers.begun) for shard in range(6)
    }


def test_a_shard_that_kills_its_workers_is_abandoned(tmp_path: Path) -> None:
    """Goal: a run ends although a shard cannot be run, and says so. Method: shard 2 kills its worker."""
    run, ended = _run(tmp_path, Scripted(2, lambda shard, n: None if shard == 2 else answered(shard, n)))
    assert "1 shard lost" == ended
    assert {2: "killed by SIGKILL"} == run.given_up
    assert {0, 1, 3, 4, 5} == run.merged.shards
    again, ended = _run(tmp_path, Scripted(2, answered))
    assert ("completed", 600) == (ended, again.merged.operations)


def test_an_interrupted_run_continues(tmp_path: Path) -> None:
    """Goal: an interrupt costs only what was running. Method: interrupt at the fourth, then continue."""

    def interrupted(shard: int, attempt: int) -> str:
        if shard == 3:
            raise KeyboardInterrupt
        return answered(shard, attempt)

    run, ended = _run(tmp_path, Scripted(2, interrupted))
    assert ("interrupted", {0, 1, 2}) == (ended, run.merged.shards)
    workers = Scripted(2, answered)
    again, ended = _run(tmp_path, workers)
    assert ("completed", 600) == (ended, again.merged.operations)
    assert [3, 4, 5] == [task.shard for task in workers.begun]


def test_a_time_budget_begins_nothing_more(tmp_path: Path) -> None:
    """Goal: begun shards are ended, and kept. Method: a budget that is over after the first look."""
    workers = Scripted(2, answered)
    run, ended = _run(tmp_path, workers, evolve(PLAN, shards=None), seconds=1e-4)
    assert "time budget" == ended
    assert len(workers.begun) == len(run.merged.shards) < 50


def test_what_others_have_shown_is_passed_on(tmp_path: Path) -> None:
    """Goal: only a few shards shrink a defect. Method: the first three shards show one; the next ones receive it."""
    kind = record().kind
    workers = Scripted(1, lambda shard, _: render(result(shard, record(trace="t" if shard < 3 else None))))
    run, _ = _run(tmp_path, workers)
    assert [*[frozenset()] * 3, *[frozenset({kind})] * 3] == [task.known.kinds for task in workers.begun]
    assert 1 == run.merged.kinds


@pytest.mark.parametrize(
    ("why", "error"),
    [("usage", UsageError), ("unavailable", SystemUnavailableError)],
)
def test_what_no_worker_can_do_ends_the_run(why: str, error: type[Exception], tmp_path: Path) -> None:
    """Goal: a missing system is reported, not tried again and again. Method: a worker that reports it."""
    with pytest.raises(error, match="no such thing"):
        _run(tmp_path, Scripted(1, lambda *_: json.dumps({"why": why, "message": "no such thing"})))


def test_a_shard_in_which_the_gate_fails_is_run_once(tmp_path: Path) -> None:
    """Goal: one impossible shard does not end a campaign of hours. Method: shard 2 reports that something
    was raised.
    """
    fault = Fault("running a case", "KeyError: 1", "Traceback", "a trace")
    raised = json.dumps({"why": "failed", "message": "KeyError: 1", "fault": asdict(fault)})
    workers = Scripted(2, lambda shard, n: raised if shard == 2 else answered(shard, n))
    run, ended = _run(tmp_path, workers)
    assert (FAILED, {2: fault}) == (ended, run.faults)
    assert {0, 1, 3, 4, 5} == run.merged.shards
    assert 1 == sum(task.shard == 2 for task in workers.begun)


def test_a_gate_that_fails_in_every_shard_begins_no_more_of_them(tmp_path: Path) -> None:
    """Goal: a run without an end ends. Method: every shard reports the same fault."""
    raised = json.dumps({"why": "failed", "message": "", "fault": asdict(Fault("", "", ""))})
    run, ended = _run(tmp_path, Scripted(1, lambda *_: raised), evolve(PLAN, shards=FAULTS_MAX + 5))
    assert (FAILED, FAULTS_MAX) == (ended, len(run.faults))


def test_defects_stand_once() -> None:
    """Goal: one line for a defect, with the shortest way there. Method: three shards, two defects, one finding."""
    other = record(statement="KV-OP-07", kind=("lockstep", "KV-OP-07", "free queue at position #"))
    merged = Merged()
    merged.add(result(0, record(trace="long", operations=9), record(finding="001", trace="f")))
    merged.add(result(1, record(trace="short", operations=2, times=5), other))
    merged.add(result(1, record(trace="short", operations=2, times=5), other))
    merged.add(result(2, record(operations=1, times=1), record(finding="001")))
    assert {0, 1, 2} == merged.shards
    assert 300 == merged.operations
    found = merged._found[record().kind]
    assert ("short", 8) == (found.trace, found.times)
    assert 4 == merged._declared["001"].times
    assert 2 == merged.kinds
    assert (frozenset(), frozenset()) == (merged.known().kinds, merged.known().findings)


def test_the_smallest_trace_is_kept() -> None:
    """Goal: of several traces the shortest is read. Method: four shards in every order; the last one kept no trace."""
    shown = [record(trace="first", operations=9), record(trace="middle", operations=5), record(trace="short")]
    results = [result(shard, each) for shard, each in enumerate((*shown, record(operations=1)))]
    for order in permutations(results):
        merged = merge(order)
        assert ("short", 8) == (merged._found[record().kind].trace, merged._found[record().kind].times)
        assert {record().kind} == merged.known().kinds
    assert [0, 0, 0, 1] == [len(merge(results[:count]).known().kinds) for count in range(4)]


def test_whichever_shard_ends_first(tmp_path: Path) -> None:
    """Goal: the same shards, the same verdict. Method: two traces of one length, and presets in another order."""
    tallies = [Tally("full", preset, 1, 1) for preset in ("legal", "tiny", "long")]
    results = [
        evolve(result(0, record(trace="b", operations=2)), tallies=tuple(tallies[:2])),
        evolve(result(1, record(trace="a", operations=2)), tallies=tuple(tallies[::-1])),
        evolve(result(2), tallies=tuple(tallies)),
    ]
    for order in permutations(results):
        merged = merge(order)
        assert "a" == merged._found[record().kind].trace
        merged._found.clear()
        verdict = merged.verdict(PLAN, tmp_path, "completed")
        assert ["legal", "tiny", "long"] == [tally.preset for tally in verdict.tallies]
