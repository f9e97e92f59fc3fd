"""What checks the gate: every detector, alone, still finds a fault that is injected for it.

A gate is green if nothing is found, and also if nothing is checked any more.
"""

from __future__ import annotations

import pytest

from kvgate.adapters.registry import Loaded
from kvgate.gate.case_runner import Trials
from kvgate.gate.profiles import models_named
from kvgate.levels.manager import DETECTORS, Bench
from kvgate_mutants.mutants import block_pool, release, work
from kvgate_mutants.mutants.mutant import Mutant
from kvgate_mutants.mutation_run import run_until_killed
from kvreference.statements import STATEMENTS

INJECTED = {
    "lockstep": block_pool.released_in_reverse,
    "check": block_pool.removed_block_still_counted,
    "ghost": release.window_one_token_short,
    "leak": release.empty_table_outlives_request,
    "work": work.held_blocks_counted_one_by_one,
}
"""Detector to a fault of vLLM's block manager."""
MODELS = ("gpt-oss-hybrid", "full")
OPERATIONS, SECONDS = 40_000, 60.0


def test_every_detector_is_tried() -> None:
    """Goal: none is left out. Method: compare the names."""
    assert set(DETECTORS) == set(INJECTED)


@pytest.mark.parametrize(("detector", "mutant"), INJECTED.items(), ids=list(INJECTED))
def test_an_injected_fault_is_found(detector: str, mutant: Mutant, system: Loaded, pytestconfig: pytest.Config) -> None:
    """Goal: the silence of a detector means something. Method: it checks vLLM with one fault, and nothing else does."""
    if system.name not in ("stock", "retention"):
        pytest.skip(f"the faults are vLLM's, and {system.name} is another system")
    trials = Trials(Bench(system.factory, (detector,)))
    with mutant.applied():
        kill = run_until_killed(trials, models_named(MODELS), pytestconfig.getoption("--seed"), OPERATIONS, SECONDS)
    sentence = STATEMENTS[mutant.statement or ""]
    assert kill is not None, f"{detector} does not see {mutant.name}: {mutant.statement}: {sentence}"
    # Another detector would find it too, later: a check of states sees what a wrong answer leads to.
    assert (detector, mutant.statement) == (kill.by, kill.statement), f"{mutant.name}: {sentence}"
