"""Single runs, and what checks them.

Goal: a bench checks with the given detectors and no others, and a system that cannot be built is distinguished from one
that fails. Method: systems that each one detector alone can see, and factories that raise.
"""

from __future__ import annotations

import pytest

from kvgate.adapters.reference import Reference
from kvgate.kernel.errors import SystemUnavailableError, UsageError
from kvgate.levels.manager import DETECTORS, GATE, MONITORS, Bench, run
from kvgate.monitors.invariants import Invariants
from kvgate.monitors.leak import LeakMonitor
from kvgate.monitors.slot_memory import GhostMemory
from kvgate.monitors.work import Work, WorkMonitor
from kvreference.answers import Answer
from kvreference.attention import Kind
from kvreference.geometry import Geometry, Group
from kvreference.operations import Admit, Arrive, Finish, Operation, Run
from kvreference.settings import Settings

SETTINGS = Settings(Geometry((Group(Kind.FULL, 4),)), blocks=16)
OPERATIONS: tuple[Operation, ...] = (Arrive(0, (Run(0, 9),)), Admit(0, 64), Finish(0))


class Counting(Reference):
    """The reference with a meter, which says that it does nothing."""

    def count_work(self) -> Counting:
        return self

    def take(self) -> Work:
        return Work(0, (0,), 0, 0)


@pytest.mark.parametrize("detector", DETECTORS)
def test_each_detector_can_check_alone(detector: str) -> None:
    """The reference, or one monitor."""
    bench = Bench(Counting, (detector,))
    lockstep = bench.set_up(SETTINGS)
    assert (detector == "lockstep") == (lockstep.reference is not None)
    assert [monitor for monitor in MONITORS if monitor == detector] == [each.name for each in lockstep.monitors]
    _, divergences = run(bench, SETTINGS, OPERATIONS)
    assert [] == divergences


def test_all_detectors_check_together() -> None:
    """In one order, however they are asked for."""
    lockstep = Bench(Counting, tuple(reversed(DETECTORS))).set_up(SETTINGS)
    assert lockstep.reference is not None
    assert [Invariants, GhostMemory, LeakMonitor, WorkMonitor] == list(map(type, lockstep.monitors))
    assert set(GATE) <= set(DETECTORS)


def test_a_system_without_a_meter_does_not_count() -> None:
    """A report claims what checked: a system without a meter has no checked work."""
    assert (GATE, GATE[:-1]) == (Bench(Counting).checkers, Bench(Reference).checkers)
    assert "work" not in [each.name for each in Bench(Reference).set_up(SETTINGS).monitors]


def test_a_bench_builds_a_fresh_system_for_every_run() -> None:
    """And fresh checkers: nothing of one case is left in the next."""
    bench = Bench(Reference)
    first, second = bench.set_up(SETTINGS), bench.set_up(SETTINGS)
    assert first.system is not second.system
    assert not set(map(id, first.monitors)) & set(map(id, second.monitors))


class LosesBlocks(Reference):
    """A finished request keeps its blocks, and is forgotten."""

    def apply(self, operation: Operation) -> Answer:
        if isinstance(operation, Finish):
            self.tables[operation.request] = []
        return super().apply(operation)


@pytest.mark.parametrize(
    ("detector", "statement"), [("lockstep", "KV-INV-01"), ("check", "KV-INV-01"), ("leak", "KV-LEAK-01")]
)
def test_a_run_ends_at_the_first_divergence(detector: str, statement: str) -> None:
    """In the middle or at rest, as the detector has it."""
    lockstep, divergences = run(Bench(LosesBlocks, (detector,)), SETTINGS, (*OPERATIONS, Arrive(1, (Run(0, 9),))))
    assert [(detector, statement)] == [(each.detector, each.difference.statement) for each in divergences]
    assert (len(lockstep.performed) == 3) == (detector != "leak")


REFUSALS: dict[str, tuple[BaseException, type[Exception], str]] = {
    "settings": (ValueError("no windows here"), UsageError, "does not support the settings .*: no windows here"),
    "own words": (UsageError("set X"), UsageError, "^set X$"),
    "not there": (SystemUnavailableError("install X"), SystemUnavailableError, "^install X$"),
    "a fault": (AssertionError("x < y"), SystemUnavailableError, "cannot be built: AssertionError: x < y"),
    "the way out": (SystemExit(0), SystemUnavailableError, "cannot be built: SystemExit: 0"),
}


@pytest.mark.parametrize(("error", "expected", "message"), REFUSALS.values(), ids=REFUSALS)
def test_a_system_that_cannot_be_built_says_why(error: BaseException, expected: type[Exception], message: str) -> None:
    """The user can change settings that it does not support; any other error means that the system is missing."""

    def factory(_settings: Settings) -> Reference:
        raise error

    with pytest.raises(expected, match=message):
        Bench(factory).set_up(SETTINGS)


def test_an_interrupt_while_a_system_is_built_is_let_through() -> None:
    """It is the user's."""

    def factory(_settings: Settings) -> Reference:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Bench(factory).set_up(SETTINGS)
