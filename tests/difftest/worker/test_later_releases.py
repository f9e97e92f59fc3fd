"""The workers of later releases, and what is published of them.

Goal: what the workers of vLLM 0.33.0 and vLLM-Ascend 0.23.0 and 0.30.0rc2 prepare is what the reference says; blocks
that are not cleared, or should not be, are reported; what cannot be had is one message. Method: the command, in a
process of its own, for a process has one vLLM; and folders that lack something.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from attrs import evolve

from kvgate.adapters.ascend_wheel import WHERE
from kvgate.adapters.fetching import folder_of, is_fetched
from kvgate.adapters.model_runner.runner import Prepared
from kvgate.adapters.releases import release_named
from kvgate.levels.worker.slot_check import check_cleared

if TYPE_CHECKING:
    from pathlib import Path

CHECK = ("check", "--level", "worker", "--jobs", "1")
LATER = release_named("ascend-worker@0.23.0")
CLEARED = Prepared(("a",), (4, 4), (), (), ((3, 5), (3, 4)), frozenset({3, 4, 5}))
"""Blocks 3 and 5 of the first group, and 4 of the second; block 3 has a place in each."""


def run(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command, in a folder of its own."""
    command = [sys.executable, "-m", "kvgate.cli", *arguments]
    variables = {**os.environ, "VLLM_LOGGING_LEVEL": "CRITICAL", **environment}
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=400, check=False)


@pytest.mark.ci
@pytest.mark.parametrize(
    ("system", "model"),
    [
        ("native@0.33.0", "gpt-oss-hybrid+scratch"),
        ("ascend-worker@0.23.0", "compressed-8-slots+mtp+whole-slots"),
    ],
)
def test_tables_slots_and_memory_agree(system: str, model: str, tmp_path: Path) -> None:
    """Every step's, for as long as there is time; and of 0.33.0 the cleared blocks."""
    release = release_named(system)
    below = release if release.below is None else release_named(release.below)
    if not (is_fetched(release) and is_fetched(below)):
        pytest.skip(f"{system} is not fetched, and nothing of it was tested")
    arguments = (*CHECK, "--sut", system, "--model", model, "--time-budget", "10s", "--format", "json")
    finished = run(tmp_path, *arguments)
    assert 0 == finished.returncode, finished.stdout[-2000:] + finished.stderr[-2000:]
    assert json.loads(finished.stdout)


def test_cleared_blocks_are_those_that_were_ordered() -> None:
    """All of them, completely, and no others."""
    assert None is check_cleared(CLEARED, (frozenset({3, 5}), frozenset({4})))
    assert None is check_cleared(evolve(CLEARED, cleared=None), (frozenset({9}),))
    kept = check_cleared(CLEARED, (frozenset({3, 5, 6}), frozenset({4})))
    assert kept is not None
    assert ("KV-MEM-01", "memory of group 0") == (kept.statement, kept.subject)
    other = check_cleared(CLEARED, (frozenset({3}), frozenset({4})))
    assert other is not None
    assert "blocks [5] cleared" == other.got


@pytest.mark.parametrize("name", ["ascend-worker@9.9.9", "native@9.9.9"])
def test_a_version_that_is_not_known(name: str, tmp_path: Path) -> None:
    """One message, and exit 2."""
    finished = run(tmp_path, *CHECK, "--sut", name)
    assert 2 == finished.returncode
    assert [f"kvgate: no release {name!r}"] == [line[: len(name) + 21] for line in finished.stderr.splitlines()]


@pytest.mark.parametrize(
    ("package", "version", "message"),
    [
        ("other", "0.23.0", "there is no vllm_ascend in it"),
        ("vllm_ascend", "0.20.2rc1", "holds vllm_ascend 0.20.2rc1, and not 0.23.0"),
        ("vllm_ascend", "0.23.0", "lacks the module vllm_ascend.patch.platform.patch_kv_cache_utils"),
    ],
)
def test_what_is_not_the_release(package: str, version: str, message: str, tmp_path: Path) -> None:
    """Another wheel, another version, and an archive that lacks a module: one message, and exit 3."""
    home = tmp_path / "unpacked"
    (home / package).mkdir(parents=True)
    (home / package / "_version.py").write_text(f"__version__ = version = {version!r}\n", encoding="utf-8")
    finished = run(tmp_path, *CHECK, "--sut", LATER.name, **{WHERE: str(home)})
    assert 3 == finished.returncode
    (line,) = finished.stderr.splitlines()
    assert line.startswith(f"kvgate: {LATER.name}: ")
    assert message in line


def test_a_release_that_lacks_one_module(tmp_path: Path) -> None:
    """The published files, without the block table: its name is in the message."""
    if not is_fetched(LATER):
        pytest.skip(f"{LATER.name} is not fetched, and nothing of it was tested")
    home = tmp_path / "unpacked"
    shutil.copytree(folder_of(LATER), home)
    (home / LATER.package / "worker" / "block_table.py").unlink()
    finished = run(tmp_path, *CHECK, "--sut", LATER.name, **{WHERE: str(home)})
    assert 3 == finished.returncode
    assert "lacks the module vllm_ascend.worker.block_table" in finished.stderr
