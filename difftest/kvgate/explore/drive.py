"""Driving: the reference performs the gate's random operations, and is checked after each of them.

Here the reference is the system under test. It is checked by its own invariants, by the ghost memory, which was written
without it, and by whether a block is still held when all requests have ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import cycle

from attrs import frozen

from kvgate.adapters.reference import Reference
from kvgate.gate.case_runner import Lane
from kvgate.gate.generator import PRESETS, Generator
from kvgate.gate.level import Case
from kvgate.kernel.difference import Difference, Divergence
from kvgate.kernel.lockstep import Lockstep
from kvgate.kernel.models import Model
from kvgate.kernel.monitor import Monitor, Step
from kvgate.kernel.protocol import Factory, System
from kvgate.levels.manager import draw_case
from kvgate.monitors.invariants import Invariants
from kvgate.monitors.leak import LeakMonitor
from kvgate.monitors.slot_memory import GhostMemory
from kvreference.answers import Copies, Granted, Success
from kvreference.block_pool import NULL
from kvreference.operations import Admit, Evict, Finish, OfRequest, Sample, Schedule, Transferred


class Witness:
    """Counts what happened, so that a run in which a mechanism never acted is not taken for a test of it."""

    name = "witness"

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        self._pinned: frozenset[int] = frozenset()
        self._computed: dict[int, int] = {}
        self._in_flight: dict[int, int] = {}

    def observe(self, step: Step) -> Difference | None:
        """Count; nothing is ever wrong."""
        operation, answer, snapshot = step.operation, step.answer, step.snapshot
        if isinstance(answer, Granted):
            self.seen["hits"] += answer.hit_tokens > 0
            self.seen["external tokens"] += answer.external_tokens > 0
            self.seen["loads"] += answer.loads
            self.seen["full blocks not cached"] += 0 if answer.loads else self._blocks_not_cached(step)
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
        if isinstance(operation, (Admit, Schedule)):
            # A hit keeps the pin; what lost it without a hit was demoted, even if it was taken at once.
            self.seen["demotions"] += len(self._pinned - snapshot.pinned.blocks)
        self._pinned = frozenset(snapshot.pinned.queue)
        alive = step.population.alive.items()
        self._computed = {number: request.tokens_computed for number, request in alive}
        self._in_flight = {number: request.drafts_in_flight for number, request in alive}
        return None

    def _blocks_not_cached(self, step: Step) -> int:
        """How many blocks the step filled and did not cache, for no boundary is there that a hit could end at."""
        settings = step.population.settings
        if settings.retention_interval_tokens is None or not isinstance(step.operation, OfRequest):
            return 0
        request = step.population[step.operation.request]
        before, now = self._computed[request.number], min(request.tokens_computed, len(request.tokens))
        count = 0
        for group, table in zip(settings.geometry.groups, step.snapshot.tables[request.number], strict=True):
            size = group.block_size_tokens
            filled = table[before // size : now // size]
            count += sum(block != NULL and step.snapshot.contents[block] is None for block in filled)
        return count

    def at_rest(self, system: System) -> Iterable[Difference]:
        """Nothing."""
        del system
        return ()


class BlocksHeld(LeakMonitor):
    """Checks which blocks are held at rest; what else is remembered would take longer to find than to drive."""

    def at_rest(self, system: System) -> Iterable[Difference]:
        return self.held(system)


@frozen
class Driven:
    """What was driven, what happened on the way, and what was wrong."""

    operations: int
    cases: int
    seen: Counter[str]
    found: tuple[tuple[Divergence, Case], ...]
    """At most one: the first ends the run."""


def drive(
    models: Sequence[Model],
    operations: int,
    seed: int = 0,
    report: Callable[[int], None] = lambda _operations: None,
    factory: Factory = Reference,
) -> Driven:
    """Drive the reference on ``models`` in turn until at least ``operations`` operations were performed.

    ``factory`` may build another one, which is broken.
    """
    lanes = [Lane(model, preset) for model in models for preset in PRESETS]
    generators = [(lane, Generator(PRESETS[lane.preset], lane.model.geometry, lane.model.features)) for lane in lanes]
    performed = cases = 0
    seen: Counter[str] = Counter()
    for index, (lane, generator) in enumerate(cycle(generators)):
        case = draw_case(generator, lane, f"{seed}/{index // len(generators)}", seed)
        witness = Witness()
        monitors: list[Monitor] = [Invariants(), GhostMemory(case.settings), BlocksHeld(case.settings), witness]
        lockstep = Lockstep(factory(case.settings), None, monitors)
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
