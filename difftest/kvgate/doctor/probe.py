"""Trying: what may hang, crash or print is done in a process of its own, with a time limit.

Nothing of a broken installation reaches the doctor but what such a process printed before it ended.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from attrs import frozen

from kvgate.kernel.child_process import describe_end, run_all

MARK = "kvgate-doctor: "
"""What a line begins with that is for the doctor: packages print what they like besides."""
OUTPUT_CHARACTERS_MAX = 500

# Found as the command itself would find it: not in the working directory.
_PREAMBLE = "import json, sys\nsys.path[:] = [each for each in sys.path if each]\n"
_REPORT = f"report = lambda **facts: print({MARK!r} + json.dumps(facts), flush=True)\n"

SYSTEM = (
    _PREAMBLE
    + _REPORT
    + """
import torch
cuda = torch.cuda.device_count() if torch.cuda.is_available() else 0
report(torch=str(torch.__version__), cuda_devices=cuda)
from kvgate.adapters.device.npu import missing_npu
report(npu=missing_npu())
from kvgate.kernel.errors import SystemUnavailableError
from kvgate.adapters.registry import load_system
from kvgate.adapters.releases import system_installed
try:
    report(gate=load_system(system_installed()).version)
except SystemUnavailableError as error:
    report(refused=str(error))
import runpy
sys.argv = ["swa_retention", "doctor"]
try:
    runpy.run_module("swa_retention", run_name="__main__")
except SystemExit as ended:
    report(plug_in=ended.code)
"""
)
"""Import torch, look for devices, load vLLM's block manager as the gate does, and ask the plug-in's own doctor."""
Z3 = _PREAMBLE + _REPORT + "import z3\nz3.Solver().check()\nreport(z3=z3.get_version_string())\n"
"""Whether z3's library can be loaded, and answers."""


@frozen
class Probe:
    """How a process ended."""

    code: int | None
    """Its exit code, negative for a signal; None if it took too long."""
    output: str
    """What it printed, or the end of it."""
    facts: Mapping[str, Any]
    """What it reported to the doctor before it ended."""

    @property
    def trouble(self) -> str:
        """Why it did not end well, in a line; empty if it did."""
        if self.code is None:
            return "it took too long, and was ended"
        if self.code < 0:
            return f"it was ended by {describe_end(self.code).removeprefix('killed by ')}"
        return (self.last_line or f"it ended with {describe_end(self.code)}") if self.code else ""

    @property
    def last_line(self) -> str:
        """The last line that is not for the doctor."""
        lines = [line.strip() for line in self.output.splitlines() if line.strip() and not line.startswith(MARK)]
        return lines[-1][:OUTPUT_CHARACTERS_MAX] if lines else ""


def try_all(
    programs: Mapping[str, str], seconds: float, report: Callable[[str], None] = lambda _text: None
) -> dict[str, Probe]:
    """Run all ``programs`` at the same time, for ``seconds`` at most; each in a process that leaves nothing.

    Raises:
        OSError: no process can be started, or its output cannot be stored.
    """
    ended = run_all(
        {name: [sys.executable, "-c", program] for name, program in programs.items()},
        seconds,
        lambda names: report(f"trying {', '.join(names)} …"),
        # The log is not used here.
        env={"VLLM_LOGGING_LEVEL": "ERROR", **os.environ},
    )
    return {name: Probe(each.code, each.output, _facts(each.output)) for name, each in ended.items()}


def _facts(output: str) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for line in output.splitlines():
        if line.startswith(MARK):
            with suppress(ValueError):
                reported = json.loads(line.removeprefix(MARK))
                facts |= reported if isinstance(reported, dict) else {}
    return facts
