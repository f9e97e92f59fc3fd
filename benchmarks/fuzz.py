"""How fast `kvgate fuzz` is with one worker and with more, on this machine's cores or on a local Ray cluster.

Each worker first runs a shard, so that its system is loaded; then so many shards for each worker are timed. With
``--kill`` a worker is killed in the middle of the timed ones, and what was done is compared with what had to be done:
every shard once, none lost.

Where other programs take the cores as well, operations a second say little: look at what they cost, the processor time
of the workers, and at that of the process which assigns the shards.

    python -m benchmarks.fuzz [--sut stock] [--on local|ray] [--jobs 1 2] [--shards 4] [--shard-operations N] [--kill]
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from attrs import evolve
from benchmarks.harness import Row, at_least_one, end_with, options_of, row_of

from kvgate.campaigns.folder import RunFolder
from kvgate.campaigns.merging import Merged, merge
from kvgate.campaigns.on_ray import LOCAL, RayWorkers
from kvgate.campaigns.plan import FuzzPlan, manifest
from kvgate.campaigns.run import Progress, Run
from kvgate.campaigns.workers import LocalWorkers, Workers


class Killer:
    """Kills the first worker once a third of the shards is done."""

    def __init__(self, workers: Workers, after: int) -> None:
        self.workers = workers
        self.after = after
        self.killed = 0
        self.lost = 0

    def watch(self, progress: Progress) -> None:
        """Receive the progress now and then."""
        self.lost = progress.lost
        if not self.killed and progress.shards >= self.after:
            self.killed = self.workers.pids()[0]
            os.kill(self.killed, signal.SIGKILL)


def processor_seconds(pids: Sequence[int]) -> float | None:
    """The processor time of some processes by now; None where the system does not say."""
    try:
        stats = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    except OSError:
        return None
    return sum(int(stat[11]) + int(stat[12]) for stat in stats) / os.sysconf("SC_CLK_TCK")


def measured(plan: FuzzPlan, on: str, jobs: int, shards: int, kill: bool) -> dict[str, object]:
    """One run with so many workers."""
    workers: Workers = LocalWorkers(manifest(plan), jobs) if on == "local" else RayWorkers(manifest(plan), jobs, LOCAL)
    try:
        with TemporaryDirectory() as scratch:
            folder = RunFolder(Path(scratch) / "run")
            folder.create(plan)
            merged = Merged()
            Run(evolve(plan, shards=jobs), folder, merged, workers).run()
            before, last = merged.operations, jobs + jobs * shards
            killer = Killer(workers, jobs + jobs * shards // 3)
            started, own, theirs = time.monotonic(), time.process_time(), processor_seconds(workers.pids())
            report = killer.watch if kill else lambda _progress: None
            ended = Run(evolve(plan, shards=last), folder, merged, workers, report=report).run()
            seconds, own = time.monotonic() - started, time.process_time() - own
            spent = processor_seconds(workers.pids())
            done = merge(folder.results())
    finally:
        workers.stop()
    assert done.operations == merged.operations, "what is on disk is what was counted"
    return {
        "on": on,
        "workers": jobs,
        "ended": ended,
        "shards": len(done.shards),
        "missing": sorted(set(range(last)) - done.shards),
        "killed": bool(killer.killed),
        "lost_and_run_again": killer.lost,
        "found": done.kinds,
        "operations": merged.operations - before,
        "seconds": round(seconds, 1),
        "operations_per_second": round((merged.operations - before) / seconds),
        "processor_seconds_of_workers": None if kill or spent is None or theirs is None else round(spent - theirs, 1),
        "processor_seconds_of_who_hands_out": round(own, 2),
    }


def rows(quick: bool) -> Iterator[Row]:
    """Operations a second of one worker, and how many times that two reach."""
    plan = FuzzPlan("stock", ("full", "gemma-hybrid"), shard_operations=500 if quick else 10_000)
    paces: list[float] = []
    for jobs in (1, 2):
        line = measured(plan, "local", jobs, 1 if quick else 4, kill=False)
        if line["missing"]:
            raise RuntimeError(f"shards {line['missing']} were lost")
        paces.append(float(str(line["operations_per_second"])))
        if jobs == 1:
            yield row_of("1 worker", paces, "operations/s")
    yield row_of("2 workers", [paces[1] / paces[0]], "of 1 worker")


def main() -> None:
    """Measure, and print a line for each number of workers."""
    parser = options_of("fuzz", __doc__)
    parser.add_argument("--sut", default="stock")
    parser.add_argument("--model", action="append", default=None)
    parser.add_argument("--on", choices=("local", "ray"), default="local")
    parser.add_argument("--jobs", type=at_least_one, nargs="+", default=[1, 2])
    parser.add_argument("--shards", type=at_least_one, default=4, help="for each worker")
    parser.add_argument("--shard-operations", type=at_least_one, default=10_000)
    parser.add_argument("--kill", action="store_true")
    arguments = parser.parse_args()
    plan = FuzzPlan(
        arguments.sut, tuple(arguments.model or ["full", "gemma-hybrid"]), shard_operations=arguments.shard_operations
    )
    lines = []
    for jobs in arguments.jobs:
        lines.append(measured(plan, arguments.on, jobs, arguments.shards, arguments.kill))
        print(json.dumps(lines[-1]), flush=True)
    first, last = (float(str(lines[place]["operations_per_second"])) for place in (0, -1))
    print(f"{arguments.jobs[-1]} workers against {arguments.jobs[0]}: {last / first:.2f} times the operations a second")
    sys.exit(1 if any(line["missing"] for line in lines) else 0)


if __name__ == "__main__":
    end_with("fuzz", main)
