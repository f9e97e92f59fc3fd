"""What became of one world: the subject of every report."""

from __future__ import annotations

from typing import Any

from attrs import frozen

from kvgate.explore.designs import Design
from kvgate.explore.exploration import Exploration
from kvgate.explore.world import World


@frozen
class Explored:
    """One world, and what its exploration came to."""

    world: World[Any, Any]
    exploration: Exploration[Any]
    design: Design | None = None
    again: str | None = None
    """The command that runs what was found again, if it was written to a file."""

    @property
    def verdict(self) -> str:
        """What it came to, in a few words."""
        found = self.exploration.found
        if found is not None:
            statement = found.violations[0].statement
            return f"violates {statement}" if self.design is None else f"refuted by {statement}"
        if self.exploration.stopped is not None:
            return f"{self.exploration.stopped}: not exhaustive"
        return "nothing wrong" if self.design is None else "NOT REFUTED"
