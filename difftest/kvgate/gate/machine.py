"""The lockstep as a Hypothesis state machine: fewer operations than the seeded driver, and better shrinking.

Hypothesis prints the shortest program that fails, which runs as it is printed.
"""

from __future__ import annotations

from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from kvgate.findings import explain
from kvgate.gate.campaign import Lane
from kvgate.gate.case_runner import Bench
from kvgate.gate.generator import PRESETS, Generator
from kvgate.gate.hypothesis_source import operations_of, settings_of
from kvgate.kernel.difference import Divergence
from kvgate.kernel.lockstep import Lockstep
from kvreference.operations import Operation
from kvreference.settings import Settings


class DivergenceError(AssertionError):
    """The system and the reference disagree, in a way that no finding explains."""


def machine_for(bench: Bench, lane: Lane) -> type[RuleBasedStateMachine]:
    """A state machine that runs ``bench`` on one model with one generator preset."""
    generator = Generator(PRESETS[lane.preset], lane.model.geometry, lane.model.features)

    class LockstepMachine(RuleBasedStateMachine):
        """Performs operations, one rule each, and ends all requests at the end."""

        lockstep: Lockstep | None = None
        ended = False

        @initialize(settings=settings_of(generator))
        def build(self, settings: Settings) -> None:
            self.lockstep = bench.set_up(settings)

        @rule(operation=operations_of(generator))
        def perform(self, operation: Operation) -> None:
            assert self.lockstep is not None, "built first"
            if not self.ended:
                self._judge(self.lockstep.perform(operation))

        def teardown(self) -> None:
            if self.lockstep is not None and not self.ended:
                for divergence in self.lockstep.close():
                    self._judge(divergence)

        def _judge(self, divergence: Divergence | None) -> None:
            if divergence is None:
                return
            self.ended = True
            assert self.lockstep is not None, "built first"
            if explain(divergence, self.lockstep) is None:
                difference = divergence.difference
                raise DivergenceError(
                    f"{difference.statement}: {divergence.sentence}\n"
                    f"step {divergence.step}: {divergence.operation}\n"
                    f"{difference.subject}\nexpected: {difference.expected}\ngot:      {difference.got}"
                )

    LockstepMachine.__name__ = f"LockstepMachine[{lane.model.name}-{lane.preset}]"
    return LockstepMachine
