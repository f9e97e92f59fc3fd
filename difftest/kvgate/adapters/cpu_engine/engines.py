"""The engines' process: started once, given job after job, and ended if it takes too long."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from attrs import define

from kvgate.adapters.cpu_engine.job import Job, JobResult, document, result_of
from kvgate.kernel.child_process import Child, started
from kvgate.kernel.errors import SystemUnavailableError

ENGINES = "kvgate.adapters.cpu_engine.answering"
JOB_SECONDS_MAX = 600.0
_TAIL_CHARACTERS = 2000


@define(eq=False)
class Engines:
    """Answers jobs, in a process of its own."""

    child: Child
    log: Path
    """What vLLM printed."""

    def run(self, job: Job) -> JobResult:
        """Have a job answered.

        Raises:
            SystemUnavailableError: the process died, or was ended because it took too long.
        """
        requests, replies = self.child.process.stdin, self.child.process.stdout
        assert requests is not None, "it was asked for"
        assert replies is not None, "it was asked for"
        # With its child, which would otherwise keep running.
        timer = threading.Timer(JOB_SECONDS_MAX, self.child.end)
        timer.start()
        try:
            requests.write(json.dumps(document(job)).encode() + b"\n")
            requests.flush()
            line = replies.readline()
        except BrokenPipeError:
            line = b""
        finally:
            timer.cancel()
        if not line:
            raise SystemUnavailableError(
                f"{job.name} on {job.model}: the engines' process ended. Its last words: {self._log_tail()}"
            )
        return result_of(json.loads(line))

    def _log_tail(self) -> str:
        return self.log.read_text(errors="replace")[-_TAIL_CHARACTERS:].strip() or "none"


@contextmanager
def engines() -> Iterator[Engines]:
    """Engines on this machine; their models live in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="kvgate-engines-") as folder:
        log = Path(folder) / "log"
        with log.open("w") as errors:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": errors}
            with started([sys.executable, "-m", ENGINES, folder], **pipes) as child:
                yield Engines(child, log)
