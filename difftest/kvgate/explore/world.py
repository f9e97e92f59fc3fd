"""What can be explored: states, the moves that are legal in each, and where a move leads.

The search knows nothing of blocks. Anything with an initial state, legal moves and a canonical form can be explored:
the block manager, a scheduler on top of it, a design that is known to be wrong.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from attrs import frozen

from kvreference.snapshot import Snapshot, Violation

State = TypeVar("State")
Move = TypeVar("Move")


@frozen
class Outcome(Generic[State]):
    """Where a move leads, and what was seen on the way."""

    state: State
    answer: object
    progress: bool
    """Whether something was achieved. Moves without progress must not lead back to where they began."""
    violations: tuple[Violation, ...] = ()
    """What the move itself did wrong; what is wrong with the state is for ``World.check`` to say."""


class Explorable(Protocol):
    """What has a world to explore: a tiny model, of a block manager or of a scheduler."""

    @property
    def name(self) -> str:
        """What it is called on the command line."""
        ...

    @property
    def mechanism(self) -> str:
        """What it is about, in one line."""
        ...

    def world(self, deep: bool = False, design: Any = None) -> World[Any, Any]:
        """The world to explore: of the reference, or of a design that does not work."""
        ...


class World(Protocol[State, Move]):
    """A transition system with symmetries.

    States with the same key must be the same up to names: as many moves of every kind, which lead to the same keys.
    ``kvgate.explore.bisimulation`` tests that.
    """

    @property
    def name(self) -> str:
        """What is explored."""
        ...

    @property
    def bounds(self) -> Mapping[str, str]:
        """How small it is, in words: what was not explored lies beyond."""
        ...

    def initial(self) -> State:
        """The state before anything happened."""
        ...

    def moves(self, state: State) -> Iterable[Move]:
        """Every legal move, always in the same order."""
        ...

    def step(self, state: State, move: Move) -> Outcome[State]:
        """The state after ``move``; ``state`` stays as it is. Any exception is a violation of KV-SYS-01."""
        ...

    def violations_in(self, state: State) -> Sequence[Violation]:
        """What is wrong with a state, independent of its history."""
        ...

    def key(self, state: State) -> Hashable:
        """The canonical form, the same for all states that differ in names alone. Small: one is kept per state."""
        ...

    def snapshot(self, state: State) -> Snapshot:
        """The state as it is printed at the end of a story."""
        ...

    def describe_edge(self, move: Move, answer: Any) -> str:
        """A move and its answer on one line; the answer is None if the move raised."""
        ...
