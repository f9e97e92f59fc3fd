"""Workers on this machine: processes that are started afresh, and again when one of them dies."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Protocol

from attrs import define, frozen

from kvgate.campaigns.serving import Server, Task
from kvgate.kernel.child_process import Workers as ProcessPool
from kvgate.kernel.child_process import describe_end
from kvgate.kernel.errors import SystemUnavailableError

DEATHS_MAX = 3
"""How often each worker may die, if meanwhile none answers."""


@frozen
class Answered:
    """A worker has answered."""

    shard: int
    reply: str


@frozen
class Lost:
    """A worker died, or was killed, while it ran a shard."""

    shard: int
    why: str


class Workers(Protocol):
    """Workers that run shards."""

    def idle(self) -> int:
        """How many more shards could be begun now."""
        ...

    def begin(self, task: Task) -> None:
        """Give a shard to a worker that is idle."""
        ...

    def wait(self, seconds: float) -> Sequence[Answered | Lost]:
        """What has come in, after at most so many seconds."""
        ...

    def end(self, shard: int) -> None:
        """Kill the worker of a shard."""
        ...

    def pids(self) -> list[int]:
        """The processes of the workers, as far as they are known."""
        ...

    def stop(self) -> None:
        """End all workers at once."""
        ...


@define(eq=False)
class _Worker:
    processes: ProcessPool
    shard: int | None = None
    reply: Future[str] | None = None


class LocalWorkers:
    """Processes on this machine, each with one of its own: when it dies, no other is lost."""

    def __init__(self, plan: str, jobs: int) -> None:
        self._plan = plan
        self._workers = [_Worker(self._started()) for _ in range(jobs)]
        self._deaths = 0

    def _started(self) -> ProcessPool:
        processes = ProcessPool(1, _begin, self._plan)
        # It starts with the first that it is asked.
        processes.submit(int)
        return processes

    def idle(self) -> int:
        return sum(worker.shard is None for worker in self._workers)

    def begin(self, task: Task) -> None:
        worker = next(worker for worker in self._workers if worker.shard is None)
        worker.shard = task.shard
        try:
            worker.reply = worker.processes.submit(_answer, task.render())
        except BrokenProcessPool as error:
            worker.reply = Future()
            worker.reply.set_exception(error)

    def wait(self, seconds: float) -> Sequence[Answered | Lost]:
        replies = [worker.reply for worker in self._workers if worker.reply is not None]
        ready, _ = wait(replies, seconds, FIRST_COMPLETED)
        return [self._take(worker) for worker in self._workers if worker.reply in ready]

    def _take(self, worker: _Worker) -> Answered | Lost:
        assert worker.shard is not None, "only a worker that runs a shard is waited for"
        assert worker.reply is not None, "only a worker that runs a shard is waited for"
        shard, reply, worker.shard, worker.reply = worker.shard, worker.reply, None, None
        try:
            answer = reply.result()
        except (BrokenProcessPool, CancelledError):
            return Lost(shard, self._replace(worker))
        self._deaths = 0
        return Answered(shard, answer)

    def _replace(self, worker: _Worker) -> str:
        """Put another process into the place of one that died; says how it ended."""
        how = describe_end(worker.processes.end())
        self._deaths += 1
        if self._deaths > DEATHS_MAX * len(self._workers):
            raise SystemUnavailableError(
                f"workers die before they answer ({how}, {self._deaths} in a row): run the same with "
                "kvgate check, which shows why"
            )
        worker.processes = self._started()
        return how

    def end(self, shard: int) -> None:
        for worker in self._workers:
            if worker.shard == shard:
                worker.processes.end()

    def pids(self) -> list[int]:
        return [pid for worker in self._workers for pid in worker.processes.pids]

    def stop(self) -> None:
        for worker in self._workers:
            worker.processes.end()


# In a process of its own

_SERVERS: list[Server] = []


def _begin(plan: str) -> None:
    # What a system prints is not what the command prints.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    _SERVERS.append(Server(plan))


def _answer(task: str) -> str:
    return _SERVERS[0].run(task)
