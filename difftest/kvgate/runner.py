"""Runs of single cases: fresh ones drawn from a seed, and stored ones again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from attrs import frozen

from kvgate.difference import Divergence
from kvgate.lockstep import Lockstep
from kvgate.monitors.ghost import GhostMemory
from kvgate.monitors.invariants import Invariants
from kvgate.monitors.leak import LeakMonitor
from kvgate.monitors.monitor import Monitor
from kvgate.system import Factory
from kvreference.manager import Manager
from kvreference.operations import Operation
from kvreference.settings import Settings

MONITORS = ("check", "ghost", "leak")
"""What judges a system without the reference."""

DETECTORS = ("lockstep", *MONITORS)
"""Everything that can find a defect: the comparison with the reference, and the monitors."""


@frozen
class Bench:
    """A system under test, and what judges it."""

    factory: Factory
    detectors: tuple[str, ...] = DETECTORS
    """Among ``DETECTORS``."""

    def set_up(self, settings: Settings) -> Lockstep:
        """A fresh system with fresh judges."""
        monitors: list[Monitor] = []
        if "check" in self.detectors:
            monitors.append(Invariants())
        if "ghost" in self.detectors:
            monitors.append(GhostMemory(settings))
        if "leak" in self.detectors:
            monitors.append(LeakMonitor(settings))
        reference = Manager(settings) if "lockstep" in self.detectors else None
        return Lockstep(self.factory(settings), reference, monitors)


def run(bench: Bench, settings: Settings, operations: Iterable[Operation]) -> tuple[Lockstep, Sequence[Divergence]]:
    """Perform ``operations`` until one diverges, and judge what remains. Returns the run and what it found."""
    lockstep = bench.set_up(settings)
    for operation in operations:
        divergence = lockstep.perform(operation)
        if divergence is not None:
            return lockstep, [divergence]
    return lockstep, lockstep.close()
