"""The worker of vLLM-Ascend on the scheduler's steps, as published.

Goal: the worker prepares what the reference says, where it can start; where it cannot, the story says why; and faults
that are injected into it are found. Method: the command, in a process of its own, for the modules change vLLM
permanently.
"""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest
from tests.published import published

from kvgate.adapters.ascend_wheel import PACKAGE, WHERE

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fork_server import ForkServer

pytestmark = pytest.mark.ci

CHECK = ("-m", "kvgate.cli", "check", "--level", "worker", "--format", "json")
STARTS = """
import json
from attrs import evolve
from kvgate.adapters.registry import load_system
from kvgate.kernel.models import load
from kvgate.levels.worker.level import WORKER
bench = WORKER.bench(load_system({system!r}), WORKER.gate)
found = {{}}
for name in ("dsv4-flash-ascend-32", "dsv4-flash-ascend-64", "dsv4-flash-ascend-128", "compressed-64-slots"):
    case = evolve(WORKER.draw(load(f"{{name}}+whole-slots"), "tiny", "0"), operations=())
    found[name] = [each.difference.got for each in bench.build(case).close()]
print(json.dumps(found))
"""
MODULES = """
import sys
from kvgate.adapters.registry import load_system
load_system("ascend-worker")
import vllm_ascend.worker.model_runner_v1
from unittest.mock import Mock
home = sys.argv[1]
for name, module in list(sys.modules.items()):
    if name.startswith(("vllm_ascend.attention", "vllm_ascend.worker")):
        file = getattr(module, "__file__", None)
        assert file and file.startswith(home), (name, file)
        assert not isinstance(module, Mock), name
        assert not [each for each, value in vars(module).items() if isinstance(value, Mock)], name
        print(name)
import torch, torch_npu
from kvgate.adapters.model_runner.stand_ins import STAND_INS
listed = {each.name for each in STAND_INS}
for module in (torch.npu, torch_npu, torch_npu._C):
    for name in vars(module):
        assert name.startswith("__") or name == "_C" or f"{module.__name__}:{name}" in listed, (module, name)
try:
    torch_npu.npu_format_cast
except AttributeError as error:
    assert "nothing stands in for it" in str(error)
else:
    raise AssertionError("an operator that is not listed")
"""

GHOST_ALONE = """
import json, sys
from kvgate.adapters.registry import ATTENTION, DEFAULT_MODELS, load_system
from kvgate.kernel.models import load
from kvgate.levels.scheduler.operations import ResetCache
from kvgate.levels.worker.engine import WorkerEngine
from kvgate.levels.worker.level import WORKER
from kvgate_mutants.mutants.registry import WORKER_MUTANTS

class GhostAlone(WorkerEngine):
    def _check(self, detector, found):
        ignored = detector == "worker" and found is not None and found.statement != "KV-SYS-01"
        super()._check(detector, None if ignored else found)

def found(seeds=range(6)):
    for seed in seeds:
        case = WORKER.draw(models[seed % 2], ("hostile", "legal", "tiny")[seed // 2], str(seed))
        engine = GhostAlone(case.settings, case.stage, "ascend-worker")
        # A reset after finding 013 has acted ends the run.
        for operation in (each for each in case.operations if not isinstance(each, ResetCache)):
            divergence = engine.perform(operation)
            if divergence:
                return [divergence.detector, divergence.difference.statement[:6]]
    return None

WORKER.bench(load_system("ascend-worker"), WORKER.gate)
models = [load(name) for name in DEFAULT_MODELS["ascend-worker"]]
results = {"as published": found()}
# The others are of another model.
for mutant in (each for each in WORKER_MUTANTS if each.models != (ATTENTION,)):
    with mutant.applied():
        # A case of each kind, and of each model, is enough where nothing is to be seen.
        results[mutant.name] = found((0, 3, 4)) if mutant.name in sys.argv else found()
print(json.dumps(results))
"""
NOT_SEEN = {
    *("slots-in-blocks-of-the-published-size", "prompts-write-where-decodes-do"),
    *("prompts-read-the-tables-of-the-first-rows", "decodes-start-a-token-late", "prompts-begin-anew"),
    *("drafts-are-verified-by-prompts", "short-prompts-decode", "rows-of-one-token-are-prompts"),
}
"""Faults of attention metadata, which ghost memory does not follow."""
NOT_PREPARED = {
    *("kernel-blocks-twice-as-large", "kernel-blocks-of-eight-slots", "memory-of-a-block-less"),
    *("blocks-overlap", "slots-of-twice-the-bytes"),
}
"""Faults of the memory that the worker makes: it may not start, or prepare nothing."""


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    """Where vLLM-Ascend is."""
    return {WHERE: str(published()), "VLLM_LOGGING_LEVEL": "ERROR"}


@pytest.mark.parametrize(
    ("system", "expected"),
    [
        (
            "ascend-worker",
            {
                "dsv4-flash-ascend-32": ["ValueError: No common block size for 2. "],
                "dsv4-flash-ascend-64": ["ValueError: No common block size for 4. "],
                "dsv4-flash-ascend-128": [],
                "compressed-64-slots": ["blocks of 64 slots"],
            },
        ),
        (
            "ascend-worker-retention",
            {
                "dsv4-flash-ascend-32": [],
                "dsv4-flash-ascend-64": [],
                "dsv4-flash-ascend-128": [],
                "compressed-64-slots": [],
            },
        ),
    ],
)
def test_blocks_that_its_kernels_lack(
    system: str, expected: dict[str, list[str]], fork_server: ForkServer, environment: dict[str, str]
) -> None:
    """0.20.2rc1 says that none has blocks that divide 2 or 4 slots, and of 64 divides the block table alone.

    With the plug-in the sizes that were asked for are there.
    """
    finished = fork_server.run("-c", STARTS.format(system=system), env=environment, timeout=300)
    assert 0 == finished.returncode, finished.stderr[-2000:]
    assert expected == json.loads(finished.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("system", "model"),
    [("ascend-worker", "compressed-8-slots+whole-slots"), ("stock", "gpt-oss-hybrid"), ("stock", "full+eagle")],
)
def test_tables_and_slots_agree(
    system: str, model: str, fork_server: ForkServer, environment: dict[str, str], tmp_path: Path
) -> None:
    """Every step's, until the time is up."""
    arguments = (*CHECK, "--sut", system, "--model", model, "--time-budget", "5s")
    finished = fork_server.run(*arguments, env=environment, timeout=300, cwd=tmp_path)
    assert 0 == finished.returncode, finished.stdout[-2000:] + finished.stderr[-2000:]


@pytest.mark.parametrize(
    ("lacking", "version", "message"),
    [
        ("attention.mla_v1", "0.20.2rc1", "lacks the module vllm_ascend.attention.mla_v1"),
        ("attention.utils", "0.20.2rc1", "its worker does not start: No module named 'vllm_ascend.attention.utils'"),
        (None, "0.23.0", "holds vllm_ascend 0.23.0, and not 0.20.2rc1"),
    ],
)
def test_what_is_not_0_20_2rc1(
    lacking: str | None,
    version: str,
    message: str,
    fork_server: ForkServer,
    environment: dict[str, str],
    tmp_path: Path,
) -> None:
    """A folder that lacks a module, and another version: one message, and exit 3."""
    shutil.copytree(environment[WHERE], tmp_path / "unpacked")
    home = tmp_path / "unpacked" / PACKAGE
    (home / "_version.py").write_text(f"__version__ = version = {version!r}\n", encoding="utf-8")
    if lacking is not None:
        home.joinpath(*lacking.split(".")).with_suffix(".py").unlink()
    finished = fork_server.run(
        *CHECK, "--sut", "ascend-worker", env=environment | {WHERE: str(home.parent)}, timeout=300, cwd=tmp_path
    )
    assert 3 == finished.returncode, finished.stdout[-2000:] + finished.stderr[-2000:]
    (line,) = (line for line in finished.stderr.splitlines() if line.startswith("kvgate: "))
    assert message in line


def test_no_attention_or_worker_module_is_replaced(fork_server: ForkServer, environment: dict[str, str]) -> None:
    """Each is a file of the wheel and holds no mock, and of torch_npu only what is listed is there."""
    finished = fork_server.run("-c", MODULES, environment[WHERE], env=environment, timeout=300)
    assert 0 == finished.returncode, finished.stderr[-2000:]
    modules = set(finished.stdout.splitlines())
    assert {"vllm_ascend.attention.dsa_v1", "vllm_ascend.worker.block_table"} <= modules


def test_ghost_memory_finds_what_the_comparison_would(fork_server: ForkServer, environment: dict[str, str]) -> None:
    """Goal: it checks the slots that the worker computed. Method: faults of the worker, with no other check."""
    finished = fork_server.run("-c", GHOST_ALONE, *sorted(NOT_SEEN), env=environment, timeout=300)
    assert 0 == finished.returncode, finished.stderr[-2000:]
    found = json.loads(finished.stdout.splitlines()[-1])
    by = {name: None if each is None else tuple(each) for name, each in found.items()}
    not_seen = {*NOT_SEEN, "as published"}
    assert not_seen == {name for name, each in by.items() if each is None}
    # Which of the two sees a fault of the memory depends on the case.
    assert {name for name, each in by.items() if each == ("worker", "KV-SYS")} <= NOT_PREPARED
    seen = {name for name, each in by.items() if each == ("ghost", "KV-MEM")}
    assert by.keys() == seen | not_seen | NOT_PREPARED
    assert {by[name] for name in NOT_PREPARED} <= {("worker", "KV-SYS"), ("ghost", "KV-MEM")}
    assert len(seen - NOT_PREPARED) == 18
