"""Trying: what may hang, crash or print is done in a process of its own, with a time limit.

Nothing of a broken installation reaches the doctor but what such a process said before it ended.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import IO, Any

from attrs import define, frozen

MARK = "kvgate-doctor: "
"""What a line begins with that is for the doctor: packages print what they like besides."""
SAID_BYTES_MAX = 2**18
SAID_CHARACTERS_MAX = 500
_POLL_SECONDS = 0.05

# Found as the command itself would find it: not in the working directory.
_PREAMBLE = "import json, sys\nsys.path[:] = [each for each in sys.path if each]\n"
_TELL = f"tell = lambda **facts: print({MARK!r} + json.dumps(facts), flush=True)\n"

SYSTEM = (
    _PREAMBLE
    + _TELL
    + """
import torch
cuda = torch.cuda.device_count() if torch.cuda.is_available() else 0
tell(torch=str(torch.__version__), cuda_devices=cuda)
from kvgate.adapters.device.npu import missing_npu
tell(npu=missing_npu())
from kvgate.kernel.errors import SystemUnavailableError
from kvgate.adapters.registry import load_system
try:
    tell(stock=load_system("stock").version)
except SystemUnavailableError as error:
    tell(refused=str(error))
import runpy
sys.argv = ["swa_retention", "doctor"]
try:
    runpy.run_module("swa_retention", run_name="__main__")
except SystemExit as ended:
    tell(plug_in=ended.code)
"""
)
"""Import torch, look for devices, load vLLM's block manager as the gate does, and ask the plug-in's own doctor."""
Z3 = _PREAMBLE + _TELL + "import z3\nz3.Solver().check()\ntell(z3=z3.get_version_string())\n"
"""Whether z3's library can be loaded, and answers."""


@frozen
class Tried:
    """How a process ended."""

    code: int | None
    """Its exit code, negative for a signal; None if it took too long."""
    said: str
    """What it printed, or the end of it."""
    facts: Mapping[str, Any]
    """What it told the doctor before it ended."""

    @property
    def trouble(self) -> str:
        """Why it did not end well, in a line; empty if it did."""
        if self.code is None:
            return "it took too long, and was ended"
        if self.code < 0:
            return f"it was ended by {_signal(-self.code)}"
        return (self.last_line or f"it ended with exit code {self.code}") if self.code else ""

    @property
    def last_line(self) -> str:
        """The last line that is not for the doctor."""
        lines = [line.strip() for line in self.said.splitlines() if line.strip() and not line.startswith(MARK)]
        return lines[-1][:SAID_CHARACTERS_MAX] if lines else ""


@define
class _Running:
    process: subprocess.Popen[bytes]
    said: IO[bytes]
    code: int | None = None
    has_ended: bool = False


def try_all(
    programs: Mapping[str, str], seconds: float, say: Callable[[str], None] = lambda _text: None
) -> dict[str, Tried]:
    """Run all ``programs`` side by side, for ``seconds`` at most; each in a process that leaves nothing behind.

    Raises:
        OSError: no process can be started, or there is no place for what it says.
    """
    deadline = time.monotonic() + seconds
    running: dict[str, _Running] = {}
    with _ended_at_last(running):
        for name, program in programs.items():
            running[name] = _started(program)
        while time.monotonic() < deadline and not all(each.has_ended for each in running.values()):
            for each in running.values():
                if not each.has_ended and _is_over(each.process):
                    each.code = _killed(each.process)
                    each.has_ended = True
            say(f"trying {', '.join(name for name, each in running.items() if not each.has_ended)} …")
            time.sleep(_POLL_SECONDS)
        return {name: _tried(each) for name, each in running.items()}


def _started(program: str) -> _Running:
    # It is closed when the process has ended.
    said = tempfile.TemporaryFile()  # noqa: SIM115
    # What is logged is for nobody here.
    environment = {"VLLM_LOGGING_LEVEL": "ERROR", **os.environ}
    command = [sys.executable, "-c", program]
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=environment, start_new_session=True
        )
    except OSError:
        said.close()
        raise
    return _Running(process, said)


@contextmanager
def _ended_at_last(running: Mapping[str, _Running]) -> Iterator[None]:
    try:
        yield
    finally:
        for each in running.values():
            if not each.has_ended:
                _killed(each.process)
            each.said.close()


def _is_over(process: subprocess.Popen[bytes]) -> bool:
    """Whether it has ended. It is left to be waited for: until then nobody else gets its number."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _killed(process: subprocess.Popen[bytes]) -> int:
    """Its exit code, once it is ended with whatever it started: it has a session of its own."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    return process.wait()


def _tried(running: _Running) -> Tried:
    # Where the process stands: its own descriptor shares this file's position.
    size = os.fstat(running.said.fileno()).st_size
    running.said.seek(max(0, size - SAID_BYTES_MAX))
    said = running.said.read(SAID_BYTES_MAX).decode("utf-8", errors="replace")
    return Tried(running.code, said, _facts(said))


def _facts(said: str) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for line in said.splitlines():
        if line.startswith(MARK):
            with suppress(ValueError):
                told = json.loads(line.removeprefix(MARK))
                facts |= told if isinstance(told, dict) else {}
    return facts


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
