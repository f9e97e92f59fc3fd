"""The lockstep as a Hypothesis state machine.

Goal: what the seeded driver finds, Hypothesis finds too, and shrinks. Method: the reference is the control; a faulty
subclass fails while operations are performed, another one at rest.
"""

from __future__ import annotations

import re

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from kvgate.adapters.reference import Reference
from kvgate.gate.case_runner import Lane
from kvgate.gate.machine import DivergenceError, machine_for
from kvgate.kernel.models import MODELS, load
from kvgate.kernel.protocol import Factory
from kvgate.levels.manager import Bench
from kvreference.answers import Answer
from kvreference.operations import Abort, Arrive, Operation
from kvreference.settings import Settings
from kvreference.statements import STATEMENTS

LANE = Lane(MODELS["full"], "tiny")


class Miscounts(Reference):
    """Counts a holder of block 1 too many when a second request arrives."""

    def apply(self, operation: Operation) -> Answer:
        answer = super().apply(operation)
        if isinstance(operation, Arrive) and operation.request > 0:
            self.pool.references[1] += 1
        return answer


class KeepsALog(Reference):
    """Writes down who is aborted, for ever."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.log: list[str] = []

    def apply(self, operation: Operation) -> Answer:
        if isinstance(operation, Abort):
            self.log.append(self.name_of(operation.request))
        return super().apply(operation)

    def roots(self) -> dict[str, object]:
        return {"log": self.log}

    def name_of(self, request: int) -> str:
        return f"request-{request}"


def machine(system: Factory, lane: Lane = LANE) -> type[RuleBasedStateMachine]:
    return machine_for(Bench(system), lane)


def search(system: Factory, lane: Lane = LANE) -> None:
    """Let Hypothesis look for a divergence."""
    run_state_machine_as_test(
        machine(system, lane),
        settings=settings(
            max_examples=25,
            stateful_step_count=20,
            # Shrinking is Hypothesis's own affair, and takes its time.
            phases=(Phase.generate,),
            derandomize=True,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.parametrize(
    "model", ["full", "compressed+mtp+partial+masked+scratch+pinned=1+transfers", "mamba-align+eagle"]
)
def test_a_sound_system_passes(model: str) -> None:
    """The control, on a model without any mechanism and on some that have them all."""
    search(Reference, Lane(load(model), "tiny"))


class GivesUpLoading(Reference):
    """Gives back the blocks of a request that loads as soon as it is aborted: here when all requests are ended."""

    def apply(self, operation: Operation) -> Answer:
        if isinstance(operation, Abort):
            self.holdings.release_all(operation.request)
        return super().apply(operation)


def test_what_only_some_models_do_is_searched() -> None:
    """Transfers, say; where there are none, the same fault is none."""
    search(GivesUpLoading)
    with pytest.raises(DivergenceError, match="KV-OP-25"):
        search(GivesUpLoading, Lane(load("full+transfers"), "tiny"))


def test_a_fault_is_found() -> None:
    """The message quotes the guarantee, the operation and both sides."""
    with pytest.raises(DivergenceError) as failure:
        search(Miscounts)
    promise, step, subject, expected, got = str(failure.value).splitlines()
    assert f"KV-INV-01: {STATEMENTS['KV-INV-01']}" == promise
    assert re.match(r"step \d+: Arrive\(request=\d, ", step)
    assert "references of block 1" == subject
    assert ("expected: ", "got:      ") == (expected[:10], got[:10])
    assert int(expected[10:]) + 1 == int(got[10:])


def test_what_remains_at_the_end_is_found() -> None:
    """Every request is ended, and then the leak monitor looks."""
    with pytest.raises(DivergenceError, match="KV-LEAK-01"):
        search(KeepsALog)


@pytest.mark.parametrize("system", [Miscounts, KeepsALog])
def test_declared_differences_are_no_failure(system: Factory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run in which one shows ends there."""
    monkeypatch.setattr("kvgate.levels.manager.explain", lambda *_: "000-known")
    search(system)


def test_a_machine_names_its_lane() -> None:
    """So does the failure that Hypothesis prints."""
    assert "LockstepMachine[full-tiny]" == machine(Reference).__name__
