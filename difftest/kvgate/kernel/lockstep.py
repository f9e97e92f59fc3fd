"""Lockstep: the same operations on two systems, and on the monitors, until they disagree.

Any of the parts may be absent: without the reference only the monitors check; without a system the reference is
run, and checked, alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from types import MappingProxyType
from typing import Any, Protocol

from attrs import define

from kvgate.kernel.blame import OURS, raised_in
from kvgate.kernel.comparison import Comparison
from kvgate.kernel.difference import Difference, Divergence
from kvgate.kernel.errors import UsageError
from kvgate.kernel.glance import Glance
from kvgate.kernel.monitor import Change, Monitor, Step
from kvgate.kernel.protocol import Parts, System
from kvreference.answers import Answer, Granted, Happened
from kvreference.manager import Manager
from kvreference.operations import Abort, Dispatch, OfRequest, Operation, TakeEvents, TakeStatistics, Transferred
from kvreference.population import Population
from kvreference.snapshot import Snapshot


class Known(Protocol):
    """The known findings that the reference is changed by; see ``kvgate.findings.modelled``."""

    step: int
    """The number of the operation that is performed."""
    follows: bool
    """Whether the reference follows the run."""

    def take_outside(self) -> Difference | None:
        """That a finding acted where it cannot, reported once."""
        ...


@define
class NothingKnown:
    """No finding at all."""

    step: int = 0
    follows: bool = True
    findings: tuple[Any, ...] = ()
    first: Mapping[str, Any] = MappingProxyType({})

    def take_outside(self) -> Difference | None:
        return None


def _said(operation: Operation, answer: Answer) -> bytes:
    # A system's hashes, which events have, differ from process to process.
    said: object = answer
    if isinstance(answer, Happened):
        said = [(type(event).__name__, getattr(event, "group", None)) for event in answer.events]
    return f"{type(operation).__name__} {getattr(operation, 'request', None)} {said}".encode()


class Lockstep:
    """One run. ``perform`` takes operations one by one; ``close`` ends all requests and asks what remains.

    After the first divergence nothing more can be performed: from there on the states mean nothing.

    ``whole_every`` says every how many operations the whole states are compared; in between, where that is enough, only
    what an operation may have changed (``kvgate.kernel.glance``).
    """

    def __init__(
        self,
        system: System,
        reference: Manager | None,
        monitors: Sequence[Monitor],
        known: Known | None = None,
        whole_every: int = 1,
    ) -> None:
        self.known: Any = NothingKnown() if known is None else known
        """The known findings, and how often each acted."""
        self.known.follows = reference is not None
        self.system = system
        self.reference = reference
        self.monitors = monitors
        retains = reference is not None and reference.settings.retention_interval_tokens is not None
        self.comparison = Comparison(retains)
        self.whole_every = whole_every
        self._glance: Glance | None = None
        if whole_every > 1 and reference is not None and isinstance(system, Parts) and Glance.is_enough(reference):
            self._glance = Glance(reference, system, self.comparison.correspondence)
        self.glances = self._glance is not None
        """Whether a difference may be older than the operation that shows it."""
        self.performed: list[Operation] = []
        """Every operation performed, as it was resolved."""
        self.alone = 0
        """How many of them the reference did not follow."""
        self.given = [0] * len(system.population.settings.geometry.groups)
        """Per group, how many blocks the reference has given."""
        self.answers: tuple[Answer | None, Answer | None] = (None, None)
        """The reference's answer to the last operation, and the system's."""
        self.raised: BaseException | None = None
        """What the system, or its driver, raised instead of an answer."""
        self._digest = blake2b(digest_size=8)

    @property
    def digest(self) -> str:
        """Of all operations, and what the system answered: the same for the same run in another process."""
        return self._digest.hexdigest()

    @property
    def population(self) -> Population:
        """The requests alive, as the side that is trusted has them."""
        return self.system.population if self.reference is None else self.reference.population

    def candidates(self, kind: type[Operation]) -> Sequence[int]:
        """See ``Population.candidates``."""
        return self.population.candidates(kind)

    def perform(self, operation: Operation) -> Divergence | None:
        """Perform one operation, if it stands for a legal one, and check it."""
        resolved = self.population.resolve(operation)
        return None if resolved is None else self._perform(resolved)

    def run_ahead(self, answer: Operation) -> Divergence | None:
        """The worker has an answer that the block manager does not know yet; the reference has it from ``learn``."""
        return self._perform(answer, ahead=True)

    def _perform(self, resolved: Operation, ahead: bool = False) -> Divergence | None:
        step = self.known.step = len(self.performed)
        self.performed.append(resolved)
        self.alone += self.reference is None
        expected = None
        if self.reference is not None and ahead:
            self.reference.performed += 1
        elif self.reference is not None:
            expected = self.reference.apply(resolved)
        self.answers = (expected, None)
        try:
            answer = self.system.apply(resolved)
            change, snapshot = self._look(resolved, step)
        except UsageError:
            # Not the system's fault: it was asked for what it says that it does not have.
            raise
        except (Exception, SystemExit) as error:
            # Where the reference is checked alone, it is the system.
            if raised_in(error) in OURS[: 1 + (self.reference is not None)]:
                raise
            self.raised = error
            difference = Difference("KV-SYS-01", type(error).__name__, "an answer", f"{type(error).__name__}: {error}")
            return Divergence(step, resolved, "lockstep" if self.reference else "check", difference)
        self.answers = (expected, answer)
        self._digest.update(_said(resolved, answer))
        found: Difference | None = None
        if self.reference is not None and expected is not None:
            if isinstance(expected, Granted):
                self.given = [had + len(blocks) for had, blocks in zip(self.given, expected.blocks, strict=True)]
            found = self.comparison.of_answers(resolved, expected, answer)
            if found is None and snapshot is not None:
                found = self.comparison.of_states(resolved, self.reference.snapshot(), snapshot)
            found = found or self.known.take_outside()
            if found:
                return Divergence(step, resolved, "lockstep", found)
        seen = Step(resolved, answer, snapshot, self.system.population, self.system, change)
        for monitor in self.monitors:
            found = monitor.observe(seen)
            if found:
                return Divergence(step, resolved, monitor.name, found)
        return None

    def learn(self, operation: Operation) -> Divergence | None:
        """The block manager has done something that is not an operation of the system: the reference does it, and is
        compared."""
        if self.reference is None:
            return None
        self.known.step = len(self.performed)
        answer = self.reference.choices.perform(self.reference, operation)
        self._digest.update(_said(operation, answer))
        found = self.comparison.of_states(operation, self.reference.snapshot(), self.system.snapshot())
        found = found or self.known.take_outside()
        return None if found is None else Divergence(len(self.performed), operation, "lockstep", found)

    def _look(self, operation: Operation, step: int) -> tuple[Change | None, Snapshot | None]:
        """What the operation changed, if that is followed; and the whole state, if it is to be compared."""
        if self._glance is None:
            return None, self.system.snapshot()
        change, is_same = self._glance.look(operation)
        is_due = not is_same or step % self.whole_every == self.whole_every - 1
        return change, self.system.snapshot() if is_due else None

    def close(self, counts: bool = True) -> list[Divergence]:
        """End every request, and check what remains. Several things may remain, each is reported.

        ``counts``: whether the system keeps statistics, which are taken then.
        """
        self._glance = None
        alive = list(self.population.alive)
        closings: list[Operation] = [Dispatch(), *map(Abort, alive)]
        taking = (TakeEvents(), TakeStatistics()) if counts else (TakeEvents(),)
        for closing in (*closings, *map(Transferred, alive), *taking):
            # What is over already must not stand for another request.
            if isinstance(closing, OfRequest) and closing.request not in self.population.alive:
                continue
            divergence = self.perform(closing)
            if divergence:
                return [divergence]
        return [
            Divergence(len(self.performed), None, monitor.name, difference)
            for monitor in self.monitors
            for difference in monitor.at_rest(self.system)
        ]
