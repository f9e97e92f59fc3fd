"""The entry point: off unless it is asked for, and without effect on others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

OFF = """
import json, sys
before = set(sys.modules)
from importlib.metadata import entry_points
(entry,) = [each for each in entry_points(group="vllm.general_plugins") if each.name == "kvgate_shadow"]
found = len(sys.meta_path)
entry.load()()
new = [name for name in set(sys.modules) - before if name.split(".")[0] in ("kvgate", "kvreference", "vllm", "torch")]
print(json.dumps([sorted(new), len(sys.meta_path) - found]))
"""
# A package that stands for vLLM: what is watched is a module's name, and a class in it.
ON = """
import json, sys, types
from kvgate.shadow.adapter import attachment, plugin
attached = []
attachment.attach = lambda scheduler, switch: attached.append((type(scheduler).__name__, switch.mode.value))
plugin.register()
plugin.register()
watched = attachment.SCHEDULER in sys.modules
import vllm.v1.core.sched.scheduler as scheduler
scheduler.Scheduler()
scheduler.AsyncScheduler()
print(json.dumps([watched, attached]))
"""
STAND_IN = """
class Scheduler:
    def __init__(self):
        self.built = True


class AsyncScheduler(Scheduler):
    def __init__(self):
        super().__init__()
"""


def said_by(program: str, folder: Path, **environment: str) -> tuple[Any, str]:
    """A fresh interpreter's JSON output, and its standard error."""
    finished = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), **environment},
    )
    assert 0 == finished.returncode, finished.stderr
    return json.loads(finished.stdout.splitlines()[-1]), finished.stderr


@pytest.fixture
def stand_in(tmp_path: Path) -> Path:
    """A folder with a package that is called vLLM and has a scheduler."""
    package = tmp_path / "vllm" / "v1" / "core" / "sched"
    package.mkdir(parents=True)
    (package / "scheduler.py").write_text(STAND_IN)
    for folder in [package, *package.parents][:4]:
        (folder / "__init__.py").write_text("")
    return tmp_path


def test_it_is_registered() -> None:
    """Goal: vLLM finds it. Method: what is installed says so."""
    names = {entry.name: entry.value for entry in entry_points(group="vllm.general_plugins")}
    assert "kvgate.shadow.adapter.plugin:register" == names["kvgate_shadow"]


def test_off_it_imports_and_changes_nothing(tmp_path: Path) -> None:
    """Goal: without a switch, nothing changes. Method: call it, and compare what exists before and after."""
    found, said = said_by(OFF, tmp_path, KVGATE_SHADOW="")
    packages = ["kvgate", "kvgate.shadow", "kvgate.shadow.adapter", "kvgate.shadow.adapter.plugin"]
    assert ([packages, 0], "") == (found, said)


def test_on_it_waits_for_a_scheduler(stand_in: Path) -> None:
    """Goal: nothing is imported early, every scheduler once. Method: two kinds, registered twice as vLLM may do."""
    found, _ = said_by(ON, stand_in, KVGATE_SHADOW="record", KVGATE_SHADOW_DIR=str(stand_in))
    assert [False, [["Scheduler", "record"], ["AsyncScheduler", "record"]]] == found


def test_a_wrong_switch_is_reported_and_ends_nothing(stand_in: Path) -> None:
    """Goal: a server starts with any environment. Method: a mode that does not exist."""
    program = "import logging; logging.basicConfig();" + ON
    found, said = said_by(program, stand_in, KVGATE_SHADOW="perhaps")
    assert [False, []] == found
    assert "kvgate shadow: is off: UsageError: KVGATE_SHADOW='perhaps': give one of record, check, strict" in said
