"""One benchmark in a process of its own: its rows as they come, and how it ended.

The process prints a line of JSON for each row, as soon as it is measured. All other output, its own and vLLM's, goes to
standard error. `python -m benchmarks` starts it, as

    python -m benchmarks.running NAME [--quick]
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from types import FrameType

from attrs import asdict, frozen
from benchmarks.harness import Row
from benchmarks.history import Entry, State, row_from, this_machine
from benchmarks.registry import chosen

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
        return [sys.executable, "-m", "benchmarks.running", self.name, *(["--quick"] if self.quick else [])]


def run(job: Job, seen: Callable[[Row], None], command: Sequence[str] | None = None) -> Entry:
    """Run it, and yield each row as soon as it is measured, so an interrupt keeps the rows so far."""
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
    """Make sure that the process has ended."""
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


def main() -> int:
    """The process: measure one benchmark, and print its rows; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    (benchmark,) = chosen([arguments.name])
    interrupted: list[int] = []

    def interrupt(number: int, _frame: FrameType | None) -> None:
        interrupted.append(number)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    with os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8") as out:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        with suppress(KeyboardInterrupt):
            for row in benchmark.load()(arguments.quick):
                # A search that is interrupted ends early and raises nothing: its row would be wrong.
                if interrupted:
                    break
                print(json.dumps(asdict(row)), file=out, flush=True)
    return 130 if interrupted else 0


if __name__ == "__main__":
    sys.exit(main())
