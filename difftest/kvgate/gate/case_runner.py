"""Runs of single cases: fresh ones drawn from a seed, and stored ones again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

from attrs import frozen

from kvgate.adapters.release_variants import reference_for_release
from kvgate.kernel.difference import Divergence
from kvgate.kernel.errors import SystemUnavailableError, UsageError
from kvgate.kernel.lockstep import Lockstep
from kvgate.kernel.monitor import Monitor
from kvgate.kernel.protocol import Factory, System
from kvgate.monitors.invariants import Invariants
from kvgate.monitors.leak import LeakMonitor
from kvgate.monitors.slot_memory import GhostMemory
from kvgate.monitors.work import Counts, WorkMonitor
from kvreference.operations import Operation
from kvreference.settings import Settings

MONITORS = ("check", "ghost", "leak", "work")
"""What judges a system without the reference."""

DETECTORS = ("lockstep", *MONITORS)
"""Everything that can find a defect: the comparison with the reference, and the monitors."""

GATE = ("lockstep", "ghost", "leak", "work")
"""What the gate uses: in lockstep a state equals one that satisfies the invariants, so ``check`` would add nothing."""


_PROTOCOL = ("population", "apply", "snapshot", "roots", "name_of")
"""What every system has; see ``kvgate.kernel.protocol``."""


@frozen
class Bench:
    """A system under test, and what judges it."""

    factory: Factory
    detectors: tuple[str, ...] = GATE
    """Among ``DETECTORS``."""

    @property
    def judges(self) -> tuple[str, ...]:
        """The detectors that can judge this system: its work only if its class says that it counts it."""
        counts = hasattr(self.factory, "count_work")
        return tuple(detector for detector in self.detectors if detector != "work" or counts)

    def set_up(self, settings: Settings) -> Lockstep:
        """A fresh system with fresh judges.

        Raises:
            UsageError: the system does not support ``settings``.
            SystemUnavailableError: it cannot be built.
        """
        monitors: list[Monitor] = []
        if "check" in self.detectors:
            monitors.append(Invariants())
        if "ghost" in self.detectors:
            monitors.append(GhostMemory(settings))
        if "leak" in self.detectors:
            monitors.append(LeakMonitor(settings))
        system = self._build(settings)
        reference = reference_for_release(system)(settings) if "lockstep" in self.detectors else None
        if "work" in self.judges:
            # Who says that it can count is asked to; the protocol of a system has no more than everybody has.
            monitors.append(WorkMonitor(settings, cast("Counts", system).count_work()))
        return Lockstep(system, reference, monitors)

    def _build(self, settings: Settings) -> System:
        try:
            system = self.factory(settings)
        except (UsageError, SystemUnavailableError):
            raise
        except ValueError as error:
            raise UsageError(f"the system does not support the settings it was given: {error}") from error
        except (Exception, SystemExit) as error:
            raise SystemUnavailableError(f"the system cannot be built: {type(error).__name__}: {error}") from error
        missing = [name for name in _PROTOCOL if not hasattr(system, name)]
        if missing:
            raise SystemUnavailableError(f"the system is not one: a {type(system).__name__} has no {missing[0]!r}")
        return system


def run(bench: Bench, settings: Settings, operations: Iterable[Operation]) -> tuple[Lockstep, Sequence[Divergence]]:
    """Perform ``operations`` until one diverges, and judge what remains. Returns the run and what it found."""
    lockstep = bench.set_up(settings)
    for operation in operations:
        divergence = lockstep.perform(operation)
        if divergence is not None:
            return lockstep, [divergence]
    return lockstep, lockstep.close()
