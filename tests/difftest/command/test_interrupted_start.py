"""Ctrl-C while a command starts.

Goal: one line and exit code 130, wherever the interpreter is. Method: a process that interrupts itself at its n-th
import, for many n; a library that swallows exceptions while it is imported changes nothing.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

INTERRUPTS_ITSELF = """
import os, signal, sys

wanted, count = {wanted}, [0]

def watch(event, arguments):
    if event == "import" and (count[0] or arguments[0] == "kvgate.kernel"):
        count[0] += 1
        if count[0] == wanted:
            os.kill(os.getpid(), signal.SIGINT)

sys.addaudithook(watch)
"""


def interrupted(folder: Path, command: tuple[str, ...], wanted: int) -> subprocess.CompletedProcess[str]:
    """Run a command that interrupts itself at that import of those that come with kvgate."""
    (folder / "sitecustomize.py").write_text(INTERRUPTS_ITSELF.format(wanted=wanted))
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH", "")]))
    return subprocess.run(
        [sys.executable, *command],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.few(1)
@pytest.mark.parametrize("wanted", [1, 2, 3, 5, 8, 13, 21, 40, 80, 120, 160, 200])
def test_a_command_that_starts_is_interrupted(tmp_path: Path, wanted: int) -> None:
    """Goal: no traceback of an import. Method: the entry point, from its first import on."""
    ended = interrupted(tmp_path, ("-m", "kvgate.cli", "prove", "--list"), wanted)
    assert (130, "", "kvgate: interrupted\n") == (ended.returncode, ended.stdout, ended.stderr)


@pytest.mark.few(1)
@pytest.mark.parametrize("wanted", [300, 400, 500])
def test_so_is_one_that_imports_what_it_needs(tmp_path: Path, wanted: int) -> None:
    """Goal: the same where a subcommand imports. Method: later imports of one that imports much."""
    ended = interrupted(tmp_path, ("-m", "kvgate.cli", "prove", "--list"), wanted)
    assert (130, "", False) == (ended.returncode, ended.stdout, "Traceback" in ended.stderr)


@pytest.mark.few(1)
@pytest.mark.parametrize("module", ["kvgate.live", "kvgate.equality", "kvgate.adapters.cpu_engine"])
@pytest.mark.parametrize("wanted", [10, 100])
def test_so_are_the_other_programs(tmp_path: Path, module: str, wanted: int) -> None:
    """Goal: the same for what is run as a module."""
    ended = interrupted(tmp_path, ("-m", module, "--help"), wanted)
    assert (130, "", f"{module}: interrupted\n") == (ended.returncode, ended.stdout, ended.stderr)


def test_the_entry_point_is_the_small_module() -> None:
    """Goal: the installed ``kvgate`` starts this way. Method: its entry point."""
    text = (Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8")
    assert re.search(r'^kvgate = "kvgate\.cli\.__main__:main"$', text, re.MULTILINE)
