"""Ending `python -m kvgate.adapters.cpu_engine` ends the server that it started."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kvgate.adapters.cpu_engine import serving

pytestmark = pytest.mark.ci

STARTED = """
import sys, typer
from kvgate.adapters.cpu_engine import __main__ as command, serving

STUBBORN = '''
import os, signal, time

signal.signal(signal.SIGTERM, lambda *_: print("asked to end", flush=True))
print("pid", os.getpid(), flush=True)
end = time.monotonic() + 120
while time.monotonic() < end:
    time.sleep(1)
'''
serving._run = lambda _arguments: None
serving.command = lambda *_arguments: [sys.executable, "-c", STUBBORN]
serving.Served.is_up = property(lambda server: "pid" in server.log and server.log.endswith(chr(10)))
serving.STOP_SECONDS_MAX = 3.0
typer.run(command.serve)
"""
"""The command, with a stand-in server that does not end when it is asked to."""


@contextmanager
def started(folder: Path, *before: str) -> Iterator[tuple[subprocess.Popen[str], int, Path]]:
    """The command, the number of the process that it serves with, and that one's log."""
    command = [*before, sys.executable, "-c", STARTED, "gemma-3"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, cwd=folder) as process:
        try:
            assert process.stdout is not None
            log = Path(process.stdout.readline().rpartition("Its log: ")[2].strip())
            yield process, int(log.read_text().split()[1]), log
        finally:
            process.kill()


def soon(holds: Callable[[], bool]) -> bool:
    """Whether something holds within some seconds."""
    end = time.monotonic() + 30
    while not (held := holds()) and time.monotonic() < end:
        time.sleep(0.05)
    return held


def is_gone(pid: int) -> bool:
    """Whether a process has ended, though it may wait for its parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_no_server_is_left(tmp_path: Path, number: signal.Signals) -> None:
    """Goal: a signal also ends what the command started. Method: a stand-in server; is it gone?"""
    with started(tmp_path) as (process, pid, _log):
        assert not is_gone(pid)
        process.send_signal(number)
        assert 128 + number == process.wait(60)
        assert soon(lambda: is_gone(pid))


@pytest.mark.parametrize(
    ("first", "second", "code"),
    [
        (signal.SIGTERM, signal.SIGTERM, 143),
        (signal.SIGHUP, signal.SIGTERM, 129),
        (signal.SIGTERM, signal.SIGINT, 143),
        (signal.SIGINT, signal.SIGINT, 130),
        (signal.SIGINT, signal.SIGTERM, 143),
    ],
)
def test_nor_after_a_second_signal(tmp_path: Path, first: signal.Signals, second: signal.Signals, code: int) -> None:
    """Goal: a second signal leaves no process. Method: a second signal, while the command waits for the server."""
    with started(tmp_path) as (process, pid, log):
        process.send_signal(first)
        assert soon(lambda: "asked to end" in log.read_text())
        process.send_signal(second)
        assert code == process.wait(60)
        assert soon(lambda: is_gone(pid))


def test_nor_by_an_interrupt_before_it_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: no moment exists at which the server would be left. Method: an interrupt right after its start."""
    seen: list[subprocess.Popen[bytes]] = []

    def interrupted(_url: str, process: subprocess.Popen[bytes], *_others: object) -> None:
        seen.append(process)
        raise KeyboardInterrupt

    monkeypatch.setattr(serving, "_run", lambda _arguments: None)
    monkeypatch.setattr(serving, "command", lambda *_arguments: [sys.executable, "-c", "import time; time.sleep(60)"])
    monkeypatch.setattr(serving, "Served", interrupted)
    with pytest.raises(KeyboardInterrupt), serving.served(serving.Serving()):
        pass
    assert [-signal.SIGTERM] == [process.returncode for process in seen]


def test_what_nohup_ignores_stays_ignored(tmp_path: Path) -> None:
    """Goal: a server outlives its terminal if the user asks for it. Method: under nohup, two signals; the second ends
    it.
    """
    with started(tmp_path, "nohup") as (process, pid, _log):
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        assert 128 + signal.SIGTERM == process.wait(60)
        assert soon(lambda: is_gone(pid))
