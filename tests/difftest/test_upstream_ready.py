"""Findings that are ready to be reported to vLLM: an issue, a reproducer and a patch.

Goal: a maintainer of vLLM can see a finding, and that the patch fixes it, without kvgate. Method: the reproducer runs
on the published release and on a copy with the patch; so do vLLM's own tests of what the patch changes.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from tests.impl.upstream.archive import wheel_of
from tests.impl.upstream.in_place import InPlace
from tests.impl.upstream.stand_ins import write

from kvgate.findings.register import FOLDER

VERSION = "0.33.0"
READY = sorted(FOLDER.glob("f*/upstream"))
FILES = {"issue.md", "reproducer.py", "fix.diff"}
SECTIONS = ["What happens", "Versions", "How to see it", "Cause", "Suggested patch"]
LINES_MAX = 40
BLOCKS = (
    *("core/test_prefix_caching.py", "core/test_single_type_kv_cache_manager.py", "core/test_kv_cache_utils.py"),
    *("core/test_swa_inflight_window_free.py", "core/test_mamba_align_chunk_split.py"),
    *("core/prefix_cache/test_mamba_eagle_resume_checkpoint.py", "core/prefix_cache/test_partial_prefix_cache_hits.py"),
    "core/prefix_cache/test_partial_prefix_cache_primitives.py",
)
LOADS = tuple(
    f"kv_connector/unit/{name}.py"
    for name in ("test_invalid_blocks_correctness", "test_kv_load_failure_recovery", "test_error_propagation")
)
OWN_TESTS = {
    "vllm/v1/core/block_pool.py": (BLOCKS,),
    "vllm/v1/core/kv_cache_coordinator.py": (BLOCKS,),
    "vllm/v1/core/single_type_kv_cache_manager.py": (BLOCKS,),
    "vllm/v1/core/kv_cache_manager.py": (BLOCKS,),
    "vllm/v1/core/encoder_cache_manager.py": (("core/test_encoder_cache_manager.py",),),
    # All of the second takes longer than such a run may.
    "vllm/v1/core/sched/scheduler.py": (LOADS, ("core/test_scheduler.py", "-k", "priority or preempt")),
}
"""By file that a patch changes, vLLM's tests of it: each a run of pytest."""


def name_of(folder: Path) -> str:
    """The name of a finding's folder."""
    return folder.parent.name


each = pytest.mark.parametrize("folder", READY, ids=name_of)


def imported(source: str) -> set[str]:
    """The packages that a file imports."""
    nodes = list(ast.walk(ast.parse(source)))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    named = {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    return {name.partition(".")[0] for name in plain | named}


def changed_by(patch: Path) -> list[str]:
    """The files that a patch changes."""
    return re.findall(r"^\+\+\+ b/(.+)$", patch.read_text(encoding="utf-8"), re.MULTILINE)


@each
def test_it_is_complete(folder: Path) -> None:
    """An issue with its parts, a test that imports vLLM, torch and pytest, and a patch of vLLM's own code."""
    assert FILES == {path.name for path in folder.iterdir() if path.name != "__pycache__"}
    issue = (folder / "issue.md").read_text(encoding="utf-8")
    assert issue.startswith(("# [Bug]: ", "# [Performance]: "))
    assert SECTIONS == re.findall(r"^## (.+)$", issue, re.MULTILINE)
    assert len(issue.splitlines()) <= LINES_MAX
    assert [] == [part for part in (VERSION, "`pytest reproducer.py`", "`fix.diff`") if part not in issue]
    assert "kvgate" not in issue
    source = (folder / "reproducer.py").read_text(encoding="utf-8")
    assert imported(source) <= {"vllm", "torch", "pytest", *sys.stdlib_module_names}
    assert 1 == len(re.findall(r"^def test_\w+\(", source, re.MULTILINE))
    assert {*changed_by(folder / "fix.diff")} <= {*OWN_TESTS}
    assert changed_by(folder / "fix.diff")


def test_nothing_else_may_be_imported() -> None:
    """The check above, of a reproducer that imports kvgate within a function."""
    assert {"vllm", "kvgate"} == imported("import vllm.config\ndef test_it():\n    from kvgate.cli import x\n")


@pytest.fixture
def patched(folder: Path, tmp_path: Path) -> Path:
    """A folder with the release, by links, and with the patch."""
    published = wheel_of(VERSION)
    subprocess.run(["cp", "-rs", str(published / "vllm"), str(tmp_path)], check=True)
    for name in changed_by(folder / "fix.diff"):
        (tmp_path / name).unlink()
        shutil.copyfile(published / name, tmp_path / name)
    subprocess.run(["git", "apply", str(folder / "fix.diff")], cwd=tmp_path, check=True)
    return tmp_path


def reproduced(folder: Path, vllm: Path) -> tuple[int, str]:
    """The exit code of pytest with a reproducer on the vLLM in a folder, and what it printed."""
    environment = {**os.environ, "PYTHONPATH": str(vllm), "VLLM_PLUGINS": "", "VLLM_LOGGING_LEVEL": "ERROR"}
    options = ("-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(folder))
    command = [sys.executable, "-m", "pytest", *options, str(folder / "reproducer.py")]
    done = subprocess.run(command, cwd=vllm, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


@pytest.mark.deep
@each
def test_the_reproducer_fails_without_the_patch_and_passes_with_it(folder: Path, patched: Path) -> None:
    """It fails by an assertion: the release still has the code that is tested."""
    code, said = reproduced(folder, wheel_of(VERSION))
    assert (1, True) == (code, "AssertionError" in said), said
    code, said = reproduced(folder, patched)
    assert 0 == code, said


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> InPlace:
    """Where vLLM's own tests run, on the published release."""
    hub = write(tmp_path_factory.mktemp("hub"))
    return InPlace(tmp_path_factory.mktemp("reports"), hub, (wheel_of(VERSION),))


@cache
def outcomes(place: InPlace, arguments: tuple[str, ...]) -> dict[str, str]:
    """vLLM's own tests that ``arguments`` select, each with how it ended."""
    return place.outcomes(VERSION, *(f"tests/v1/{a}" if "/" in a else a for a in arguments), "-p", "on_cpu")


@pytest.mark.deep
@each
def test_vllms_own_tests_pass_as_before(
    folder: Path, patched: Path, place: InPlace, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Test by test: what fails for want of weights or a device fails alike."""
    with_patch = InPlace(tmp_path_factory.mktemp("reports"), place.hub, (patched,))
    for arguments in sorted({run for name in changed_by(folder / "fix.diff") for run in OWN_TESTS[name]}):
        before = outcomes(place, arguments)
        assert "passed" in before.values()
        assert before == outcomes(with_patch, arguments)
