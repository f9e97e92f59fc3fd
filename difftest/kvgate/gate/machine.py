"""The lockstep as a Hypothesis state machine: fewer operations than the seeded driver, and better shrinking.

Hypothesis prints the shortest program that fails, which runs as it is printed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from kvgate.gate.case_runner import Lane
from kvgate.gate.generator import PRESETS, Generator
from kvgate.gate.level import Bench, World
from kvgate.kernel.difference import Divergence
from kvreference.operations import Operation
from kvreference.settings import Settings

T = TypeVar("T")


class Shrinking:
    """Choices that Hypothesis makes, and makes smaller."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw

    def integer(self, low: int, high: int) -> int:
        return self._draw(st.integers(low, high))

    def chance(self, percent: int) -> bool:
        # Counted from the top, so that the smallest choice is "no".
        return self._draw(st.integers(0, 99)) >= 100 - percent

    def one_of(self, options: Sequence[T]) -> T:
        return self._draw(st.sampled_from(options))


@st.composite
def settings_of(draw: st.DrawFn, generator: Generator) -> Settings:
    """The settings of a case, as a Hypothesis strategy."""
    return generator.settings(Shrinking(draw))


@st.composite
def operations_of(draw: st.DrawFn, generator: Generator) -> Operation:
    """One operation, as a Hypothesis strategy."""
    return generator.operation(Shrinking(draw))


class DivergenceError(AssertionError):
    """The system and the reference disagree, in a way that no finding explains."""


def machine_for(bench: Bench, lane: Lane) -> type[RuleBasedStateMachine]:
    """A state machine that runs ``bench``, of a block manager, on one model with one generator preset."""
    generator = Generator(PRESETS[lane.preset], lane.model.geometry, lane.model.features)

    class LockstepMachine(RuleBasedStateMachine):
        """Performs operations, one rule each, and ends all requests at the end."""

        world: World | None = None
        ended = False

        @initialize(settings=settings_of(generator))
        def build(self, settings: Settings) -> None:
            self.world = bench.build(bench.level.case(settings, ()))

        @rule(operation=operations_of(generator))
        def perform(self, operation: Operation) -> None:
            assert self.world is not None, "built first"
            if not self.ended:
                self._check(self.world.perform(operation))

        def teardown(self) -> None:
            if self.world is not None and not self.ended:
                for divergence in self.world.close():
                    self._check(divergence)

        def _check(self, divergence: Divergence | None) -> None:
            if divergence is None:
                return
            self.ended = True
            assert self.world is not None, "built first"
            if bench.level.explain(divergence, self.world) is None:
                difference = divergence.difference
                raise DivergenceError(
                    f"{difference.statement}: {divergence.sentence}\n"
                    f"step {divergence.step}: {divergence.operation}\n"
                    f"{difference.subject}\nexpected: {difference.expected}\ngot:      {difference.got}"
                )

    LockstepMachine.__name__ = f"LockstepMachine[{lane.model.name}-{lane.preset}]"
    return LockstepMachine
