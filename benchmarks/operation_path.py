"""Which files one operation passes through: generated, run, compared and reported.

A fault is injected into the reference, so that the first case of ``kvgate check`` on stock vLLM diverges. Every file of
kvgate and kvreference is counted in which a function runs between the first operation that is generated and the end of
the command. Code that runs while a module is imported does not count.

    python -m benchmarks.operation_path [--list]
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
from pathlib import Path
from types import FrameType
from typing import Any

from kvgate.gate import profiles
from kvgate.gate.level import Level
from kvgate.gate.profiles import Profile
from kvreference.block_pool import BlockPool

PACKAGES = ("kvgate", "kvreference")
ARGUMENTS = ("check", "--model", "full", "--seed", "0", "--time-budget", "10s")


class Trace:
    """The files in which a function was called since it began."""

    def __init__(self) -> None:
        self.files: dict[Path, str] = {}
        """Per file the package that it is of."""
        self._importing = 0

    def begin(self) -> None:
        """Note every call from now on."""
        sys.setprofile(self._note)

    def _note(self, frame: FrameType, event: str, _argument: Any) -> None:
        module = str(frame.f_globals.get("__name__", ""))
        package = module.partition(".")[0]
        name, file = frame.f_code.co_name, frame.f_code.co_filename
        if name == "<module>":
            self._importing += {"call": 1, "return": -1}.get(event, 0)
        elif event == "call" and not self._importing and package in PACKAGES and file[0] != "<":
            self.files[Path(file)] = package


def measure() -> dict[Path, str]:
    """The files, each with its package."""
    from kvgate.cli.app import main

    trace, generate, release = Trace(), Level.draw_with, BlockPool.release

    def traced(level: Level, *given: Any) -> Any:
        if not trace.files:
            trace.begin()
        return generate(level, *given)

    def head_first(pool: BlockPool, blocks: Any) -> None:
        release(pool, list(blocks)[::-1])

    vars_of = {Level: ("draw_with", traced), BlockPool: ("release", head_first)}
    for owner, (name, replacement) in vars_of.items():
        setattr(owner, name, replacement)
    # One case of one lane.
    profiles.PROFILES = {"quick": Profile(1)}
    sys.argv = ["kvgate", *ARGUMENTS]
    printed = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(printed):
        os.chdir(folder)
        with contextlib.suppress(SystemExit):
            main()
        sys.setprofile(None)
    assert "KV-OP-07" in printed.getvalue(), f"the fault is found: {printed.getvalue()}"
    return trace.files


if __name__ == "__main__":
    found = measure()
    for wanted in PACKAGES:
        files = sorted(path for path, package in found.items() if package == wanted)
        lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)
        print(f"{wanted}: {len(files)} files, {lines} lines")
        if "--list" in sys.orig_argv:
            print(*(f"  {path}" for path in files), sep="\n")
