"""An exploration: how far it may go, how far it is, and what it came to."""

from __future__ import annotations

from typing import Generic

from attrs import frozen

from kvgate.explore.world import Move
from kvreference.snapshot import Violation

INTERRUPTED = "interrupted"
"""Why an interrupted search stopped."""


@frozen
class Limits:
    """When a search stops early."""

    states_max: int
    seconds_max: float


@frozen
class Found(Generic[Move]):
    """What is wrong, and a shortest way to it."""

    violations: tuple[Violation, ...]
    moves: tuple[Move, ...]
    """From the initial state to the one in question."""
    circle: tuple[Move, ...] = ()
    """The moves without progress that lead from there back to the same state, up to names."""


@frozen
class Exploration(Generic[Move]):
    """What was explored, and what was found."""

    states: int
    edges: int
    depth: int
    """How many moves lead to the farthest state that was visited."""
    seconds: float
    found: Found[Move] | None
    stopped: str | None
    """Why the search ended before every state was visited; None if none was left, or something was found."""
    idle_steps_max: int | None
    """The most steps in a row without progress; None if not every state was visited."""

    @property
    def exhaustive(self) -> bool:
        """Whether every reachable state was visited, and nothing is wrong with any."""
        return self.found is None and self.stopped is None


@frozen
class Sighting:
    """How far a search is."""

    states: int
    edges: int
    depth: int
