"""A run that needs a module ends without it.

Goal: skipped tests do not count as passed where vLLM has to be there. Method: runs of this file in a process of their
own, which only list its tests, and get their requirement in the environment.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.published import REQUIRED, published

from kvgate.adapters.ascend_wheel import WHERE

ROOT = Path(__file__).parents[1]
CI = ROOT / ".ci" / "run"


def listed(needed: str, *options: str) -> subprocess.CompletedProcess[str]:
    """The output of a run that needs these modules."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", *options, __file__]
    environment = {**os.environ, "KVGATE_TESTS_NEED": needed}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.ci
@pytest.mark.parametrize("options", [(), ("-n", "1")], ids=" ".join)
def test_a_run_ends_without_what_it_needs(options: tuple[str, ...]) -> None:
    """Goal: exit code 3, and the reason. Method: an installed module, and one that does not exist."""
    ended = listed("json, no_such_module", *options)
    message = "no_such_module is required here (KVGATE_TESTS_NEED) and cannot be imported: ModuleNotFoundError"
    assert (3, True) == (ended.returncode, message in ended.stderr)


@pytest.mark.parametrize("needed", ["", "json"])
def test_a_run_continues_with_what_it_needs(needed: str) -> None:
    """The control."""
    ended = listed(needed)
    assert (0, "") == (ended.returncode, ended.stderr)
    assert "test_a_run_continues_with_what_it_needs" in ended.stdout


def test_what_a_merge_must_pass_needs_vllm() -> None:
    """Goal: CI cannot pass without vLLM, and leaves out the deep tests alone. Method: its last line."""
    last = shlex.split(CI.read_text(encoding="utf-8").splitlines()[-1])
    assert ["KVGATE_TESTS_NEED=vllm", "uv", "run", "--no-sync", "pytest", "-m", "not deep"] == last[:7]


@pytest.mark.parametrize(("required", "outcome"), [(True, "Failed"), (False, "Skipped")])
def test_a_release_that_cannot_be_fetched(required: bool, outcome: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a run that must not skip is red without a release. Method: a folder that is not there."""
    monkeypatch.setenv(WHERE, "/nowhere")
    monkeypatch.delenv(REQUIRED, raising=False)
    if required:
        monkeypatch.setenv(REQUIRED, "vllm")
    with pytest.raises(BaseException, match="nothing of it was tested") as raised:
        published()
    assert outcome == type(raised.value).__name__
