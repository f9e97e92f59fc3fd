"""Blocks that are cleared and copied: bytes of memory.

Goal: published code clears and copies exactly the bytes of the blocks that it is asked for, and a mistake is seen.
Method: random caches, blocks and copies, every byte compared; then the same with one mistake.
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

CLEAR = """
import torch, importlib, json
from random import Random
from kvgate.adapters.model_runner import block_memory as memory
zeroer = importlib.import_module(memory.UTILS).KVBlockZeroer
clear, init = zeroer.zero_block_ids, zeroer.init_meta

def without_parts(self, groups, sizes, *others):
    init(self, groups, [group.kv_cache_spec.block_size for group in groups], *others)

def run(cases):
    draw, blocks_cleared, wrong = Random(0), 0, 0
    for _ in range(cases):
        parts, slots, shape = draw.choice((1, 2, 4)), draw.choice(memory.KERNEL_SLOTS), draw.randrange(2)
        caches = [memory.new_cache(draw, parts, slots, shape) for _ in range(draw.randint(1, 3))]
        blocks = draw.sample(range(memory.BLOCKS - 1), draw.randint(1, memory.BLOCKS - 1))
        expected = memory.cleared(caches, blocks)
        memory.clear(caches, slots, blocks)
        wrong += any(not torch.equal(each.tensor, other) for each, other in zip(caches, expected))
        blocks_cleared += len(blocks)
    return blocks_cleared, wrong

found = {"": run(12)}
for name, attribute, broken in (
    ("the next block", "zero_block_ids", lambda self, blocks: clear(self, [each + 1 for each in blocks])),
    ("all but one", "zero_block_ids", lambda self, blocks: clear(self, blocks[1:])),
    ("kernel blocks", "init_meta", without_parts),
):
    sound = getattr(zeroer, attribute)
    setattr(zeroer, attribute, broken)
    found[name] = run(3)
    setattr(zeroer, attribute, sound)
print(json.dumps(found))
"""
COPY = """
import torch, json
from random import Random
from kvgate.adapters.registry import load_system
load_system("ascend-worker")
from kvgate.adapters.model_runner import block_memory as memory
from vllm_ascend.attention.attention_v1 import AscendAttentionBackend as backend
original = backend.copy_blocks

def keys(tensors, copies):
    for each in tensors:
        each[0][copies[:, 1]] = each[0][copies[:, 0]]

def axis(tensors, copies):
    for each in tensors:
        each[:, :, copies[:, 1] % 4] = each[:, :, copies[:, 0] % 4]

def run():
    draw, blocks_copied, wrong, wrong_swaps = Random(0), 0, 0, 0
    for _ in range(60):
        slots = draw.choice(memory.KERNEL_SLOTS)
        tensors = [memory.new_cache(draw, 1, slots, 0).tensor for _ in range(2)]
        copies = memory.random_copies(draw)
        expected = memory.copied(tensors, copies)
        memory.copy(tensors, copies)
        wrong += any(not torch.equal(*pair) for pair in zip(tensors, expected))
        source, target = (memory.new_cache(draw, 1, slots, 0).tensor for _ in range(2))
        after = target.clone()
        for one, other in copies:
            after[:, other] = source[:, one]
        memory.swap(source, target, copies)
        wrong_swaps += not torch.equal(target, after)
        blocks_copied += 2 * len(copies)
    return blocks_copied, wrong + wrong_swaps

found = {"": run()}
for name, broken in (
    ("keys alone", keys),
    ("one after the other", lambda tensors, copies: [original(tensors, copy[None]) for copy in copies]),
    ("the wrong axis", axis),
):
    backend.copy_blocks = staticmethod(broken)
    found[name] = run()
backend.copy_blocks = staticmethod(original)
swap = backend.swap_blocks
backend.swap_blocks = staticmethod(lambda source, target, copies: swap(source, target, copies[:, [1, 0]]))
found["the other way round"] = run()
print(json.dumps(found))
"""
LATER = """
import importlib, json, sys
import torch
from random import Random
from kvgate.adapters.registry import load_system
load_system(sys.argv[1])
from kvgate.adapters.model_runner import block_memory as memory
home = importlib.import_module("vllm_ascend.worker.utils")
zeroer = home.AscendKVBlockZeroer
clear, init = zeroer.zero_block_ids, zeroer.init_meta
newest = hasattr(home, "copy_kv_cache_blocks_inplace")

def sizes(slots, groups):
    return [slots if newest else [slots]] * groups

def without_parts(self, groups, kernel_sizes, *others, **named):
    return init(self, groups, sizes(groups[0].kv_cache_spec.block_size, len(groups)), *others, **named)

def clears(cases):
    draw, blocks_cleared, wrong = Random(0), 0, 0
    for _ in range(cases):
        parts, slots = draw.choice((1, 2, 4)), draw.choice(memory.KERNEL_SLOTS)
        pairs = [[memory.new_cache(draw, parts, slots, 1) for _ in range(2)] for _ in range(draw.randint(1, 3))]
        whole = [each for pair in pairs for each in pair]
        # Of the newest, a block's memory may hold more than its keys.
        padded = newest and draw.random() < 0.5
        views = whole if not padded else [
            memory.Cache(each.tensor[:, :1], each.block_axis, each.parts) for each in whole
        ]
        blocks = draw.sample(range(memory.BLOCKS - 1), draw.randint(1, memory.BLOCKS - 1))
        expected = memory.cleared(views, blocks)
        others = [each.tensor[:, 1:].clone() for each in whole] if padded else []
        memory.clear_ascend(list(zip(views[::2], views[1::2])), slots, blocks, sizes(slots, len(pairs)))
        wrong += any(not torch.equal(each.tensor, other) for each, other in zip(views, expected))
        wrong += any(not torch.equal(each.tensor[:, 1:], other) for each, other in zip(whole, others))
        blocks_cleared += len(blocks)
    return blocks_cleared, wrong

def copies(cases):
    draw, blocks_copied, wrong = Random(1), 0, 0
    for _ in range(cases):
        parts, slots, shape = draw.choice((1, 2, 4)), draw.choice(memory.KERNEL_SLOTS), draw.randrange(2)
        caches = [memory.new_cache(draw, parts, slots, shape) for _ in range(2)]
        ordered = memory.random_copies(draw)
        expected = [memory.Cache(each.tensor.clone(), each.block_axis, each.parts) for each in caches]
        for before, after in zip(caches, expected):
            for source, target in ordered:
                after.block(target).copy_(before.block(source))
        memory.copy_later([each.tensor for each in caches], ordered)
        wrong += any(not torch.equal(each.tensor, other.tensor) for each, other in zip(caches, expected))
        blocks_copied += len(ordered)
    return blocks_copied, wrong

found = {"": clears(20)}
for name, attribute, broken in (
    ("the next block", "zero_block_ids", lambda self, blocks: clear(self, [each + 1 for each in blocks])),
    ("all but one", "zero_block_ids", lambda self, blocks: clear(self, blocks[1:])),
    ("kernel blocks", "init_meta", without_parts),
):
    sound = getattr(zeroer, attribute)
    setattr(zeroer, attribute, broken)
    found[name] = clears(6)
    setattr(zeroer, attribute, sound)
if newest:
    done, wrong = copies(40)
    found[""] = found[""][0] + done, found[""][1] + wrong
    copy = home.copy_kv_cache_blocks_inplace
    for name, broken in (
        ("one after the other", lambda caches, blocks, all_: [copy(caches, blocks, [each]) for each in all_]),
        ("to the next block", lambda caches, n, all_: copy(caches, n, [type(o)(o[0], (o[1] + 1) % 7) for o in all_])),
        ("the other way round", lambda caches, blocks, all_: copy(caches, blocks, [type(o)(o[1], o[0]) for o in all_])),
    ):
        home.copy_kv_cache_blocks_inplace = broken
        found[name] = copies(10)
print(json.dumps(found))
"""
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


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    """Where vLLM-Ascend is."""
    return {WHERE: str(published()), "VLLM_LOGGING_LEVEL": "ERROR"}


def _found(program: str, fork_server: ForkServer, environment: dict[str, str]) -> tuple[int, int, list[int]]:
    """Of the code as it is, how many blocks were done and in how many cases wrong; and the latter by mistake."""
    finished = fork_server.run("-c", program, env=environment, timeout=300)
    assert 0 == finished.returncode, finished.stderr[-2000:]
    found = json.loads(finished.stdout.splitlines()[-1])
    done, wrong = found.pop("")
    return done, wrong, [each for _, each in found.values()]


def test_blocks_are_cleared(fork_server: ForkServer, environment: dict[str, str]) -> None:
    """By vLLM's kernel, interpreted: all bytes of each block, and no others; three mistakes are seen."""
    done, wrong, mistakes = _found(CLEAR, fork_server, environment)
    assert done > 30
    assert 0 == wrong
    assert [True] * 3 == [each > 0 for each in mistakes]


def test_blocks_are_copied(fork_server: ForkServer, environment: dict[str, str]) -> None:
    """By vLLM-Ascend's code: keys and values, all copies at once, to their targets; four mistakes are seen."""
    done, wrong, mistakes = _found(COPY, fork_server, environment)
    assert done > 200
    assert 0 == wrong
    assert [True] * 4 == [each > 0 for each in mistakes]


@pytest.mark.parametrize(("version", "mistakes"), [pytest.param("0.23.0", 3, marks=pytest.mark.deep), ("0.30.0rc2", 6)])
def test_later_releases_clear_and_copy(version: str, mistakes: int, tmp_path: Path) -> None:
    """Keys and values apart, blocks of several kernel blocks, and in 0.30.0rc2 memory next to them; and its copies."""
    release = release_named(f"ascend-worker@{version}")
    published(release)
    command = [sys.executable, "-c", LATER, release.name]
    finished = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=400, check=False)
    assert 0 == finished.returncode, finished.stderr[-2000:]
    found = json.loads(finished.stdout.splitlines()[-1])
    done, wrong = found.pop("")
    assert done > 40
    assert 0 == wrong
    assert [True] * mistakes == [each > 0 for _, each in found.values()]


def test_0_20_2rc1_clears_no_block(fork_server: ForkServer, environment: dict[str, str]) -> None:
    """vLLM's scheduler orders it where a model keeps states; vLLM-Ascend's worker does nothing then."""
    finished = fork_server.run("-c", ZEROED, environment[WHERE], env=environment, timeout=300)
    assert 0 == finished.returncode, finished.stderr[-2000:]
    expected = '{"Worker": ["memory", "what is cleared"], "NPUWorker": ["memory"]}'
    assert expected == finished.stdout.splitlines()[-1]
    finished = fork_server.run("-c", CLEARS_NOTHING, env=environment, timeout=300)
    assert 0 == finished.returncode, finished.stderr[-2000:]
    assert ["clears [2]"] == [line for line in finished.stdout.splitlines() if line.startswith("clears")]
