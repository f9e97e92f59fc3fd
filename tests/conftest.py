"""The setup of every test run: its tier, the number of its processes, the mutants that it tries, and vLLM.

Three tiers: tests without a marker are the first, and run before every commit; ``ci`` is what ``.ci/run`` runs besides;
``deep`` is the rest. Of a test with many cases the first tier runs a ``few``, others with each commit.
"""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from .fork_server import ADDRESS, ForkServer, listening
from .published import REQUIRED

ROOT = Path(__file__).parents[1]
# The programs under ``benchmarks/`` are imported as when they are run from the root.
sys.path.append(str(ROOT))

NEED = "KVGATE_TESTS_NEED"
"""Names modules, with commas in between. Tests that lack one are skipped, and a run without vLLM would be green."""
SEED = "KVGATE_TESTS_SEED"
"""Chooses the mutants and the cases that are tried; the commit does if it is not set."""
MUTANTS_IN_CI, MUTANTS_FIRST = 20, 4
"""How many mutants a run of all but ``deep`` tries, and how many of these the first tier does."""
GATE_FIRST = ("test_no_divergence[gemma-hybrid]", "test_no_divergence_under_a_scheduler[gpt-oss-hybrid]")
"""The part of ``difftest/`` in the first tier: a short lockstep at both levels. ``pytest difftest`` runs all of it."""


def pytest_configure(config: pytest.Config) -> None:
    """End the run at once if a module is needed and cannot be imported; start what all processes of the run share."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell starts its background jobs so, and every process of a test would inherit it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        # So does nohup.
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    # Once: xdist's workers and what the tests start come later, and see no such variable.
    for name in filter(None, map(str.strip, os.environ.pop(NEED, "").split(","))):
        # In a process of its own, for an import of vLLM changes much that not every test wants changed.
        program = "import importlib, sys; importlib.import_module(sys.argv[1])"
        tried = subprocess.run([sys.executable, "-c", program, name], capture_output=True, text=True, check=False)
        os.environ[REQUIRED] = name
        if tried.returncode != 0:
            why = (tried.stderr.strip().splitlines() or [f"exit code {tried.returncode}"])[-1]
            pytest.exit(f"{name} is required here ({NEED}) and cannot be imported: {why}", returncode=3)
    if not hasattr(config, "workerinput"):
        os.environ.setdefault(SEED, seed_of_the_commit())
        shared = ExitStack()
        config.add_cleanup(shared.close)
        folder = Path(shared.enter_context(TemporaryDirectory()))
        os.environ[ADDRESS] = shared.enter_context(listening(folder))


def seed_of_the_commit() -> str:
    """The commit's name: each commit tries other mutants."""
    asked = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return asked.stdout.strip()[:12] or "no commit"


def pytest_report_header() -> str:
    """How to try the same again."""
    return f"mutants and cases are chosen by {SEED}={os.environ[SEED]}; -m deep runs all mutants, .ci/run all cases"


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """One process for a file or a test that is named: to start several would take longer than most files."""
    named = [config.invocation_params.dir / argument.partition("::")[0] for argument in config.args]
    return None if any(path.is_dir() for path in named) else 0


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Choose the mutants and the cases that are run before the last tier, and give the gate's own tests their tier."""
    # Each process of a run collects by itself, and must find the same names.
    named_by_address = [item.nodeid for item in items if " at 0x" in item.nodeid]
    if named_by_address:
        raise pytest.UsageError(f"the address of an object is in the name of a test: {named_by_address[0]}")
    mutants = each_set_first(shuffled(item for item in items if item.get_closest_marker("mutant")))
    asks_for_deep = "deep" in config.option.markexpr.replace("not deep", "")
    for item in mutants[0 if asks_for_deep else MUTANTS_IN_CI :]:
        item.add_marker(pytest.mark.deep)
    for item in mutants[MUTANTS_FIRST:MUTANTS_IN_CI]:
        item.add_marker(pytest.mark.ci)
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("few"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for several in cases.values():
        few = several[0].get_closest_marker("few")
        assert few is not None
        for item in shuffled(several)[few.args[0] :]:
            item.add_marker(pytest.mark.ci)
    for item in items:
        if ROOT / "difftest" in item.path.parents and not item.name.startswith(GATE_FIRST):
            item.add_marker(pytest.mark.ci)


def each_set_first(mutants: list[pytest.Item]) -> list[pytest.Item]:
    """The same, with two of each file, so of each set of mutants, before all others."""
    first = [item for item in mutants if item in [other for other in mutants if other.path == item.path][:2]]
    return [*first, *(item for item in mutants if item not in first)]


def shuffled(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """In an order that the seed gives: by a digest of each name, wherever and by whichever process it is collected."""
    return sorted(items, key=lambda item: hashlib.sha256(f"{os.environ[SEED]} {item.nodeid}".encode()).digest())


@pytest.fixture(scope="session")
def fork_server() -> ForkServer:
    """Starts clean processes in which vLLM is imported already."""
    if find_spec("vllm") is None:
        pytest.skip("vLLM is not installed")
    return ForkServer(os.environ[ADDRESS])
