"""Engines over one folder of files: two that take turns, each of which can be built anew."""

from __future__ import annotations

from collections.abc import Sequence

from kvgate.kernel.difference import Divergence
from kvgate.levels.tiers.engine import TierEngine
from kvgate.levels.tiers.files import Folder
from kvgate.levels.tiers.operations import Operation, OtherEngine, Restart, TierStage
from kvreference.settings import Settings


class Engines:
    """One run. The second engine is built when it is its turn first."""

    def __init__(self, settings: Settings, stage: TierStage, subject: str) -> None:
        self.folder = Folder()
        self._given = settings, stage, subject
        self._engines = [TierEngine(*self._given, folder=self.folder)]
        self._turn = 0

    @property
    def current(self) -> TierEngine:
        """The engine whose turn it is."""
        return self._engines[self._turn]

    def candidates(self, kind: type) -> Sequence[int]:
        """See ``kvgate.gate.level.World.candidates``."""
        return self.current.candidates(kind)

    def perform(self, operation: Operation) -> Divergence | None:
        """Perform one operation, if it means anything now, and check what follows."""
        if isinstance(operation, Restart):
            self._engines[self._turn] = self._another()
        elif isinstance(operation, OtherEngine):
            if len(self._engines) == 1:
                self._engines.append(self._another())
            self._turn_to(1 - self._turn)
        else:
            return self.current.perform(operation)
        return None

    def _another(self) -> TierEngine:
        return TierEngine(*self._given, before=self.current, folder=self.folder)

    def _turn_to(self, turn: int) -> None:
        self._turn = turn
        self.current.lockstep.system = self.current.followed

    def close(self) -> list[Divergence]:
        """Let every request of each engine end, and check what remains."""
        for turn in (self._turn, *(each for each in range(len(self._engines)) if each != self._turn)):
            self._turn_to(turn)
            found = self.current.close()
            if found:
                return found
        return []
