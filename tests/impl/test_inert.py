"""The plug-in's package is empty so far, and must not be mistaken for one that does something."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import distribution


def test_importing_it_touches_nothing() -> None:
    """Goal: nobody's vLLM changes. Method: import it in a fresh interpreter, and see what came with it."""
    program = "import sys; before = set(sys.modules); import swa_retention; print(*sorted(set(sys.modules) - before))"
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert {"swa_retention"} == set(finished.stdout.split())


def test_vllm_is_told_of_no_plug_in() -> None:
    """Goal: a vLLM next to kvgate loads nothing of it. Method: the entry points that kvgate is installed with."""
    assert {"console_scripts"} == {entry.group for entry in distribution("kvgate").entry_points}
