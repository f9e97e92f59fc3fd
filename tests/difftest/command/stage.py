"""The stage of these tests: the command as a process of its own, and systems to check with it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from attrs import frozen

from kvgate.gate.trace_codec import trace_of, write
from kvgate.levels.manager import DETECTORS, MANAGER
from kvgate.report.document import from_json
from kvreference.attention import Kind
from kvreference.geometry import Geometry, Group
from kvreference.operations import Admit, Arrive, Finish, Run
from kvreference.settings import Settings

FAULTY = '''
"""A system with an injected fault: a finished request releases its blocks from the head on."""
from kvgate.adapters.reference import Reference
from kvreference.operations import Finish

__version__ = "1.2.3"

class HeadFirst(Reference):
    def apply(self, operation):
        if isinstance(operation, Finish):
            for table in self.tables[operation.request]:
                table.blocks.reverse()
        return super().apply(operation)

class Rootless(Reference):
    def roots(self):
        raise KeyError("roots")

def refuses(settings):
    raise ValueError("no pools of this\\nsize")

def breaks(settings):
    raise AssertionError("block size")
'''

CASE = MANAGER.case(
    Settings(Geometry((Group(Kind.FULL, 4),)), blocks=16),
    (Arrive(0, (Run(0, 9),)), Admit(0, 64), Finish(0)),
    model="one group",
    preset="tiny",
    seed=7,
)


@frozen
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def message(self) -> str:
        """The one line on standard error that every early end consists of."""
        (line,) = (line for line in self.err.splitlines() if not line.startswith("loading "))
        assert line.startswith("kvgate: ")
        assert "" == self.out
        return line.removeprefix("kvgate: ")


def run_kvgate(directory: Path, *arguments: str, **variables: str) -> Ended:
    """Run the command as a process in ``directory``."""
    finished = subprocess.run(
        [sys.executable, "-m", "kvgate.cli", *arguments],
        cwd=directory,
        env=environment(**variables),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return Ended(finished.returncode, finished.stdout, finished.stderr)


def environment(**variables: str) -> dict[str, str]:
    """This process's environment, outside of any workflow, and some variables more."""
    return {name: value for name, value in os.environ.items() if not name.startswith("GITHUB_")} | variables


def stored(directory: Path, system: str = "reference") -> Path:
    """A trace that shows nothing on a system in order."""
    path = directory / "trace.jsonl"
    write(trace_of(CASE, None, system, "1", DETECTORS), path)
    return path


def rows_of(text: str, title: str = "") -> list[dict[str, Any]]:
    """The rows of one table of a report in JSON, which is read as strictly as it is specified."""
    (section,) = (each for each in from_json(text, "out").tested if each.title == title and each.columns)
    return section.records()
