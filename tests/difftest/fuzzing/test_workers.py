"""Workers that die: on this machine, and on a Ray cluster of this machine."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from attrs import evolve

from kvgate.campaigns.folder import RunFolder
from kvgate.campaigns.merging import merge
from kvgate.campaigns.plan import FuzzPlan, manifest
from kvgate.campaigns.results import ShardResult
from kvgate.campaigns.run import Progress, Run
from kvgate.campaigns.shard import Known, Shards
from kvgate.campaigns.workers import LocalWorkers, Workers
from kvgate.kernel.errors import SystemUnavailableError

from .stage import PLAN


def _without_seconds(results: list[ShardResult]) -> list[ShardResult]:
    return [evolve(each, seconds=0.0) for each in results]


def _with_one_killed(folder: RunFolder, plan: FuzzPlan, workers: Workers) -> tuple[str, list[Progress]]:
    """Run all shards, and kill a worker once the first shard is done, while others are run."""
    folder.create(plan)
    seen: list[Progress] = []

    def watch(progress: Progress) -> None:
        if progress.shards and not any(each.shards for each in seen):
            os.kill(workers.pids()[0], signal.SIGKILL)
        seen.append(progress)

    try:
        # A cluster on a crowded machine may leave a new worker waiting permanently: then it is ended, and counts as
        # lost.
        return Run(plan, folder, merge(()), workers, report=watch, shard_seconds_max=120.0).run(), seen
    finally:
        workers.stop()


@pytest.fixture(scope="module")
def expected() -> list[ShardResult]:
    """The results of each shard if nothing happens."""
    shards = Shards(PLAN)
    return _without_seconds([shards.run(shard, Known()) for shard in range(6)])


def _on_this_machine(plan: str) -> Workers:
    return LocalWorkers(plan, 2)


def _on_ray(plan: str) -> Workers:
    from kvgate.campaigns.on_ray import RayWorkers

    return RayWorkers(plan, 2, "local")


@pytest.mark.ci
@pytest.mark.parametrize("workers", [_on_this_machine, pytest.param(_on_ray, marks=pytest.mark.ray)])
def test_a_killed_worker_costs_nothing(
    workers: Callable[[str], Workers], expected: list[ShardResult], tmp_path: Path
) -> None:
    """Goal: nothing is lost, nothing counts twice. Method: two workers, one killed in the middle of a shard."""
    folder = RunFolder(tmp_path / "run")
    ended, seen = _with_one_killed(folder, PLAN, workers(manifest(PLAN)))
    assert "completed" == ended
    assert 1 <= seen[-1].lost
    assert expected == _without_seconds(list(folder.results()))
    assert sum(each.operations for each in expected) == seen[-1].operations


def test_workers_that_die_at_once_end_the_run(tmp_path: Path) -> None:
    """Goal: no endless beginning. Method: a worker that dies while it loads its system."""
    (tmp_path / "dies.py").write_text("import os\nos._exit(7)\n")
    plan = evolve(PLAN, preloads=(str(tmp_path / "dies.py"),))
    folder = RunFolder(tmp_path / "run")
    folder.create(plan)
    workers = LocalWorkers(manifest(plan), 1)
    try:
        with pytest.raises(SystemUnavailableError, match=r"exit code 7, \d in a row"):
            Run(plan, folder, merge(()), workers).run()
    finally:
        workers.stop()


@pytest.mark.ci
def test_a_worker_that_hangs_is_ended(tmp_path: Path) -> None:
    """Goal: no shard holds up a run permanently. Method: a system that sleeps when it is built, and a short timeout."""
    (tmp_path / "sleeps.py").write_text("import time\ntime.sleep(600)\n")
    plan = evolve(PLAN, preloads=(str(tmp_path / "sleeps.py"),), shards=1)
    folder = RunFolder(tmp_path / "run")
    folder.create(plan)
    workers = LocalWorkers(manifest(plan), 1)
    run = Run(plan, folder, merge(()), workers, shard_seconds_max=0.1)
    try:
        ended = run.run()
    finally:
        workers.stop()
    assert ("1 shard lost", {0: "it took longer than 0.1 s"}) == (ended, run.given_up)
