"""What every test run begins with: where benchmarks are, and whether what it must not do without is there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

# The programs under ``benchmarks/`` are found as those who run them from the root find them.
sys.path.append(str(Path(__file__).parents[1]))

NEED = "KVGATE_TESTS_NEED"
"""Names modules, with commas in between. Tests that lack one are skipped, and a run without vLLM would be green."""


def pytest_configure() -> None:
    """End the run at once if a module is needed and cannot be imported."""
    # Asked once: xdist's workers and what the tests start come later, and see no such variable.
    for name in filter(None, map(str.strip, os.environ.pop(NEED, "").split(","))):
        # In a process of its own, for an import of vLLM changes much that not every test wants changed.
        program = "import importlib, sys; importlib.import_module(sys.argv[1])"
        tried = subprocess.run([sys.executable, "-c", program, name], capture_output=True, text=True, check=False)
        if tried.returncode != 0:
            why = (tried.stderr.strip().splitlines() or [f"exit code {tried.returncode}"])[-1]
            pytest.exit(f"{name} is required here ({NEED}) and cannot be imported: {why}", returncode=3)
