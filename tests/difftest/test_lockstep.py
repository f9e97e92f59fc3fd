"""The lockstep: the same operations on two systems until they disagree.

Goal: every fault of a system is seen, and a sound one raises no alarm. Method: the reference in lockstep with itself is
the control; subclasses of it with one injected fault each are found at the operation that shows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest
from attrs import evolve

from kvgate.adapters.reference import Reference
from kvgate.kernel.difference import Difference, Divergence
from kvgate.kernel.errors import UsageError
from kvgate.kernel.lockstep import Lockstep
from kvgate.kernel.monitor import Step
from kvgate.kernel.protocol import System
from kvgate.monitors.leak import LeakMonitor
from kvreference.answers import Answer, Granted
from kvreference.attention import Kind
from kvreference.geometry import Geometry, Group
from kvreference.manager import Manager
from kvreference.operations import (
    Abort,
    Admit,
    Arrive,
    Dispatch,
    Evict,
    Finish,
    LookUp,
    Operation,
    Reset,
    Run,
    Sample,
    Schedule,
    TakeEvents,
    TakeStatistics,
    Transferred,
)
from kvreference.population import Status
from kvreference.prefix_cache import PrefixCache
from kvreference.retention import Dense
from kvreference.settings import Settings
from kvreference.snapshot import Snapshot

SETTINGS = Settings(Geometry((Group(Kind.FULL, 4), Group(Kind.SLIDING_WINDOW, 4, window_tokens=6))), blocks=24)
PROMPT = (Run(0, 12),)


class Witness:
    """A monitor that sees everything and finds what a test sets."""

    name = "witness"

    def __init__(self, finds_at: int | None = None, at_rest: tuple[str, ...] = ()) -> None:
        self.seen: list[Step] = []
        self._finds_at = finds_at
        self._at_rest = at_rest

    def observe(self, step: Step) -> Difference | None:
        self.seen.append(step)
        return self._difference("state") if len(self.seen) - 1 == self._finds_at else None

    def at_rest(self, system: System) -> Iterable[Difference]:
        assert not system.population.alive
        return [self._difference(subject) for subject in self._at_rest]

    def _difference(self, subject: str) -> Difference:
        return Difference("KV-LEAK-01", subject, "nothing", "something")


class Raises(Reference):
    """Fails at the first look-up."""

    error: BaseException = ZeroDivisionError("by nothing")

    def apply(self, operation: Operation) -> Answer:
        if isinstance(operation, LookUp):
            raise self.error
        return super().apply(operation)


class Unobservable(Reference):
    """Cannot be inspected once it has a request."""

    def snapshot(self) -> Snapshot:
        if self.population.alive:
            raise LookupError("no snapshot")
        return super().snapshot()


class ForgetsToRelease(Reference):
    """Loses the blocks of an aborted request."""

    def apply(self, operation: Operation) -> Answer:
        if isinstance(operation, Abort):
            self.tables[operation.request] = []
        return super().apply(operation)


class LiesAboutTheHit(Reference):
    """Says that a hit was used when none was."""

    def apply(self, operation: Operation) -> Answer:
        answer = super().apply(operation)
        return Granted(4, answer.blocks) if isinstance(answer, Granted) else answer


def lockstep(system: type[Reference], *monitors: Witness, checked: bool = True) -> Lockstep:
    """A run of one system, checked by the reference or by ``monitors`` alone."""
    return Lockstep(system(SETTINGS), Manager(SETTINGS) if checked else None, monitors)


def first(run: Lockstep, *operations: Operation) -> Divergence | None:
    """The first divergence."""
    return next(filter(None, map(run.perform, operations)), None)


def test_a_sound_system_does_not_diverge() -> None:
    """The control: every answer and every state is the same, and nothing remains."""
    witness = Witness()
    run = lockstep(Reference, witness)
    assert first(run, Arrive(0, PROMPT), LookUp(0), Admit(0, 64), Sample(0, 0, 9, 0), Schedule(0, 1)) is None
    assert [] == run.close()
    assert [Abort(0), TakeEvents(), TakeStatistics()] == run.performed[5:]
    assert run.performed == [step.operation for step in witness.seen]


def test_operations_that_stand_for_none_are_passed_over() -> None:
    """They are neither performed nor seen by a monitor; the next legal one is."""
    witness = Witness()
    run = lockstep(Reference, witness)
    assert first(run, Finish(0), Admit(3, 1), Schedule(0, 1), LookUp(7)) is None
    assert ([], []) == (run.performed, witness.seen)
    assert run.perform(Arrive(0, PROMPT)) is None
    assert [Arrive(0, PROMPT)] == run.performed


def test_operations_are_performed_as_they_are_resolved() -> None:
    """A number that does not fit stands for one that does."""
    run = lockstep(Reference)
    assert first(run, Arrive(0, PROMPT), Admit(7, 64), Evict(25)) is None
    assert [Arrive(0, PROMPT), Admit(0, 64), Evict(2)] == run.performed


@pytest.mark.parametrize("checked", [True, False], ids=["by the reference", "by monitors"])
@pytest.mark.parametrize("error", [ZeroDivisionError("by nothing"), SystemExit(0), AssertionError()], ids=repr)
def test_a_system_that_raises_violates_its_first_duty(
    error: BaseException, checked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For any exception: a system that ends the process would otherwise end the gate, with an exit code of its own."""
    monkeypatch.setattr(Raises, "error", error)
    run = lockstep(Raises, checked=checked)
    name = type(error).__name__
    difference = Difference("KV-SYS-01", name, "an answer", f"{name}: {error}")
    assert Divergence(1, LookUp(0), "lockstep" if checked else "check", difference) == first(
        run, Arrive(0, PROMPT), LookUp(0)
    )


def test_an_interrupt_is_not_the_systems_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt is passed on."""
    monkeypatch.setattr(Raises, "error", KeyboardInterrupt())
    run = lockstep(Raises)
    with pytest.raises(KeyboardInterrupt):
        first(run, Arrive(0, PROMPT), LookUp(0))


def test_an_operation_that_a_system_does_not_support_is_not_its_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its exception is passed on to the caller."""
    monkeypatch.setattr(Raises, "error", UsageError("no look-ups here"))
    run = lockstep(Raises)
    with pytest.raises(UsageError, match=r"^no look-ups here$"):
        first(run, Arrive(0, PROMPT), LookUp(0))


def test_a_state_that_cannot_be_seen_is_found() -> None:
    """Looking is part of the operation; nothing is known of an answer then."""
    run = lockstep(Unobservable)
    found = run.perform(Arrive(0, PROMPT))
    assert found is not None
    assert ("KV-SYS-01", "LookupError") == (found.difference.statement, found.difference.subject)
    assert run.answers[1] is None


def test_an_answer_is_compared_before_the_state() -> None:
    """The answer comes first and is reported first; both answers can be read."""
    run = lockstep(LiesAboutTheHit)
    found = first(run, Arrive(0, PROMPT), Admit(0, 64))
    assert found is not None
    assert ("lockstep", 1, "KV-OP-01") == (found.detector, found.step, found.difference.statement)
    assert [Granted(0, ((1, 2, 3), (4, 5, 6))), Granted(4, ((1, 2, 3), (4, 5, 6)))] == list(run.answers)


def test_a_state_is_compared_after_every_operation() -> None:
    """Here after the request has ended: its blocks are free on one side only."""
    found = first(lockstep(ForgetsToRelease), Arrive(0, PROMPT), Admit(0, 64), Abort(0))
    assert found is not None
    assert Difference("KV-INV-01", "references of block 1", "0", "1") == found.difference


def test_a_monitor_is_asked_where_the_reference_agrees() -> None:
    """And it is the monitor that is named."""
    run = lockstep(Reference, Witness(), Witness(finds_at=1))
    found = first(run, Arrive(0, PROMPT), LookUp(0), Reset())
    assert Divergence(1, LookUp(0), "witness", Difference("KV-LEAK-01", "state", "nothing", "something")) == found


def test_monitors_check_without_the_reference() -> None:
    """A difference from the reference passes, and the population is the system's own."""
    witness = Witness()
    run = lockstep(LiesAboutTheHit, witness, checked=False)
    assert first(run, Arrive(0, (Run(0, 3),)), Admit(0, 64)) is None
    assert run.population is run.system.population
    assert run.answers[0] is None


def test_at_rest_everything_that_remains_is_reported() -> None:
    """Every difference of every monitor, after the last operation."""
    run = lockstep(Reference, Witness(at_rest=("one", "two")), Witness(at_rest=("three",)))
    assert run.perform(Arrive(0, PROMPT)) is None
    found = run.close()
    assert ["one", "two", "three"] == [divergence.difference.subject for divergence in found]
    assert {(4, None)} == {(divergence.step, divergence.operation) for divergence in found}


FENCED = evolve(SETTINGS, geometry=Geometry((Group(Kind.FULL, 8, compress_ratio=2, unit_tokens=2),)), blocks=60)
EVERYWHERE: tuple[Operation, ...] = (
    *(Arrive(number, (Run(100 * number, 12),)) for number in range(7)),
    *(Admit(number, 64) for number in (0, 1, 2)),
    *(Admit(number, 64, external_tokens=12, loads=True) for number in (3, 4)),
    Dispatch(),
    *(Finish(0, sends=True), Abort(3)),
    Admit(5, 64, external_tokens=12, loads=True),
    Sample(1, 0, 9, 0),
    Schedule(1, 1),
)
"""Request 0 ends while it is read and 3 while it loads, 4 loads, 2 runs, 6 waits; 1 and 5 are in a step that was not
dispatched."""


def test_requests_end_wherever_they_stand() -> None:
    """The step is dispatched first, then all are aborted, and then every transfer is over: nothing remains."""
    witness = Witness()
    run = Lockstep(Reference(FENCED), Manager(FENCED), (witness, LeakMonitor(FENCED)))
    assert first(run, *EVERYWHERE) is None
    assert list(EVERYWHERE) == run.performed
    stand = {number: (request.status, request.undispatched) for number, request in run.population.alive.items()}
    assert {
        0: (Status.ENDING, False),
        1: (Status.RUNNING, True),
        2: (Status.RUNNING, False),
        3: (Status.ENDING, False),
        4: (Status.LOADING, False),
        5: (Status.LOADING, True),
        6: (Status.WAITING, False),
    } == stand
    assert [] == run.close()
    closings = run.performed[len(EVERYWHERE) :]
    assert Dispatch() == closings[0]
    assert {Abort(number) for number in (1, 2, 4, 5, 6)} == set(closings[1:6])
    over = [Transferred(number) for number in (0, 3, 4, 5)]
    assert [*over, TakeEvents(), TakeStatistics()] == closings[6:]
    assert not run.system.population.alive


def test_nothing_is_dispatched_where_there_is_nothing_to_dispatch() -> None:
    """Transfers end there as well."""
    run = lockstep(Reference, Witness())
    loads = Admit(0, 64, external_tokens=12, loads=True)
    assert first(run, Arrive(0, PROMPT), loads, Arrive(1, PROMPT), Admit(1, 64), Finish(1, sends=True)) is None
    assert [] == run.close()
    assert [Abort(0), Transferred(0), Transferred(1), TakeEvents(), TakeStatistics()] == run.performed[5:]


class CachesEverything(Reference):
    """Ignores the retention interval."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.cache = PrefixCache(settings.geometry, Dense(settings.geometry))


def test_what_is_cached_is_checked_by_the_guarantee_for_these_settings() -> None:
    """With a retention interval it is another one than without."""
    settings = evolve(SETTINGS, retention_interval_tokens=16)
    run = Lockstep(CachesEverything(settings), Manager(settings), ())
    found = first(run, Arrive(0, (Run(0, 30),)), Admit(0, 64))
    assert found is not None
    assert ("KV-OP-15", "content of block 9") == (found.difference.statement, found.difference.subject)
    assert first(lockstep(CachesEverything), Arrive(0, (Run(0, 30),)), Admit(0, 64)) is None


def test_what_diverges_while_requests_end_is_reported_alone() -> None:
    """What monitors would report of a wrong state means nothing."""
    run = lockstep(ForgetsToRelease, Witness(at_rest=("one",)))
    assert first(run, Arrive(0, PROMPT), Admit(0, 64)) is None
    assert ["KV-INV-01"] == [divergence.difference.statement for divergence in run.close()]


def test_the_reference_speaks_the_protocol() -> None:
    """The type checker accepts it as a system; its roots hold its state, and its names distinguish requests."""
    system: System = Reference(SETTINGS)
    roots: Mapping[str, object] = system.roots()
    assert {"tables", "pool", "prefixes"} == set(roots)
    assert "3" == system.name_of(3)
