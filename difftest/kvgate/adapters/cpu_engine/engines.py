"""The engines' process: started once, given job after job, and ended if it takes too long."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from attrs import define

from kvgate.adapters.cpu_engine.job import Job, Told, document, told_of
from kvgate.kernel.errors import SystemUnavailableError

ENGINES = "kvgate.adapters.cpu_engine.answering"
JOB_SECONDS_MAX = 600.0
_TAIL_CHARACTERS = 2000


@define(eq=False)
class Engines:
    """Whoever answers jobs, in a process of its own."""

    process: subprocess.Popen[str]
    log: Path
    """What vLLM printed."""

    def tell(self, job: Job) -> Told:
        """Have a job answered.

        Raises:
            SystemUnavailableError: the process died, or was ended because it took too long.
        """
        asked, said = _pipes(self.process)
        timer = threading.Timer(JOB_SECONDS_MAX, self._end)
        timer.start()
        try:
            asked.write(json.dumps(document(job)) + "\n")
            asked.flush()
            line = said.readline()
        except BrokenPipeError:
            line = ""
        finally:
            timer.cancel()
        if not line:
            raise SystemUnavailableError(
                f"{job.name} on {job.model}: the engines' process ended. Its last words: {self._last_words()}"
            )
        return told_of(json.loads(line))

    def _end(self) -> None:
        # With its child, which would go on without it.
        os.killpg(self.process.pid, signal.SIGKILL)

    def _last_words(self) -> str:
        return self.log.read_text(errors="replace")[-_TAIL_CHARACTERS:].strip() or "none"


@contextmanager
def engines() -> Iterator[Engines]:
    """Engines on this machine; their models live in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="kvgate-engines-") as folder:
        log = Path(folder) / "log"
        with log.open("w") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", ENGINES, folder],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        started = Engines(process, log)
        try:
            yield started
        finally:
            if process.poll() is None:
                started._end()
            process.wait()
            for pipe in _pipes(process):
                pipe.close()


def _pipes(process: subprocess.Popen[str]) -> tuple[IO[str], IO[str]]:
    if process.stdin is None or process.stdout is None:
        raise AssertionError("both were asked for")
    return process.stdin, process.stdout
