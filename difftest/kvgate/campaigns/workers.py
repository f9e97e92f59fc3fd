"""Workers on this machine: processes that are started afresh, and again when one of them dies."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Sequence
from multiprocessing import connection, get_context
from multiprocessing.connection import Connection
from typing import Any, Protocol

from attrs import define, frozen

from kvgate.campaigns.serving import Server, Task
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
    """Whoever runs shards."""

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
        """Kill whoever runs a shard."""
        ...

    def pids(self) -> list[int]:
        """The processes of the workers, as far as they are known."""
        ...

    def stop(self) -> None:
        """End all workers, whatever they do."""
        ...


@define(eq=False)
class _Worker:
    process: Any
    pipe: Connection
    shard: int | None = None


class LocalWorkers:
    """Processes on this machine."""

    def __init__(self, plan: str, jobs: int) -> None:
        self._plan = plan
        # Spawned, for a library that holds threads or a device does not survive a fork.
        self._context = get_context("spawn")
        self._workers = [self._started() for _ in range(jobs)]
        self._deaths = 0

    def _started(self) -> _Worker:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=serve, args=(theirs, self._plan), daemon=True)
        # Whoever interrupts the command must not interrupt a worker, not even while it starts.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            process.start()
        finally:
            signal.signal(signal.SIGINT, before)
        # The child has its own end; while this one stayed open, its death would not be seen.
        theirs.close()
        return _Worker(process, ours)

    def idle(self) -> int:
        return sum(worker.shard is None for worker in self._workers)

    def begin(self, task: Task) -> None:
        worker = next(worker for worker in self._workers if worker.shard is None)
        worker.shard = task.shard
        # One that is dead is noticed when it is waited for.
        with contextlib.suppress(OSError):
            worker.pipe.send(task.told())

    def wait(self, seconds: float) -> Sequence[Answered | Lost]:
        ready = connection.wait([worker.pipe for worker in self._workers], seconds)
        return [event for worker in list(self._workers) if worker.pipe in ready for event in self._heard(worker)]

    def _heard(self, worker: _Worker) -> Sequence[Answered | Lost]:
        shard = worker.shard
        try:
            reply = str(worker.pipe.recv())
        except (EOFError, OSError):
            return self._buried(worker)
        self._deaths = 0
        worker.shard = None
        return () if shard is None else (Answered(shard, reply),)

    def _buried(self, worker: _Worker) -> Sequence[Answered | Lost]:
        """Put another worker into the place of one that died."""
        worker.process.join(5)
        code = worker.process.exitcode
        self._deaths += 1
        if self._deaths > DEATHS_MAX * len(self._workers):
            raise SystemUnavailableError(
                f"workers die before they answer ({_how(code)}, {self._deaths} in a row): run the same with "
                "kvgate check, which shows why"
            )
        self._workers[self._workers.index(worker)] = self._started()
        worker.pipe.close()
        return () if worker.shard is None else (Lost(worker.shard, _how(code)),)

    def end(self, shard: int) -> None:
        for worker in self._workers:
            if worker.shard == shard:
                worker.process.kill()

    def pids(self) -> list[int]:
        return [worker.process.pid for worker in self._workers]

    def stop(self) -> None:
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            worker.process.join(5)
            worker.pipe.close()


def _how(code: int | None) -> str:
    """How a process ended."""
    if code is not None and code < 0:
        with contextlib.suppress(ValueError):
            return f"killed by {signal.Signals(-code).name}"
    return f"exit code {code}"


def serve(pipe: Connection, plan: str) -> None:
    """The life of a worker: a task, an answer, until nobody asks any more."""
    # What a system prints is not what the command prints.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    server = Server(plan)
    with contextlib.suppress(EOFError, OSError):
        while True:
            pipe.send(server.run(pipe.recv()))
