"""Blocks that are cleared and copied: bytes of memory.

Goal: published code clears and copies exactly the bytes of the blocks that it is asked for, and a mistake is seen.
Method: random caches, blocks and copies, every byte compared; then the same with one mistake
(``tests.difftest.worker.memory_faults``).
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.published import published

from kvgate.adapters.ascend_wheel import WHERE
from kvgate.adapters.releases import release_named

if TYPE_CHECKING:
    from tests.fork_server import ForkServer

pytestmark = pytest.mark.ci

ZEROED = """
import ast, importlib.util, json, sys, textwrap
from pathlib import Path
from types import SimpleNamespace
files = {
    "Worker": importlib.util.find_spec("vllm.v1.worker").submodule_search_locations[0] + "/gpu_worker.py",
    "NPUWorker": sys.argv[1] + "/vllm_ascend/worker/worker.py",
}
found = {}
for name, file in files.items():
    source = Path(file).read_text(encoding="utf-8")
    kind = next(each for each in ast.parse(source).body if getattr(each, "name", "") == name)
    method = next(each for each in kind.body if getattr(each, "name", "") == "initialize_from_config")
    method.decorator_list = []
    # The method as published, without what its module imports from torch_npu.
    names = {"ensure_kv_transfer_initialized": lambda *_: None, "KVCacheConfig": object}
    exec(compile(ast.Module([method], []), file, "exec"), names)
    asked = []
    runner = SimpleNamespace(
        initialize_kv_cache=lambda _config: asked.append("memory"),
        _init_kv_zero_meta=lambda: asked.append("what is cleared"),
    )
    model = SimpleNamespace(enable_sleep_mode=False, enable_return_routed_experts=False)
    config = SimpleNamespace(model_config=model)
    cache = SimpleNamespace()
    worker = SimpleNamespace(vllm_config=config, model_config=model, model_runner=runner, cache_config=cache)
    names["initialize_from_config"](worker, SimpleNamespace(needs_kv_cache_zeroing=True, num_blocks=4))
    found[name] = asked
print(json.dumps(found))
"""
CLEARS_NOTHING = """
from kvgate.adapters.registry import load_system
load_system("ascend-worker")
import vllm_ascend.worker.model_runner_v1 as home
runner = object.__new__(home.NPUModelRunner)
runner._zero_block_ids([1])
runner._kv_block_zeroer = type("Zeroer", (), {"zero_block_ids": lambda self, blocks: print("clears", blocks)})()
runner._zero_block_ids([2])
"""


ROOT = Path(__file__).parents[3]
FAULTS = "tests.difftest.worker.memory_faults"
CLEARING = ("the next block", "all but one", "kernel blocks")
COPYING = ("keys alone", "one after the other", "the wrong axis", "the other way round")
COPYING_LATER = ("copies one after the other", "copies to the next block", "copies the other way round")


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    """Where vLLM-Ascend is."""
    return {WHERE: str(published()), "VLLM_LOGGING_LEVEL": "ERROR"}


def _compared(finished: subprocess.CompletedProcess[str], blocks_min: int) -> dict[str, bool]:
    """By mistake, whether it was seen; as published, so many blocks were done at least, and nothing is wrong."""
    assert 0 == finished.returncode, finished.stderr[-2000:]
    found = json.loads(finished.stdout.splitlines()[-1])
    done, wrong = found.pop("")
    assert done >= blocks_min
    assert 0 == wrong
    return {name: wrong > 0 for name, (_, wrong) in found.items()}


@pytest.mark.parametrize(("what", "mistakes", "blocks_min"), [("clear", CLEARING, 30), ("copy", COPYING, 200)])
def test_blocks_are_cleared_and_copied(
    what: str, mistakes: tuple[str, ...], blocks_min: int, fork_server: ForkServer, environment: dict[str, str]
) -> None:
    """By vLLM's kernel, interpreted, and by vLLM-Ascend's code: keys and values, all copies at once, and no others."""
    finished = fork_server.run("-m", FAULTS, what, "ascend-worker", env=environment, timeout=300)
    assert dict.fromkeys(mistakes, True) == _compared(finished, blocks_min)


@pytest.mark.parametrize(
    ("version", "mistakes"),
    [pytest.param("0.23.0", CLEARING, marks=pytest.mark.deep), ("0.30.0rc2", (*CLEARING, *COPYING_LATER))],
)
def test_later_releases_clear_and_copy(version: str, mistakes: tuple[str, ...]) -> None:
    """Keys and values apart, blocks of several kernel blocks, and in 0.30.0rc2 memory next to them; and its copies."""
    release = release_named(f"ascend-worker@{version}")
    published(release)
    command = [sys.executable, "-m", FAULTS, "later", release.worker_name]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=400, check=False)
    assert dict.fromkeys(mistakes, True) == _compared(finished, blocks_min=40)


def test_0_20_2rc1_clears_no_block(fork_server: ForkServer, environment: dict[str, str]) -> None:
    """vLLM's scheduler orders it where a model keeps states; vLLM-Ascend's worker does nothing then."""
    finished = fork_server.run("-c", ZEROED, environment[WHERE], env=environment, timeout=300)
    assert 0 == finished.returncode, finished.stderr[-2000:]
    expected = '{"Worker": ["memory", "what is cleared"], "NPUWorker": ["memory"]}'
    assert expected == finished.stdout.splitlines()[-1]
    finished = fork_server.run("-c", CLEARS_NOTHING, env=environment, timeout=300)
    assert 0 == finished.returncode, finished.stderr[-2000:]
    assert ["clears [2]"] == [line for line in finished.stdout.splitlines() if line.startswith("clears")]
