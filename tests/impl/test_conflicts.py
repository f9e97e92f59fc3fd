"""Conflicts: others who change the same vLLM, vLLMs that the plug-in is not for, and values that cannot be meant.

Goal: the user sees one message that says what is wrong and what to do, or nothing is wrong. Method: real plug-ins of
vLLM beside ours, in an order that is theirs; the published wheels of other versions; and a real start of an engine.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path

import pytest

from swa_retention.config import VARIABLES

from .upstream.archive import wheel_of
from .upstream.stand_ins import write

# To look for pip's module would be enough for setuptools to leave distutils alone, which vLLM does not survive.
INSTALLED = {distribution.name for distribution in distributions()}
pytestmark = pytest.mark.skipif(not {"pip", "torch"} <= INSTALLED, reason="vLLM or pip is not installed")

INTERVAL, PIN = "VLLM_PREFIX_CACHE_RETENTION_INTERVAL", "VLLM_PIN_SWA_TOKENS"

RIVAL = """
from functools import wraps

def register():
    from vllm.v1.core.block_pool import BlockPool
    before = BlockPool.free_blocks
    def free_blocks(self, ordered_blocks, *more, **named):
        return before(self, ordered_blocks, *more, **named)
    BlockPool.free_blocks = {wrapped}
"""
PLAIN, WRAPPED = "free_blocks", "wraps(before)(free_blocks)"

START = """
import sys
sys.path.extend(sys.argv[1:])
from vllm.plugins import load_general_plugins
load_general_plugins()
import torch
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec, SlidingWindowSpec
shape = {"block_size": 16, "num_kv_heads": 1, "head_size": 1, "dtype": torch.float32}
specs = FullAttentionSpec(**shape), SlidingWindowSpec(**shape, sliding_window=16)
groups = [KVCacheGroupSpec([str(index)], spec) for index, spec in enumerate(specs)]
manager = KVCacheManager(KVCacheConfig(8, [], groups), max_model_len=64, hash_block_size=16, enable_caching=True)
print("retains", hasattr(manager.coordinator.single_type_managers[1], "reach"))
"""
"""As much of vLLM's start as plug-ins and a block manager take."""


def run(*arguments: str, paths: tuple[Path, ...] = (), **switches: str) -> subprocess.CompletedProcess[str]:
    """Python with these switches and no others, and with ``paths`` in front of all others."""
    environment = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    path = os.pathsep.join((*map(str, paths), os.environ.get("PYTHONPATH", "")))
    environment |= {"PYTHONPATH": path, "HF_HUB_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "WARNING"}
    return subprocess.run(
        [sys.executable, "-W", "ignore", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        env=environment | switches,
    )


def rival(folder: Path, source: str) -> Path:
    """A second plug-in of vLLM, in a folder of its own, as installed."""
    metadata = folder / "rival-1.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: rival\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[vllm.general_plugins]\nrival = rival:register\n")
    (folder / "rival.py").write_text(source)
    return folder


@pytest.mark.parametrize("how", [PLAIN, WRAPPED], ids=["replaced", "wrapped"])
def test_another_plug_in_was_here_first(tmp_path: Path, how: str) -> None:
    """The symbol is named, and who has it; the start ends. That it wraps vLLM's function does not hide it."""
    folder = rival(tmp_path, RIVAL.format(wrapped=how))
    finished = run("-c", START, paths=(folder,), **{INTERVAL: "0"})
    assert 1 == finished.returncode
    said = finished.stderr.partition("IncompatibleError: ")[2]
    assert said.startswith("swa_retention does not fit this vLLM, and has changed nothing.")
    assert "vllm.v1.core.block_pool:BlockPool.free_blocks: differs (defined in rival, fingerprint " in said


def test_another_plug_in_comes_later(tmp_path: Path) -> None:
    """It has replaced a patch: no block manager is built with half of a feature. If it wraps and says so, all is well."""
    replaced = run("-c", START, str(rival(tmp_path / "a", RIVAL.format(wrapped=PLAIN))), **{INTERVAL: "0"})
    assert 1 == replaced.returncode
    said = replaced.stderr.partition("DisplacedError: ")[2]
    assert "vllm.v1.core.block_pool:BlockPool.free_blocks: defined in rival" in said
    assert "VLLM_PLUGINS" in said
    wrapped = run("-c", START, str(rival(tmp_path / "b", RIVAL.format(wrapped=WRAPPED))), **{INTERVAL: "0"})
    assert ("retains True\n", 0) == (wrapped.stdout, wrapped.returncode), wrapped.stderr


def test_another_plug_in_and_nothing_switched_on(tmp_path: Path) -> None:
    """The two know nothing of each other."""
    finished = run("-c", START, paths=(rival(tmp_path, RIVAL.format(wrapped=PLAIN)),))
    assert ("retains False\n", 0) == (finished.stdout, finished.returncode), finished.stderr


REGISTER = "from swa_retention.plugin import register; register(); print('started')"


def test_a_vllm_that_has_it(tmp_path: Path) -> None:
    """0.23: retention is vLLM's own, and the plug-in stands aside; pins are refused, with the symbols."""
    native = wheel_of("0.23.0")
    started = run("-c", REGISTER, paths=(native,), **{INTERVAL: "0"})
    assert ("started\n", 0) == (started.stdout[-8:], started.returncode), started.stderr
    assert "vLLM has retention itself; the plug-in stands aside\n" in started.stderr
    told = run("-m", "swa_retention", "doctor", paths=(native,), **{INTERVAL: "0"})
    assert 0 == told.returncode
    assert "vLLM 0.23.0 (the plug-in is for 0.20.2)" in told.stdout
    assert "retention: vLLM has it itself, and the plug-in stands aside" in told.stdout
    refused = run("-c", REGISTER, paths=(native,), **{PIN: "1"})
    assert 1 == refused.returncode
    assert "vllm.v1.core.block_pool:BlockPool.free_blocks: differs (defined in vllm" in refused.stderr


def test_a_vllm_that_nobody_has_looked_at() -> None:
    """0.22.1 has no retention, and its block manager is another: the start ends, and every symbol that differs is named."""
    unknown = wheel_of("0.22.1")
    finished = run("-c", REGISTER, paths=(unknown,), **{INTERVAL: "0"})
    assert 1 == finished.returncode
    said = finished.stderr.partition("IncompatibleError: ")[2]
    assert "single_type_kv_cache_manager:SingleTypeKVCacheManager.cache_blocks: differs (defined in vllm" in said
    assert said.rstrip().endswith("`python -m swa_retention doctor` shows the rest.")
    assert ("started\n", 0) == (run("-c", REGISTER, paths=(unknown,)).stdout, 0)


def test_a_broken_value_at_a_real_start(tmp_path: Path) -> None:
    """Whoever starts an engine reads one line: the variable, the value, and what is allowed."""
    start = "from vllm import EngineArgs; EngineArgs(model='facebook/opt-125m').create_engine_config()"
    finished = run("-c", start, HF_HOME=str(write(tmp_path)), **{INTERVAL: "often"})
    assert 1 == finished.returncode
    assert (
        "swa_retention.config.ConfigurationError: VLLM_PREFIX_CACHE_RETENTION_INTERVAL='often' is not possible: "
        "give a non-negative number of tokens, or auto (32768)" == finished.stderr.splitlines()[-1]
    )
