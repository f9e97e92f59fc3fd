"""What a monitor is: it watches one run of one system and needs no reference."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from attrs import frozen

from kvgate.kernel.difference import Difference
from kvgate.kernel.protocol import System
from kvreference.answers import Answer
from kvreference.operations import Operation
from kvreference.population import Population
from kvreference.snapshot import Snapshot


@frozen
class Step:
    """One operation that a system performed, and everything that could be seen of it."""

    operation: Operation
    answer: Answer
    snapshot: Snapshot
    """The system's state after the operation."""
    population: Population
    """The requests alive after the operation, as the system's answers have them."""


class Monitor(Protocol):
    """Judges a run step by step, and once more when no request is alive."""

    name: str

    def observe(self, step: Step) -> Difference | None:
        """The first violation that ``step`` shows."""
        ...

    def at_rest(self, system: System) -> Iterable[Difference]:
        """What is wrong with ``system`` now that no request is alive."""
        ...
