"""Exported tests that import vLLM and pytest alone.

Goal: a finding can be given to vLLM as a test of its own: it fails with the fault, and passes without it. Method: ten
faults, each as a diff of the installed vLLM. The exported test runs with a conftest that blocks the import of kvgate,
on a copy of the package with the fault and on one without.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.deep
KVGATE = str(Path(sys.executable).with_name("kvgate"))
FAULTS = {
    "hit-one-block-short": (
        "single_type_kv_cache_manager",
        "for i in range(max_num_blocks - 1, -1, -1):",
        "for i in range(max_num_blocks - 2, -1, -1):",
    ),
    "all-but-the-first-released": (
        "block_pool",
        "for block in blocks_list if block.ref_cnt == 0",
        "for block in blocks_list[1:] if block.ref_cnt == 0",
    ),
    "released-in-reverse": (
        "block_pool",
        "blocks_list = list(ordered_blocks)",
        "blocks_list = list(ordered_blocks)[::-1]",
    ),
    "counted-one-less": ("kv_cache_utils", "self.num_free_blocks -= n", "self.num_free_blocks -= n - 1"),
    "held-block-not-taken-from-the-queue": ("block_pool", "self.free_block_queue.remove(block)", "pass"),
    "reset-although-in-use": ("block_pool", "if num_used_blocks != 1:", "if num_used_blocks > 4:"),
    "evicted-and-still-listed": ("block_pool", "block.reset_hash()", "pass"),
    "window-one-block-shorter": (
        "single_type_kv_cache_manager",
        "return max(0, num_computed_tokens - self.sliding_window + 1)",
        "return max(0, num_computed_tokens - self.sliding_window + 17)",
    ),
    "last-token-hit": (
        "kv_cache_manager",
        "max_cache_hit_length = request.num_tokens - 1",
        "max_cache_hit_length = request.num_tokens",
    ),
    "drafts-cached": ("kv_cache_manager", "num_tokens_to_cache = min(", "num_tokens_to_cache = max("),
}
"""By name: a file of vLLM, a passage in it, and its replacement."""
WITHOUT_KVGATE = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("kvgate", "kvreference", "kvspec", "kvgate_mutants", "swa_retention"):
            raise ImportError(f"{name} is not to be imported")

sys.meta_path.insert(0, Refuse())
"""


def package() -> Path:
    found = find_spec("vllm")
    if found is None or not found.submodule_search_locations:
        pytest.skip("vLLM is not installed")
    return Path(found.submodule_search_locations[0])


def outcome(test: Path, vllm: Path) -> tuple[int, str]:
    """The exit code of pytest with a test, on the vLLM in a folder."""
    environment = {**os.environ, "PYTHONPATH": str(vllm), "VLLM_PLUGINS": "", "VLLM_LOGGING_LEVEL": "ERROR"}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-c",
        os.devnull,
        "--rootdir",
        str(test.parent),
        str(test),
    ]
    done = subprocess.run(command, cwd=test.parent, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with vLLM's package, by links."""
    folder = tmp_path_factory.mktemp("sound")
    subprocess.run(["cp", "-rs", str(package()), str(folder)], check=True)
    return folder


@pytest.mark.parametrize("fault", FAULTS)
def test_an_exported_test_fails_with_the_fault_and_passes_without(fault: str, sound: Path, tmp_path: Path) -> None:
    name, passage, instead = FAULTS[fault]
    original = (package() / "v1" / "core" / f"{name}.py").read_text(encoding="utf-8")
    assert passage in original, "this vLLM has another passage"
    broken = tmp_path / "broken"
    subprocess.run(["cp", "-rs", str(package()), str(broken)], check=True)
    path = tmp_path / "with-fault" / "vllm"
    path.parent.mkdir()
    broken.rename(path)
    module = path / "v1" / "core" / f"{name}.py"
    module.unlink()
    module.write_text(original.replace(passage, instead), encoding="utf-8")
    run = [
        KVGATE,
        "check",
        "--vllm-path",
        str(path.parent),
        "-x",
        "--time-budget",
        "120s",
        "--report",
        str(tmp_path / "report"),
    ]
    models = [option for model in ("swa", "gemma-hybrid", "full") for option in ("--model", model)]
    found = subprocess.run([*run, *models], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert found.returncode == 1, found.stdout + found.stderr
    trace = tmp_path / "report" / "divergence-1.jsonl"
    exported = subprocess.run(
        [KVGATE, "replay", str(trace), "--vllm-path", str(path.parent), "--as-vllm-test"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert exported.returncode == 0, exported.stderr
    test = tmp_path / "tests" / "test_exported.py"
    test.parent.mkdir()
    test.write_text(exported.stdout, encoding="utf-8")
    (test.parent / "conftest.py").write_text(WITHOUT_KVGATE, encoding="utf-8")
    assert (1, 0) == (outcome(test, path.parent)[0], outcome(test, sound)[0]), exported.stdout
