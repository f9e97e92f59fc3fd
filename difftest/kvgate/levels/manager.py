"""The level of a block manager alone: requests are driven as a scheduler would, without the scheduler itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, cast, get_args

from attrs import evolve, frozen

from kvgate.adapters.registry import Loaded
from kvgate.findings import explain
from kvgate.findings.modelled import reference_of
from kvgate.gate import profiles
from kvgate.gate.case_runner import Lane
from kvgate.gate.generator import DRAWN, Generator
from kvgate.gate.level import Case, Level
from kvgate.gate.shrink import OF_BLOCK_MANAGERS
from kvgate.gate.story import describe
from kvgate.gate.trace_codec import FORMAT
from kvgate.kernel.difference import Divergence
from kvgate.kernel.errors import SystemUnavailableError, UsageError
from kvgate.kernel.glance import WHOLE_EVERY
from kvgate.kernel.lockstep import Lockstep
from kvgate.kernel.monitor import Monitor
from kvgate.kernel.protocol import Factory, System
from kvgate.kernel.random_source import Draw
from kvgate.monitors.invariants import Invariants
from kvgate.monitors.leak import LeakMonitor
from kvgate.monitors.slot_memory import GhostMemory
from kvgate.monitors.work import Counts, WorkMonitor
from kvreference.operations import Admit, Arrive, Dispatch, Operation, Sample, Schedule, Transferred
from kvreference.settings import Settings

MONITORS = ("check", "ghost", "leak", "work")
"""The detectors that need no reference."""

DETECTORS = ("lockstep", *MONITORS)
"""Everything that can find a defect: the comparison with the reference, and the monitors."""

GATE = ("lockstep", "ghost", "leak", "work")
"""What the gate uses: in lockstep a state equals one that satisfies the invariants, so ``check`` would add nothing."""

_PROTOCOL = ("population", "apply", "snapshot", "roots", "name_of")
"""What every system has; see ``kvgate.kernel.protocol``."""


@frozen
class Bench:
    """A block manager under test, and the detectors that check it."""

    factory: Factory
    detectors: tuple[str, ...] = GATE
    """Among ``DETECTORS``."""
    whole_every: int = 1
    """Every how many operations the whole states are compared."""

    def glancing(self) -> Bench:
        return evolve(self, whole_every=WHOLE_EVERY)

    @property
    def level(self) -> Level:
        """That of a block manager."""
        return MANAGER

    @property
    def checkers(self) -> tuple[str, ...]:
        """The detectors that can check this system: its work only if its class says that it counts it."""
        counts = hasattr(self.factory, "count_work")
        return tuple(detector for detector in self.detectors if detector != "work" or counts)

    def build(self, case: Case) -> Lockstep:
        """A fresh system with fresh monitors, for a case."""
        return self.set_up(case.settings)

    def set_up(self, settings: Settings) -> Lockstep:
        """A fresh system with fresh monitors.

        Raises:
            UsageError: the system does not support ``settings``.
            SystemUnavailableError: it cannot be built.
        """
        system = self._system(settings)
        reference, known = reference_of(system, settings)
        monitors: list[Monitor] = []
        if "check" in self.detectors:
            monitors.append(Invariants())
        if "ghost" in self.detectors:
            monitors.append(GhostMemory(settings, known.is_known))
        if "leak" in self.detectors:
            monitors.append(LeakMonitor(settings))
        if "work" in self.checkers:
            # Counting is not part of the protocol of a system: only those that say that they count are asked to.
            monitors.append(WorkMonitor(settings, cast("Counts", system).count_work(), reference.choices.rules))
        follows = reference if "lockstep" in self.detectors else None
        return Lockstep(system, follows, monitors, known, self.whole_every)

    def _system(self, settings: Settings) -> System:
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
    """Perform ``operations`` until one diverges, and check what remains. Returns the run and what it found."""
    lockstep = bench.set_up(settings)
    for operation in operations:
        divergence = lockstep.perform(operation)
        if divergence is not None:
            return lockstep, [divergence]
    return lockstep, lockstep.close()


def draw_case(generator: Generator, lane: Lane, seed: str, campaign_seed: int) -> Case:
    """The case that a seed stands for."""
    return MANAGER.draw_with(generator, lane.model.name, lane.preset, seed, campaign_seed)


@frozen
class _Part:
    """The one block manager of a run."""

    settings: Settings
    lockstep: Lockstep
    waiting: None = None


def _drawn_alone(
    drawn: Callable[[Generator, Draw], Operation], generator: Generator, _case: Case, draw: Draw
) -> Operation:
    """An operation of a block manager, which does not depend on the case."""
    return drawn(generator, draw)


class ManagerLevel(Level):
    """A block manager alone."""

    name = "blocks"
    subject = "a block manager"
    monitors, gate, detectors = MONITORS, GATE, DETECTORS
    aftermath = ("ghost",), ("leak",)
    alphabet = get_args(Operation)
    arrival = Arrive
    needed = frozenset((Arrive, Admit, Schedule, Sample, Transferred, Dispatch))
    # A failed load is a ``Transferred`` here; only a scheduler rewinds a request that has blocks.
    drawn: Mapping[type, Callable[[Generator, Case, Draw], Operation]] = {
        kind: partial(_drawn_alone, drawn) for kind, drawn in DRAWN.items()
    }
    simpler = OF_BLOCK_MANAGERS
    not_tested = (
        "Scheduling: requests are driven as a scheduler would, without the scheduler itself (--level scheduler).",
        "Context parallelism.",
    )
    trace_called = "the trace of a block manager"
    trace_formerly = FORMAT
    trace_annotated = True
    seed_type = int

    def operations_of(self, profile: str) -> int:
        return profiles.PROFILES[profile].operations

    def label(self, preset: str) -> str:
        return preset

    def bench(self, system: Loaded, detectors: tuple[str, ...]) -> Bench:
        return Bench(system.factory, detectors)

    def parts(self, world: Lockstep, case: Case) -> tuple[_Part]:
        return (_Part(case.settings, world),)

    def explain(self, divergence: Divergence, world: Lockstep) -> str | None:
        return explain(divergence, world)

    def set_up(self, generator: Generator, draw: Draw, needs: Sequence[str] = ()) -> Case:
        """What a mutant of a block manager needs, the models that it names have."""
        del needs
        return self.case(generator.settings(draw), ())

    def weights(self, generator: Generator) -> Mapping[type, int]:
        return generator.weights

    describe = staticmethod(describe)

    def prompt_tokens(self, operation: Any) -> int:
        return sum(run.length for run in operation.prompt) if isinstance(operation, Arrive) else 0


MANAGER = ManagerLevel()
