"""The workers of later releases, and what is published of them.

Goal: the workers of vLLM 0.33.0 and vLLM-Ascend 0.23.0 prepare what the reference says; injected faults are found; a
missing part ends in one message. Method: the command, or its parts, in a process of its own, for a process has one
vLLM; and folders that lack something.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from attrs import evolve
from tests.published import published

from kvgate.adapters.ascend_wheel import WHERE
from kvgate.adapters.model_runner.runner import Prepared
from kvgate.adapters.releases import ASCEND, LATER_ASCEND, release_named
from kvgate.adapters.releases.description import Release
from kvgate.findings.register import with_ids
from kvgate.gate.level import NO_WORKER, LevelChoice
from kvgate.kernel.difference import Difference, Divergence
from kvgate.levels.registry import not_tested
from kvgate.levels.worker.engine import WORKERS
from kvgate.levels.worker.slot_check import check_cleared

CHECK = ("check", "--level", "worker", "--jobs", "1")
PROGRAM = """
import importlib, sys
from kvgate.adapters.registry import load_system
from kvgate.kernel.models import load
from kvgate.levels.worker.engine import WORKERS
from kvgate.levels.worker.level import WORKER

system, model = sys.argv[1:]
bench = WORKER.bench(load_system(system), WORKER.gate)
interpreted = importlib.import_module("triton.runtime.interpreter").InterpretedFunction
launched = set()

def recorded(method):
    def record(self, *arguments, **named):
        launched.add(self.fn.__name__)
        return method(self, *arguments, **named)
    return record

# A kernel is indexed by its grid, and another kernel calls it.
for name in ("__getitem__", "__call__"):
    setattr(interpreted, name, recorded(getattr(interpreted, name)))

def first(cases):
    for seed in range(cases):
        case = WORKER.allowed(bench, WORKER.draw(load(model), ("tiny", "legal")[seed % 2], str(seed)))
        world = bench.build(case)
        found = next(filter(None, map(world.perform, case.operations)), None)
        assert world.worker is not None or found is None
        if found is not None:
            return found.detector, found.difference.statement
    return None

def broken(module, path, fault):
    *owners, name = path.split(".")
    owner = importlib.import_module(module)
    for each in owners:
        owner = getattr(owner, each)
    published = getattr(owner, name)
    setattr(owner, name, lambda *arguments, **named: fault(published, *arguments, **named))
    detector, statement = first(12) or ("none", "none")
    setattr(owner, name, published)
    assert detector == "worker", (path, detector, statement)
    return statement

# Blocks that are not cleared, and another one that is; the last block overwritten; each slot where the next belongs.
def fewer(published, self, ids): return published(self, ids[:-1])
def another(published, self, ids): return published(self, [*ids, max(ids) - 1 if len(ids) == 1 else 0])
def over(published, self, ids, row):
    if ids and self.num_blocks_per_row[row]:
        self.num_blocks_per_row[row] -= 1
    return published(self, ids, row)
def late(published, self, requests, starts, positions): return published(self, requests, starts, positions + 1)
def fused(published, *given, **named): return published(*given[:5], given[5] + 1, *given[6:], **named)
def overlap(published, self, raw, shapes, dtypes, page, **named): return published(self, raw, shapes, dtypes, page // 2)

# Its kernels are slow where they are interpreted.
newest = system == "ascend-worker@0.30.0rc2"
cases = 1 if newest else 4
assert first(cases) is None, first(cases)
never = {each.replace(":", ".").rpartition(".")[2] for each in WORKERS[system].kernels} - launched
assert not never, f"said to be interpreted, and not run: {never}"
if system == "native@0.33.0":
    table, utils = "vllm.v1.worker.block_table", "vllm.v1.worker.utils"
    found = [broken(utils, "KVBlockZeroer.zero_block_ids", each) for each in (fewer, another)]
else:
    table, found = "vllm_ascend.worker.block_table", []
found.append(broken(table, "BlockTable.append_row", over))
if newest:
    found.append(broken(table, "compute_slot_mapping_fused_groups", fused))
else:
    found.append(broken(table, "BlockTable.compute_slot_mapping", late))
if system == "ascend-worker@0.23.0":
    found.append(broken("vllm_ascend.worker.model_runner_v1", "NPUModelRunner._adjust_kv_layout", overlap))
print(*found)
"""
PAUSED = Path(__file__).with_name("paused.jsonl")
OTHER = release_named("ascend-worker@0.23.0")
CLEARED = Prepared(("a",), (4, 4), (), (), ((3, 5), (3, 4)), frozenset({3, 4, 5}))
"""Blocks 3 and 5 of the first group, and 4 of the second; block 3 has a place in each."""


def run(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command, in a folder of its own."""
    command = [sys.executable, "-m", "kvgate.cli", *arguments]
    variables = {**os.environ, "VLLM_LOGGING_LEVEL": "CRITICAL", **environment}
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=400, check=False)


@pytest.mark.ci
@pytest.mark.parametrize(
    ("system", "model", "faults"),
    [
        ("native@0.33.0", "gpt-oss-hybrid+scratch", "KV-MEM-01 KV-MEM-01 KV-SYS-03 KV-MEM-03"),
        ("ascend-worker@0.23.0", "compressed-8-slots+mtp+whole-slots", "KV-SYS-03 KV-MEM-03 KV-MEM-03"),
        ("ascend-worker@0.30.0rc2", "dsv4-flash-ascend-32+mtp+whole-slots", "KV-SYS-03 KV-MEM-03"),
    ],
)
def test_what_is_published_agrees_and_faults_are_found(system: str, model: str, faults: str, tmp_path: Path) -> None:
    """Tables, slots, memory, and of 0.33.0 the cleared blocks: as they are, and with one fault after the other."""
    release = release_named(system)
    published(release)
    if release.below is not None:
        published(release_named(release.below))
    command = [sys.executable, "-c", PROGRAM, system, model]
    finished = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=400, check=False)
    assert 0 == finished.returncode, finished.stdout[-2000:] + finished.stderr[-2000:]
    assert faults == finished.stdout.splitlines()[-1]


@pytest.mark.deep
@pytest.mark.parametrize(
    "release",
    [ASCEND, *LATER_ASCEND],
    ids=lambda each: each.version,
)
def test_mutants_of_the_workers_are_killed(release: Release, tmp_path: Path) -> None:
    """Goal: the level finds the faults of each worker. Method: inject each."""
    published(release)
    system = release.worker_name
    command = [sys.executable, "-m", "kvgate.cli", "mutants", "--sut", system, "--level", "worker"]
    finished = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=3600, check=False)
    assert 0 == finished.returncode, finished.stdout[-2000:] + finished.stderr[-2000:]


@pytest.mark.deep
def test_a_pause_is_not_a_hang(tmp_path: Path) -> None:
    """Where no request runs and none may be admitted: a trace of 0.33.0 that was reported as a hang."""
    published(release_named("native@0.33.0"))
    finished = run(tmp_path, "replay", str(PAUSED))
    assert 0 == finished.returncode, finished.stdout[-2000:] + finished.stderr[-2000:]


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


@pytest.mark.parametrize(
    ("free", "queued", "message", "known"),
    [
        (13, 11, "RuntimeError: Failed to reset KV cache even when", True),
        (11, 11, "RuntimeError: Failed to reset KV cache even when", False),
        (12, 10, "RuntimeError: Failed to reset KV cache even when", False),
        (13, 11, "AssertionError: ", False),
    ],
    ids=["the counter is ahead", "it is right", "a block is held", "another error"],
)
def test_a_reset_that_fails_by_the_counter_is_finding_014(free: int, queued: int, message: str, known: bool) -> None:
    """Only where all blocks are queued, and the counter reports more as free: any other failure of a reset is new."""
    (finding,) = with_ids(["014-second-full-group-not-cut"])
    assert finding.explains_engine is not None
    snapshot = SimpleNamespace(blocks_free=free, free=tuple(range(queued)))
    # Of an engine it needs these three.
    engine: Any = SimpleNamespace(
        settings=SimpleNamespace(blocks=12),
        followed=SimpleNamespace(snapshot=lambda: snapshot),
        lockstep=SimpleNamespace(reference=None),
    )
    found = Difference("KV-SYS-01", "RuntimeError", "an answer", message)
    assert known is finding.explains_engine(Divergence(1, None, "scheduler", found), engine)


@pytest.mark.parametrize("name", ["ascend-worker@9.9.9", "native@9.9.9"])
def test_a_version_that_is_not_known(name: str, tmp_path: Path) -> None:
    """One message, and exit 2."""
    finished = run(tmp_path, *CHECK, "--sut", name)
    assert 2 == finished.returncode
    assert [f"kvgate: no release {name!r}"] == [line[: len(name) + 21] for line in finished.stderr.splitlines()]


@pytest.mark.parametrize(
    ("package", "version", "message"),
    [
        ("other", "0.23.0", "it holds no vllm_ascend"),
        ("vllm_ascend", "0.20.2rc1", "holds vllm_ascend 0.20.2rc1, and not 0.23.0"),
        ("vllm_ascend", "0.23.0", "lacks the module vllm_ascend.patch.platform.patch_kv_cache_utils"),
    ],
)
def test_what_is_not_the_release(package: str, version: str, message: str, tmp_path: Path) -> None:
    """Another wheel, another version, and an archive that lacks a module: one message, and exit 3."""
    home = tmp_path / "unpacked"
    (home / package).mkdir(parents=True)
    (home / package / "_version.py").write_text(f"__version__ = version = {version!r}\n", encoding="utf-8")
    finished = run(tmp_path, *CHECK, "--sut", OTHER.worker_name, **{WHERE: str(home)})
    assert 3 == finished.returncode
    (line,) = (line for line in finished.stderr.splitlines() if not line.startswith("loading "))
    assert line.startswith(f"kvgate: {OTHER.worker_name}: ")
    assert message in line


def test_a_release_that_lacks_one_module(tmp_path: Path) -> None:
    """The published files, without the block table: its name is in the message."""
    home = tmp_path / "unpacked"
    shutil.copytree(published(OTHER), home)
    (home / OTHER.package / "worker" / "block_table.py").unlink()
    finished = run(tmp_path, *CHECK, "--sut", OTHER.worker_name, **{WHERE: str(home)})
    assert 3 == finished.returncode
    assert "lacks the module vllm_ascend.worker.block_table" in finished.stderr


def test_a_report_says_what_is_not_tested_of_its_system() -> None:
    """A worker's slots are compared, so its report does not say that no tensor is; later releases leave out more."""
    left_out = {system: not_tested(LevelChoice.WORKER, system) for system in WORKERS}
    assert all(NO_WORKER not in each for each in left_out.values())
    assert NO_WORKER in not_tested(LevelChoice.SCHEDULER, "stock")
    says = {system: " ".join(each) for system, each in left_out.items()}
    assert {each.worker_name for each in LATER_ASCEND} == {
        name for name, each in says.items() if "compressor_metadata returns" in each
    }
    assert {LATER_ASCEND[1].worker_name} == {name for name, each in says.items() if "compressor_metadata_out" in each}
    assert {"ascend-worker-retention"} == {name for name, each in says.items() if "Copied blocks" not in each}
    assert {"native@0.33.0"} == {name for name, each in says.items() if "Cleared blocks" not in each}
