"""The stage of these tests: a small plan, results made by hand, and workers that follow a script."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kvgate.campaigns.plan import FuzzPlan
from kvgate.campaigns.results import Record, ShardResult, render
from kvgate.campaigns.serving import Task
from kvgate.campaigns.workers import Answered, Lost
from kvgate.gate.verdict import Tally

PLAN = FuzzPlan(sut="reference", models=("full",), shards=6, shard_operations=800, minimise_seconds=5)


def record(**changes: Any) -> Record:
    """Something found, with what a test changes."""
    plain: dict[str, Any] = {
        "detector": "lockstep",
        "statement": "KV-OP-01",
        "subject": "answer to LookUp",
        "kind": ("lockstep", "KV-OP-01", "answer to LookUp"),
        "expected": "16",
        "got": "0",
        "step": 3,
        "at_rest": False,
        "operations": 4,
        "times": 2,
    }
    return Record(**{**plain, **changes})


def result(shard: int, *records: Record, operations: int = 100) -> ShardResult:
    """The result of a shard."""
    return ShardResult(shard, "1", ("lockstep", "twice"), 0.5, 1, (Tally("full", "legal", 2, operations),), records)


class Scripted:
    """Workers that answer as a script says: per shard, what happens at each attempt."""

    def __init__(self, jobs: int, script: Callable[[int, int], str | None]) -> None:
        self.jobs = jobs
        self.script = script
        self.begun: list[Task] = []
        self.ended: list[int] = []
        self.stopped = False
        self._running: list[int] = []

    def idle(self) -> int:
        return self.jobs - len(self._running)

    def begin(self, task: Task) -> None:
        self.begun.append(task)
        self._running.append(task.shard)

    def wait(self, seconds: float) -> Sequence[Answered | Lost]:
        assert 0 < seconds
        shard = self._running.pop(0)
        attempt = sum(task.shard == shard for task in self.begun)
        reply = self.script(shard, attempt)
        return [Lost(shard, "killed by SIGKILL") if reply is None else Answered(shard, reply)]

    def end(self, shard: int) -> None:
        self.ended.append(shard)

    def pids(self) -> list[int]:
        return []

    def stop(self) -> None:
        self.stopped = True


def answered(shard: int, _attempt: int) -> str:
    """Every shard is run at the first attempt."""
    return render(result(shard))
