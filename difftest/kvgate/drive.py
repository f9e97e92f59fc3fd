"""Driving: the reference alone, with the gate's random operations, judged after each of them.

Here the reference is the system under test. What judges it is its own invariants, and the ghost memory, which was
written without it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import cycle

from attrs import frozen

from kvgate.adapters.reference import Reference
from kvgate.campaign import Lane, draw_case
from kvgate.case import Case
from kvgate.difference import Difference, Divergence
from kvgate.generators import PRESETS, Generator
from kvgate.lockstep import Lockstep
from kvgate.models import Model
from kvgate.monitors.ghost import GhostMemory
from kvgate.monitors.invariants import Invariants
from kvgate.monitors.monitor import Step
from kvgate.system import System
from kvreference.answers import Copies, Granted, Success
from kvreference.operations import Evict, Finish, Sample, Transferred


class Witness:
    """Counts what happened, so that a run in which a mechanism never acted is not taken for a test of it."""

    name = "witness"

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        self._pinned: frozenset[int] = frozenset()
        self._in_flight: dict[int, int] = {}

    def observe(self, step: Step) -> Difference | None:
        """Count; nothing is ever wrong."""
        operation, answer, snapshot = step.operation, step.answer, step.snapshot
        if isinstance(answer, Granted):
            self.seen["hits"] += answer.hit_tokens > 0
            self.seen["external tokens"] += answer.external_tokens > 0
            self.seen["loads"] += answer.loads
        elif isinstance(answer, Copies):
            self.seen["copies"] += len(answer.copies)
        elif isinstance(operation, Transferred):
            self.seen["failed loads"] += not operation.succeeded and operation.request in step.population.alive
        elif isinstance(operation, Finish):
            self.seen["sends"] += operation.sends
        elif isinstance(operation, Evict):
            self.seen["evictions by id"] += 1
        elif isinstance(answer, Success):
            self.seen["resets"] += answer.succeeded
        elif isinstance(operation, Sample):
            self.seen["drafts accepted"] += operation.accepted > 0
            self.seen["drafts rejected"] += operation.accepted < self._in_flight.get(operation.request, 0)
        self.seen["shared blocks"] += max(snapshot.references) > 1
        self.seen["pinned blocks"] += bool(snapshot.pinned.queue)
        waiting = set(snapshot.pinned.queue)
        self.seen["demotions"] += sum(
            block not in waiting and snapshot.references[block] == 0 for block in self._pinned
        )
        self._pinned = frozenset(waiting)
        self._in_flight = {number: request.drafts_in_flight for number, request in step.population.alive.items()}
        return None

    def at_rest(self, system: System) -> Iterable[Difference]:
        """Nothing."""
        del system
        return ()


@frozen
class Driven:
    """What was driven, what happened on the way, and what was wrong."""

    operations: int
    cases: int
    seen: Counter[str]
    found: tuple[tuple[Divergence, Case], ...]
    """At most one: the first ends the run."""


def drive(
    models: Sequence[Model], operations: int, seed: int = 0, report: Callable[[int], None] = lambda _operations: None
) -> Driven:
    """Drive the reference on ``models`` in turn until at least ``operations`` operations were performed."""
    lanes = [Lane(model, preset) for model in models for preset in PRESETS]
    generators = [(lane, Generator(PRESETS[lane.preset], lane.model.geometry, lane.model.features)) for lane in lanes]
    performed = cases = 0
    seen: Counter[str] = Counter()
    for index, (lane, generator) in enumerate(cycle(generators)):
        case = draw_case(generator, lane, f"{seed}/{index // len(generators)}", seed)
        witness = Witness()
        lockstep = Lockstep(Reference(case.settings), None, [Invariants(), GhostMemory(case.settings), witness])
        found = _run(lockstep, case)
        performed += len(lockstep.performed)
        cases += 1
        seen += witness.seen
        report(performed)
        if found:
            return Driven(performed, cases, seen, tuple((divergence, case) for divergence in found))
        if performed >= operations:
            break
    return Driven(performed, cases, seen, ())


def _run(lockstep: Lockstep, case: Case) -> Sequence[Divergence]:
    for operation in case.operations:
        divergence = lockstep.perform(operation)
        if divergence is not None:
            return [divergence]
    return lockstep.close()
