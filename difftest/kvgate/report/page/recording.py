"""A run written down: what both sides answered and how they stood, operation by operation.

A case is performed once more, for a divergence is data that does not hold the states it was found in. The recorder
stands between a lockstep and its system, so it records every driver of the lockstep: a stored case or a scheduler.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TypeAlias, cast

from attrs import frozen

from kvgate.adapters.registry import Loaded
from kvgate.adapters.release_variants import NewReference
from kvgate.findings.modelled import reference_of
from kvgate.gate.case_runner import run_case
from kvgate.gate.level import Bench, Case
from kvgate.gate.verdict import Found
from kvgate.kernel.comparison import Correspondence
from kvgate.kernel.difference import Divergence
from kvgate.kernel.lockstep import Lockstep
from kvgate.kernel.protocol import System
from kvgate.kernel.text import counted
from kvgate.monitors.wait_graph import WaitFor
from kvreference.answers import Answer
from kvreference.cached_map import Content
from kvreference.content import Prefix
from kvreference.manager import Manager
from kvreference.operations import Arrive, Continue, Operation, Sample, TakeStatistics
from kvreference.population import Population, Status
from kvreference.settings import Settings
from kvreference.snapshot import Snapshot

FRAMES_MAX = 300
"""How many of the last operations are recorded with their states."""
CELLS_MAX = 1_000_000
"""How many blocks, over all operations, are recorded: fewer operations of a large pool."""


@frozen(order=True)
class Named:
    """What a block holds."""

    group: int
    request: int
    """Who had it first; -1 if only the system knows it."""
    tokens: int
    """How many of that request's first tokens it stands for; a number of its own if only the system knows it."""


class Names:
    """The names given in one run."""

    def __init__(self) -> None:
        self._owners: dict[Prefix, int] = {}
        self._related = Correspondence()
        self._strangers: dict[Hashable, Named] = {}
        """What only the system knows."""
        self._before: tuple[Sequence[Hashable], Sequence[Hashable]] = (), ()
        # Most operations leave all contents alone.
        self._in_reference: tuple[Sequence[Hashable], tuple[Named | None, ...]] = (), ()
        self._in_system: tuple[Sequence[Hashable], tuple[Named | None, ...]] = (), ()

    def arrived(self, reference: Manager, request: int) -> None:
        """``request`` has tokens that it did not have before."""
        for prefix in reversed(reference.prefixes.get(request, [])):
            if prefix in self._owners:
                return
            self._owners[prefix] = request

    def of(self, content: Content) -> Named:
        """The name of a content of the reference."""
        group, prefix = content
        return Named(group, self._owners.get(prefix, -1), prefix.tokens)

    def relate(self, ours: Snapshot, theirs: Snapshot) -> None:
        """Two states of the same step: what appears in the same block for the first time is the same."""
        now = (ours.contents, theirs.contents)
        if now == self._before:
            return
        self._before = (ours.contents, list(theirs.contents))
        for mine, other in zip(ours.contents, theirs.contents, strict=False):
            if mine is not None and other is not None:
                self._related.relate(mine, other)

    def in_reference(self, snapshot: Snapshot) -> tuple[Named | None, ...]:
        """What each block of the reference holds."""
        if self._in_reference[0] != snapshot.contents:
            contents = cast("Sequence[Content | None]", snapshot.contents)
            named = tuple(None if content is None else self.of(content) for content in contents)
            self._in_reference = snapshot.contents, named
        return self._in_reference[1]

    def in_system(self, snapshot: Snapshot) -> tuple[Named | None, ...]:
        """What each block of the system holds."""
        if self._in_system[0] != snapshot.contents:
            # Copied, for the next operation may change what a system returned.
            self._in_system = list(snapshot.contents), tuple(map(self._named, snapshot.contents))
        return self._in_system[1]

    def _named(self, identity: Hashable | None) -> Named | None:
        if identity is None:
            return None
        if identity in self._strangers:
            return self._strangers[identity]
        try:
            return self.of(cast("Content", self._related.ours(identity)))
        except KeyError:
            return self._strangers.setdefault(identity, Named(-1, -1, len(self._strangers)))


def describe_content(name: Named | None) -> str:
    """What a block holds, in words."""
    if name is None:
        return "nothing known"
    if name.request < 0:
        return f"content #{name.tokens}, which the reference does not have"
    return f"the first {counted(name.tokens, 'token')} of request {name.request}, group {name.group}"


@frozen
class Side:
    """What one side answered, and how it stood afterwards."""

    answer: Answer | None
    raised: str = ""
    """What it raised instead of answering."""
    snapshot: Snapshot | None = None
    contents: tuple[Named | None, ...] = ()
    """Per block, what it holds."""


@frozen
class Standing:
    """Where a request stands."""

    status: Status
    tokens: int
    tokens_computed: int
    preemptions: int


@frozen
class Frame:
    """One operation."""

    index: int
    operation: Operation
    reference: Side | None
    """None where the system does what the reference cannot follow."""
    system: Side
    requests: Mapping[int, Standing]
    """Those alive, after the operation."""


@frozen
class Recording:
    """A run, as far as it is recorded."""

    settings: Settings
    operations: tuple[Operation, ...]
    """All that were performed."""
    frames: tuple[Frame, ...]
    """The last of them, with their states."""
    divergences: tuple[Divergence, ...]
    """What was found while it was recorded."""
    waiting: WaitFor | None = None
    """Who waited for whom when a scheduler hung."""
    new_reference: NewReference = Manager
    """Builds the reference that it was compared with, which has the choices of the release."""

    @property
    def left_out(self) -> int:
        """How many operations at the beginning are not recorded."""
        return len(self.operations) - len(self.frames)


class Recorder:
    """Writes down what happens in one lockstep, from now on.

    Where the lockstep has no reference, ``follows`` says whether one is to follow for the eyes of the reader.
    """

    def __init__(self, lockstep: Lockstep, settings: Settings, follows: bool = True) -> None:
        self.lockstep = lockstep
        self.settings = settings
        self.names = Names()
        system = lockstep.system
        self._new_reference: NewReference = lambda settings: reference_of(system, settings)[0]
        self._own = self._new_reference(settings) if lockstep.reference is None and follows else None
        self._frames: deque[Frame] = deque(maxlen=max(2, min(FRAMES_MAX, CELLS_MAX // settings.blocks)))
        self._now: tuple[Operation, Answer | None] | None = None
        self._expected: Answer | None = None
        self.system = lockstep.system
        lockstep.system = Watched(self.system, self)

    @property
    def _reference(self) -> Manager | None:
        """The lockstep's, which may be dropped on the way, or one that follows next to it."""
        return self.lockstep.reference or self._own

    def recording(self, divergences: Sequence[Divergence] = (), waiting: WaitFor | None = None) -> Recording:
        """What was recorded so far."""
        operations = tuple(self.lockstep.performed)
        return Recording(
            self.settings, operations, tuple(self._frames), tuple(divergences), waiting, self._new_reference
        )

    def begins(self, operation: Operation) -> None:
        """The system is about to perform an operation, which the lockstep's reference has performed."""
        self._expected = self.lockstep.answers[0]
        own = self._own
        if own is not None and own.population.resolve(operation) != operation:
            own = self._own = None
        if own is not None:
            self._expected = own.apply(operation)
        if self._reference is not None and isinstance(operation, (Arrive, Sample, Continue)):
            self.names.arrived(self._reference, operation.request)
        self._now = (operation, None)

    def answered(self, operation: Operation, answer: Answer) -> None:
        """The system has performed it."""
        self._now = (operation, answer)

    def raised(self, error: BaseException) -> None:
        """The system did not."""
        if self._now is not None:
            self._keep(Side(self._now[1], f"{type(error).__name__}: {error}"), None)

    def stands(self, snapshot: Snapshot) -> None:
        """How the system stands; asked for once after an operation, and again by the checks at rest."""
        if self._now is not None:
            self._keep(Side(self._now[1]), snapshot)

    def _keep(self, theirs: Side, snapshot: Snapshot | None) -> None:
        assert self._now is not None, "something was performed"
        operation, reference = self._now[0], self._reference
        self._now = None
        ours = None
        if reference is not None:
            state = reference.snapshot()
            if snapshot is not None:
                self.names.relate(state, snapshot)
            ours = Side(self._expected, "", state, self.names.in_reference(state))
        if snapshot is not None:
            theirs = Side(theirs.answer, theirs.raised, snapshot, self.names.in_system(snapshot))
        population = self.system.population if reference is None else reference.population
        self._frames.append(Frame(len(self.lockstep.performed) - 1, operation, ours, theirs, _standings(population)))


def _standings(population: Population) -> dict[int, Standing]:
    return {
        number: Standing(request.status, len(request.tokens), request.tokens_computed, request.preemptions)
        for number, request in population.alive.items()
    }


class Watched:
    """A system that a recorder listens to."""

    def __init__(self, system: System, recorder: Recorder) -> None:
        self._system = system
        self._recorder = recorder

    @property
    def population(self) -> Population:
        """The system's own."""
        return self._system.population

    @population.setter
    def population(self, population: Population) -> None:
        self._system.population = population

    def apply(self, operation: Operation) -> Answer:
        """What the system answers."""
        self._recorder.begins(operation)
        try:
            answer = self._system.apply(operation)
        except (Exception, SystemExit) as error:
            self._recorder.raised(error)
            raise
        self._recorder.answered(operation, answer)
        return answer

    def snapshot(self) -> Snapshot:
        """How the system stands."""
        try:
            snapshot = self._system.snapshot()
        except (Exception, SystemExit) as error:
            self._recorder.raised(error)
            raise
        self._recorder.stands(snapshot)
        return snapshot

    def roots(self) -> Mapping[str, object]:
        """The system's own."""
        return self._system.roots()

    def name_of(self, request: int) -> str:
        """The system's own."""
        return self._system.name_of(request)


def record(bench: Bench, case: Case) -> Recording:
    """Perform a case once more, and write down the block manager on which something is found.

    If schedulers drive it and the reference stops following, the page shows only the system from there on.
    """
    level, index = case.level, 0
    if level.is_divided:
        # Only a run shows on which of them.
        first = run_case(bench, case)
        index = level.part_of(first.world, first.divergences[0] if first.divergences else None)
    world = bench.build(case)
    part = level.parts(world, case)[index]
    recorder = Recorder(part.lockstep, part.settings, follows=level.stage_type is None)
    for operation in case.operations:
        found = world.perform(operation)
        if found is not None:
            return recorder.recording([found], part.waiting)
    if not part.lockstep.population.alive and case.operations[-1:] == (TakeStatistics(),):
        # It was closed when it was found: to close it again would only append to what is shown.
        return recorder.recording(at_rest(part.lockstep))
    found_at_end = world.close()
    return recorder.recording(found_at_end, part.waiting)


def at_rest(lockstep: Lockstep) -> list[Divergence]:
    """What remains, now that no request is alive."""
    return [
        Divergence(len(lockstep.performed), None, monitor.name, difference)
        for monitor in lockstep.monitors
        for difference in monitor.at_rest(lockstep.system)
    ]


def perform(system: Loaded, detectors: tuple[str, ...], case: Case) -> Recording:
    """A case of any level on ``system``, checked by those of ``detectors`` that its level has."""
    return record(case.level.bench(system, tuple(each for each in detectors if each in case.level.detectors)), case)


Record: TypeAlias = Callable[[Found], Recording]
"""Performs once more what was found."""


def once_more(system: Loaded, detectors: tuple[str, ...]) -> Record:
    """How to perform what ``detectors`` found on ``system``."""
    return lambda found: perform(system, detectors, found.replayable)
