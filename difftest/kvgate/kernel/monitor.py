"""What a monitor is: it watches one run of one system and needs no reference."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Protocol, cast

from attrs import define, frozen

from kvgate.kernel.difference import Difference
from kvgate.kernel.protocol import Parts, System
from kvreference.answers import Answer
from kvreference.operations import Operation
from kvreference.population import Population
from kvreference.snapshot import Snapshot


@frozen
class Change:
    """What one operation changed."""

    tables: Callable[[], Sequence[tuple[int, int]]]
    """Per group of its request's tables before and after, how many entries there are more, and how many differ."""
    references: Sequence[tuple[int, int]]
    """Of each block that changed hands, its references before and after."""
    contents: Sequence[tuple[Hashable, Hashable]]
    """Of each block whose content changed, what it held before and after."""
    blocks_free: int
    others: Sequence[int] = ()
    """How many other things changed, of each sort that a state has besides these."""


@define
class Step:
    """One operation that a system performed, and everything that could be seen of it."""

    operation: Operation
    answer: Answer
    _snapshot: Snapshot | None
    population: Population
    """The requests alive after the operation, as the system's answers have them."""
    system: System | None = None
    """Where the state is read from if it was not."""
    change: Change | None = None
    """What the operation changed, where the run knows."""

    @property
    def snapshot(self) -> Snapshot:
        """The system's state after the operation."""
        if self._snapshot is None:
            assert self.system is not None, "a step has a state, or a system to read it from"
            self._snapshot = self.system.snapshot()
        return self._snapshot

    def tables(self, request: int) -> Sequence[Sequence[int]]:
        """The block table of a request in each group; nothing if it holds no blocks."""
        if self._snapshot is None:
            return cast("Parts", self.system).tables_of(request)
        return self._snapshot.tables.get(request, ())


class Monitor(Protocol):
    """Checks a run step by step, and once more when no request is alive."""

    name: str

    def observe(self, step: Step) -> Difference | None:
        """The first violation that ``step`` shows."""
        ...

    def at_rest(self, system: System) -> Iterable[Difference]:
        """What is wrong with ``system`` now that no request is alive."""
        ...
