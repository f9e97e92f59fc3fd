"""Child processes with a time limit: however one ends, no process that it started is left.

Each child has a session of its own. So Ctrl-C reaches this process alone, which ends its children, and a child is ended
together with every process that it started. ``run`` and ``run_all`` are for commands, ``started`` for a command that is
talked to, and ``Workers`` for Python functions. Processes that are to outlive a call (``vllm serve`` under
``kvgate record``, the sidecar of a shadow) are not started here.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing import connection, parent_process, resource_tracker
from multiprocessing.context import SpawnContext, SpawnProcess
from types import FrameType
from typing import IO, Any

from attrs import define, frozen

OUTPUT_BYTES_MAX = 2**18
"""How much of what a command prints is kept: its end."""
_POLL_SECONDS = 0.05


def describe_end(code: int | None) -> str:
    """How a process ended, from its exit code; None if it took too long."""
    if code is None:
        return "it took too long"
    if code < 0:
        with suppress(ValueError):
            return f"killed by {signal.Signals(-code).name}"
        return f"killed by signal {-code}"
    return f"exit code {code}"


# Commands


@frozen
class Ended:
    """How a command ended."""

    code: int | None
    """Its exit code, negative for a signal; None if it took too long."""
    output: str
    """The end of what it printed."""


@define(eq=False)
class Child:
    """A command that runs."""

    process: subprocess.Popen[bytes]
    code: int | None = None
    """Its exit code, once it was ended here."""

    def has_ended(self) -> bool:
        """Whether the command has ended by itself. It is not reaped yet, so its id is not reused."""
        if self.code is not None:
            return True
        return os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def end(self) -> int:
        """End it, with every process that it started; returns its exit code."""
        if self.code is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.code = self.process.wait()
        return self.code


@contextmanager
def started(command: Sequence[str], **options: Any) -> Iterator[Child]:
    """A command that runs while this is entered, with ``options`` of ``subprocess.Popen``.

    Raises:
        OSError: it cannot be started.
    """
    process = subprocess.Popen(command, start_new_session=True, **{"stdin": subprocess.DEVNULL, **options})
    child = Child(process)
    try:
        yield child
    finally:
        child.end()
        for pipe in (process.stdin, process.stdout, process.stderr):
            # What was written to it and not read by anyone cannot be written any more.
            with suppress(OSError):
                if pipe is not None:
                    pipe.close()


def run_all(
    commands: Mapping[str, Sequence[str]],
    seconds: float | None,
    waiting: Callable[[Sequence[str]], None] = lambda _names: None,
    *,
    poll_seconds: float = _POLL_SECONDS,
    **options: Any,
) -> dict[str, Ended]:
    """Run all ``commands`` at the same time, for ``seconds`` at most; what they print is kept together.

    ``waiting`` is called all the time with the names of those that still run.

    Raises:
        OSError: no process can be started, or its output cannot be stored.
    """
    deadline = None if seconds is None else time.monotonic() + seconds
    with ExitStack() as stack:
        running: dict[str, tuple[Child, IO[bytes]]] = {}
        for name, command in commands.items():
            output = stack.enter_context(tempfile.TemporaryFile())
            running[name] = (
                stack.enter_context(started(command, **{"stdout": output, "stderr": output, **options})),
                output,
            )
        in_time: dict[str, int] = {}
        while len(in_time) < len(running) and (deadline is None or time.monotonic() < deadline):
            for name, (child, _) in running.items():
                if name not in in_time and child.has_ended():
                    in_time[name] = child.end()
            waiting([name for name in running if name not in in_time])
            time.sleep(poll_seconds)
        for child, _ in running.values():
            child.end()
        return {name: Ended(in_time.get(name), _last_of(output)) for name, (_, output) in running.items()}


def run(
    command: Sequence[str], seconds: float | None = None, waiting: Callable[[], None] = lambda: None, **options: Any
) -> Ended:
    """Run one command, for ``seconds`` at most; see ``run_all``."""
    return run_all({"": command}, seconds, lambda _names: waiting(), **options)[""]


def _last_of(output: IO[bytes]) -> str:
    size = os.fstat(output.fileno()).st_size
    output.seek(max(0, size - OUTPUT_BYTES_MAX))
    return output.read(OUTPUT_BYTES_MAX).decode("utf-8", errors="replace")


# Python functions


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Delay Ctrl-C until this context ends. Processes started in it inherit that."""
    # The tracker is started first, for that clears the mask.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    # Where there are other threads, one of them receives it, and this one would raise.
    is_main = threading.current_thread() is threading.main_thread()
    handler, received = signal.getsignal(signal.SIGINT) if is_main else None, list[tuple[int, FrameType | None]]()
    if callable(handler):
        signal.signal(signal.SIGINT, lambda number, frame: received.append((number, frame)))
    try:
        yield
    finally:
        if callable(handler):
            signal.signal(signal.SIGINT, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if callable(handler) and received:
            handler(*received[0])


class _Session(SpawnProcess):
    """A process in a session of its own, which ends with the process that started it."""

    def start(self) -> None:
        # An interrupt while it starts would end it with a traceback.
        with _uninterrupted():
            super().start()

    def run(self) -> None:
        os.setsid()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        threading.Thread(target=_end_with_parent, daemon=True).start()
        super().run()

    def kill(self) -> None:
        if self.pid is not None:
            # Before it has a session, no group has this id, and it has started nothing.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            super().kill()

    terminate = kill


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os.killpg(0, signal.SIGKILL)


class _Sessions(SpawnContext):
    """Starts processes afresh: a library that holds threads or a device does not survive a fork."""

    def __init__(self) -> None:
        super().__init__()
        self.processes: list[_Session] = []

    def Process(self, *arguments: Any, **named: Any) -> _Session:  # type: ignore[override] # noqa: N802 (the base's name)
        self.processes.append(_Session(*arguments, **named))
        return self.processes[-1]


class Workers(ProcessPoolExecutor):
    """Processes of this machine that run Python functions, until ``end``.

    When one dies, or is killed, all are ended: a future that waits raises ``BrokenProcessPool``.
    """

    def __init__(self, processes: int = 1, begin: Callable[..., object] | None = None, *given: Any) -> None:
        self._sessions = _Sessions()
        # An executor that is interrupted here leaks semaphores.
        with _uninterrupted():
            super().__init__(processes, self._sessions, initializer=begin, initargs=given)

    def submit(self, *given: Any, **named: Any) -> Future[Any]:
        # An executor that is interrupted while it starts its thread cannot be shut down.
        with _uninterrupted():
            return super().submit(*given, **named)

    def end(self) -> int | None:
        """End them at once, with every process that they started. Returns the exit code of the first."""
        processes = list(self._sessions.processes)
        for process in processes:
            # Of a process that died, the executor has ended what it started.
            if process.exitcode is None:
                process.kill()
        self.shutdown(cancel_futures=True)
        return processes[0].exitcode if processes else None

    @property
    def pids(self) -> list[int]:
        """The processes that were started."""
        return [process.pid for process in self._sessions.processes if process.pid is not None]

    def __exit__(self, kind: object, *_about: object) -> None:
        """Wait for what runs; if something went wrong, end it."""
        if kind is None:
            self.shutdown()
        else:
            self.end()
