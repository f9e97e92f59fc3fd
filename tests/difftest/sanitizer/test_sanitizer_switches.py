"""How the sanitizer is switched on: pytest's plug-in, vLLM's entry point, and a script.

Goal: it is off unless it is asked for; each way of asking switches it on; a log never raises. Method: processes with
vLLM in them, from the fork server, and what they print.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import TypeAlias

import pytest

pytest.importorskip("vllm")

from tests.fork_server import ForkServer

PROGRAM = """
from vllm.v1.core.block_pool import BlockPool

def test_a_double_free():
    pool = BlockPool(8, enable_caching=True, hash_block_size=4)
    blocks = pool.get_new_blocks(1)
    pool.free_blocks(blocks)
    pool.free_blocks(blocks)

def test_a_single_free():
    pool = BlockPool(8, enable_caching=True, hash_block_size=4)
    pool.free_blocks(pool.get_new_blocks(1))
"""
SCRIPT = PROGRAM + "\ntest_a_single_free()\ntest_a_double_free()\nprint('the end')\n"
MARKED = """
import pytest
from vllm.v1.core.block_pool import BlockPool

def misuse():
    pool = BlockPool(8, enable_caching=True, hash_block_size=4)
    blocks = pool.get_new_blocks(1)
    pool.free_blocks(blocks)
    pool.free_blocks(blocks)

def test_that_skips_itself():
    misuse()
    pytest.skip("after a misuse")

@pytest.mark.xfail
def test_that_may_fail():
    misuse()

@pytest.mark.xfail
def test_that_may_fail_and_does():
    misuse()
    assert False

@pytest.mark.xfail
def test_that_fails_as_expected():
    assert False

def test_that_skips():
    pytest.skip("without a misuse")
"""
CHANGED = """
from vllm.v1.core.block_pool import BlockPool
original = BlockPool.get_new_blocks

def get_new_blocks(self, {parameters}):
    return original(self, {first})

BlockPool.get_new_blocks = get_new_blocks

def test_it():
    pool = BlockPool(8, enable_caching=True, hash_block_size=4)
    pool.free_blocks(pool.get_new_blocks(1, hint=2))

def test_it_again():
    test_it()
"""
"""A release in which a method has other parameters."""
ADDED = CHANGED.format(parameters="num_blocks, hint=None", first="num_blocks")
RENAMED = CHANGED.format(parameters="count, hint=None", first="count")
RETENTION = """
import random
from kvgate.sanitizer import plugin
from swa_retention import plugin as retention

plug_ins = {"sanitizer": plugin.register, "retention": retention.register}
for name in ORDER:
    plug_ins[name]()
from kvgate_mutants.random_driver import SHAPES, Driver
from vllm.v1.core.block_pool import BlockPool

drivers = [Driver(SHAPES[shape], random.Random(0)) for shape in ("hybrid", "window")]
for driver in drivers:
    driver.run(100)
print("retention:", hasattr(BlockPool.free_blocks, "__swa_retention__"))
print("failures:", plugin.installed[0].failures)
windows = [each for each in drivers[0].manager.coordinator.single_type_managers if hasattr(each, "sliding_window")]
print("retained:", bool(windows) and all(hasattr(each, "reach") for each in windows))
pool = drivers[0].manager.block_pool
blocks = pool.get_new_blocks(1)
pool.free_blocks(blocks)
print("the last line has a misuse")
pool.free_blocks(blocks)
"""
REGISTERED = """
import logging
for each in (logging.getLogger("vllm"), *logging.getLogger("vllm").handlers):
    each.setLevel("INFO")
from kvgate.sanitizer.plugin import register
register()
register()
"""
OFF = """
import sys
from importlib.metadata import entry_points
before = set(sys.modules)
(entry,) = [each for each in entry_points(group="vllm.general_plugins") if each.name == "kvgate_sanitizer"]
entry.load()()
print(sorted(name for name in set(sys.modules) - before if name.split(".")[0] in ("kvgate", "kvreference", "pytest")))
"""
FOUND = "double free: block 1 is freed 1 times, and has 0 references"
TIMEOUT_SECONDS = 120.0
Run: TypeAlias = Callable[..., tuple[str, int]]


@pytest.fixture
def run(fork_server: ForkServer, tmp_path: Path) -> Run:
    """Run Python in a folder of its own; return its output and its exit code."""

    def in_folder(*arguments: str, **environment: str) -> tuple[str, int]:
        (tmp_path / "test_program.py").write_text(PROGRAM, encoding="utf-8")
        (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "KVGATE_SAN"))}
        with fork_server.start(*arguments, env={**clean, **environment}, cwd=tmp_path) as child:
            output, errors = child.communicate(TIMEOUT_SECONDS)
            return output + errors, child.wait(1)

    return in_folder


PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "test_program.py")


@pytest.mark.ci
@pytest.mark.parametrize(
    ("arguments", "environment"),
    [
        (("-p", "kvgate.sanitizer"), {}),
        (("--kvgate-sanitize",), {}),
        ((), {"KVGATE_SANITIZE": "1"}),
    ],
)
def test_pytest_is_asked(run: Run, arguments: tuple[str, ...], environment: dict[str, str]) -> None:
    """The test with the misuse fails, the other passes, and the last line says what was watched."""
    printed, code = run(*PYTEST, *arguments, **environment)
    assert 1 == code, printed
    assert FOUND in printed
    assert "allocated at test_program.py:6" in printed
    assert "1 failed, 1 passed" in printed
    assert "kvgate sanitizer: 2 tests, 2 block pools, 1 tests with a misuse; all rules" in printed


@pytest.mark.ci
def test_a_mark_hides_no_misuse(run: Run, tmp_path: Path) -> None:
    """Tests that are skipped or expected to fail: those with a misuse fail, the others end as they do without."""
    (tmp_path / "test_marked.py").write_text(MARKED, encoding="utf-8")
    printed, code = run(*PYTEST[:-1], "test_marked.py", "-p", "kvgate.sanitizer")
    assert 1 == code, printed
    assert "3 failed, 1 skipped, 1 xfailed" in printed
    assert "kvgate sanitizer: 5 tests, 3 block pools, 3 tests with a misuse" in printed


def test_a_parameter_that_a_release_adds(run: Run, tmp_path: Path) -> None:
    """It is passed, and the method is watched: under pytest, and in a log."""
    (tmp_path / "test_added.py").write_text(ADDED, encoding="utf-8")
    printed, code = run(*PYTEST[:-1], "test_added.py", "-p", "kvgate.sanitizer")
    assert 0 == code, printed
    assert "kvgate sanitizer: 2 tests, 2 block pools, 0 tests with a misuse; all rules" in printed
    again = ADDED + "test_it()\npool = BlockPool(8, True, 4)\npool.free_blocks(pool.get_new_blocks(1, hint=2) * 2)\n"
    printed, code = run("-c", REGISTERED + again, KVGATE_SANITIZE="log")
    assert 0 == code, printed
    assert "kvgate sanitizer: double free: block 1 is freed 2 times" in printed
    assert "failed" not in printed


def test_a_method_that_cannot_be_watched(run: Run, tmp_path: Path) -> None:
    """vLLM does not notice; pytest's exit code says that a check is missing, and a server's log does."""
    (tmp_path / "test_renamed.py").write_text(RENAMED, encoding="utf-8")
    failure = "BlockPool.get_new_blocks is not watched: parameter 1 is count, and not num_blocks"
    printed, code = run(*PYTEST[:-1], "test_renamed.py", "-p", "kvgate.sanitizer")
    assert 1 == code, printed
    assert "2 passed" in printed
    assert "1 error" in printed
    assert f"kvgate sanitizer: a check failed and was left out: {failure}" in printed
    printed, code = run("-c", REGISTERED + RENAMED + "test_it()\nprint('the end')\n", KVGATE_SANITIZE="log")
    assert (0, True) == (code, "the end" in printed), printed
    assert f"kvgate sanitizer: a check failed and was left out: {failure}" in printed


@pytest.mark.ci
@pytest.mark.parametrize("order", [("retention", "sanitizer"), ("sanitizer", "retention")])
@pytest.mark.parametrize(
    ("retains", "switches"),
    [
        (True, {"VLLM_PREFIX_CACHE_RETENTION_INTERVAL": "0", "VLLM_PREFIX_CACHE_SCRATCH_FIRST": "0"}),
        (False, {"VLLM_PIN_SWA_TOKENS": "1"}),
    ],
)
def test_with_the_plug_in_for_retention(
    run: Run, order: tuple[str, ...], retains: bool, switches: dict[str, str]
) -> None:
    """In either order both are on; the work of retention is not a misuse, and a misuse is still one."""
    program = f"ORDER = {order}{RETENTION}"
    printed, code = run("-c", program, KVGATE_SANITIZE="1", **switches)
    assert 1 == code, printed
    assert "retention: True\nfailures: []" in printed
    assert ("retained: True" in printed) == retains
    assert "the last line has a misuse" in printed
    assert "MisuseError: kvgate sanitizer: double free: block" in printed


def test_pytest_is_not_asked(run: Run) -> None:
    """The entry point is there, and both tests pass: vLLM itself does not notice."""
    assert {"kvgate.sanitizer"} <= {entry.name for entry in entry_points(group="pytest11")}
    printed, code = run(*PYTEST)
    assert (0, True) == (code, "kvgate sanitizer" not in printed), printed


def test_off_it_imports_nothing(run: Run) -> None:
    """Neither pytest, which a server does not have, nor the hooks."""
    printed, code = run("-c", OFF)
    assert 0 == code
    assert "kvgate.sanitizer.adapter" not in printed
    assert "'pytest'" not in printed


def test_a_script_is_stopped_at_the_misuse(run: Run) -> None:
    """``KVGATE_SANITIZE=1`` with vLLM's plug-in, and ``python -m kvgate.sanitizer`` without it."""
    for arguments in (("-c", REGISTERED + SCRIPT), ("-m", "kvgate.sanitizer", "script.py")):
        printed, code = run(*arguments, KVGATE_SANITIZE="1")
        assert 1 == code
        assert f"MisuseError: kvgate sanitizer: {FOUND}" in printed
        assert "the end" not in printed


def test_a_log_never_raises(run: Run) -> None:
    """``KVGATE_SANITIZE=log``: the program ends as it does without, and the log has the report."""
    printed, code = run("-c", REGISTERED + SCRIPT, KVGATE_SANITIZE="log")
    assert 0 == code, printed
    assert FOUND in printed
    assert "the end" in printed


def test_an_unknown_mode_is_off(run: Run) -> None:
    """A server starts with any environment, and its log says why the sanitizer is off."""
    printed, code = run("-c", REGISTERED + SCRIPT, KVGATE_SANITIZE="perhaps")
    assert 0 == code, printed
    assert "kvgate sanitizer: is off: ValueError: KVGATE_SANITIZE=perhaps is unknown: it is 1 or log" in printed
    assert FOUND not in printed
