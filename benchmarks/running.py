"""One benchmark run from outside: its rows as they come, and how it ended."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path

from attrs import frozen
from benchmarks.history import Entry, State, row_from
from benchmarks.machine import this_machine
from benchmarks.row import Row

ROOT = Path(__file__).resolve().parents[1]
PATIENCE_SECONDS = 20.0
"""How long a process that was interrupted may take to end."""
WHY_CHARACTERS_MAX = 300


@frozen
class Job:
    """A benchmark to be run."""

    name: str
    quick: bool

    @property
    def command(self) -> list[str]:
        """What runs it."""
        return [sys.executable, "-m", "benchmarks.one", self.name, *(["--quick"] if self.quick else [])]


def run(job: Job, seen: Callable[[Row], None], command: Sequence[str] | None = None) -> Entry:
    """Run it, and tell each row. Whoever interrupts gets what there is by then."""
    machine, started = this_machine(), time.monotonic()
    when = datetime.now(timezone.utc).isoformat(timespec="seconds")
    rows: list[Row] = []
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            command or job.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=said, cwd=ROOT
        )
        try:
            assert process.stdout is not None
            for line in process.stdout:
                rows.append(row_from(line, f"{job.name}, row {len(rows) + 1}"))
                seen(rows[-1])
            state = {0: State.COMPLETE, 130: State.INTERRUPTED}.get(process.wait(), State.FAILED)
        except KeyboardInterrupt:
            state = State.INTERRUPTED
        finally:
            _end(process)
        said.seek(0)
        why = _last_line(said.read()) if state is State.FAILED else None
    seconds = round(time.monotonic() - started, 1)
    return Entry(job.name, when, commit(), machine, job.quick, state, seconds, tuple(rows), why)


def _end(process: subprocess.Popen[bytes]) -> None:
    """See to it that nothing goes on."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _last_line(said: bytes) -> str:
    lines = said.decode(errors="replace").strip().splitlines()
    return (lines[-1] if lines else "it said nothing")[:WHY_CHARACTERS_MAX]


def commit() -> str | None:
    """The commit of the checkout, with a plus where it was changed; None without git."""
    try:
        ask = ["git", "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=+"]
        return subprocess.run(ask, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
