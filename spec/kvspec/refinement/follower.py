"""A follower: runs the transitions next to a manager, and reports where the two differ.

After every operation, each recorded call must be a transition that can happen in the state so far and that such an
operation may consist of. The resulting state must be the manager's, map by map. The transitions that such an operation
requires must have happened. The invariants must hold for each block that was touched; the other blocks are as before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

from attrs import evolve

from kvreference.ahead import tokens_answered
from kvreference.answers import Answer, Granted
from kvreference.block_pool import NULL
from kvreference.cached_map import Content
from kvreference.manager import Manager
from kvreference.operations import Dispatch, OfRequest, Operation, Sample, Transferred
from kvreference.population import Request, Status
from kvspec.maps import entries_of
from kvspec.pool.invariants import INVARIANTS, About, Point
from kvspec.pool.state import FREE, MAPS, WAITING, Operands, State, Transition
from kvspec.pool.transitions import Compute, Computed, Drop, Overwrite, Reset, TakeBack, Use, Used
from kvspec.refinement.picture import FOLLOWED, Entry, Parts, Picture, counted, picture
from kvspec.refinement.recording import Call, Did, RecordedPool, record
from kvspec.refinement.requirements import (
    Due,
    Progress,
    computed_before,
    due,
    missing,
    progress_after,
    retention_of,
)
from kvspec.refinement.step import Drift, ForeignPrefixError, Labelled, Labels, Step, UnexplainedError
from kvspec.simulation import SIMULATION


class Follower:
    """Follows one manager from a state in which no block is held."""

    def __init__(self, manager: Manager, tally: Counter[str] | None = None) -> None:
        assert not manager.tables, "no block may be held yet"
        record(manager.holdings)
        begin = picture(manager)
        self.now = evolve(begin, state=evolve(begin.state, part=Parts.of(manager.settings)))
        self.tally: Counter[str] = Counter() if tally is None else tally
        """How often each transition was seen."""
        self._retention = retention_of(manager.settings)
        self._requests: Mapping[int, Request] = {
            number: request.copy() for number, request in manager.population.alive.items()
        }
        """Where each request stands by now."""
        self._progress: Mapping[int, Progress] = {}
        """Per request that holds blocks, how far its content was made known."""
        self._undispatched: frozenset[Content] = frozenset()
        """Content that the worker has yet to compute, if it cannot serve every hit."""
        self._dispatched = self._over = 0
        """How many steps were dispatched, and how many of them are over."""
        self._steps: Mapping[tuple[Content, int], int] = {}
        """Of what is to be written, by what it is and block, which step does, counted from the first."""
        self._due: Mapping[Entry, int] = {}
        """Of what waits for steps in flight, how many steps must be over before it may be free."""

    def copy(self) -> Follower:
        """A follower of a copy of the manager; they count together."""
        other = type(self).__new__(type(self))
        other.now, other.tally = self.now, self.tally
        other._retention, other._requests, other._progress = self._retention, self._requests, self._progress
        other._undispatched, other._due = self._undispatched, self._due
        other._dispatched, other._over, other._steps = self._dispatched, self._over, self._steps
        return other

    def observe(self, manager: Manager, operation: Operation, answer: Answer) -> Drift | None:
        """The first difference after ``manager`` performed ``operation``, or None. Do not follow on after one."""
        after, run = picture(manager, self.now), Run(operation, self.now.state)
        labels = Labels(operation, answer, manager, self.now, after, lambda: run.state)
        drift = run.through(labels.of(_recorded(manager)))
        drift = drift or run.through(_used(self.now, after)) or run.through(_uses(self.now, after))
        drift = drift or run.through(self._computed(run.state, manager, isinstance(operation, Sample)))
        drift = drift or _first(self._still_owed(operation, run.state))
        drift = drift or _first(_miscounted(operation, run.state, manager))
        after = _with_followed(after, run.state)
        drift = drift or _first(_differences(operation, run.state, after.state))
        if drift is None:
            was = self._requests.get(operation.request) if isinstance(operation, OfRequest) else None
            step = Step(operation, answer, manager, was, self.now, after, run.happened, self._undispatched)
            drift = self._required(step)
            self._follow(step)
        self._due = {entry: self._due.get(entry, self._dispatched) for entry in after.raw.given_up}
        drift = drift or _first(wrong(operation, after.state, run.touched))
        self.now = after
        self.tally.update(transition.__name__.lower() for transition, _ in run.happened)
        return drift

    def step_over(self, manager: Manager, requests: Collection[int]) -> Drift | None:
        """The first difference after the oldest step in flight, of ``requests``, was over, or None.

        Blocks that waited for it may be free. This counts when.
        """
        self._over += bool(requests)
        after, run = picture(manager, self.now), Run(None, self.now.state)
        given_up = [each for each in self.now.raw.given_up.items() if each[0] not in after.raw.given_up]
        released = (_released_by(given_up, call.block) for call in _recorded(manager))
        used = (each for each in _used(self.now, after) if self._due.get(each[1].use, 0) <= self._over)
        drift = run.through(used) or run.through(self._computed(run.state, manager))
        drift = drift or run.through(released) or run.through(_uses(self.now, after))
        drift = drift or _first(self._still_owed(None, run.state))
        after = _with_followed(after, run.state)
        drift = drift or _first(_differences(None, run.state, after.state))
        drift = drift or _first(wrong(None, after.state, run.touched))
        self.now = after
        self._remember(manager)
        self._due = {entry: self._due[entry] for entry in after.raw.given_up}
        self.tally.update(transition.__name__.lower() for transition, _ in run.happened)
        return drift

    def _computed(self, state: State, manager: Manager, answered: bool = False) -> Iterator[Labelled]:
        """The writes of the steps that are over; late ones before all others.

        With one step in flight, a step is over before the next operation. Blocks that become known with an answer were
        computed before.
        """
        owed, late = _owed(state), entries_of(state.late)
        if not owed and not late:
            self._steps = {}
            return
        begins = self._over if answered or manager.settings.steps_in_flight_max == 1 else self._dispatched + 1
        steps = {**dict.fromkeys(owed, begins), **self._steps}
        still = {key: step for key, step in steps.items() if step > self._over}
        former = {key[1] for key in still if key not in owed}
        yield from [(Overwrite, Operands(block)) for block in late if block not in former]
        yield from [(Computed, Operands(block)) for key in owed if key not in still for block in key[1:]]
        self._steps = {key: step for key, step in still.items() if key in owed or key[1] in late}

    def _still_owed(self, operation: Operation | None, state: State) -> Iterator[Drift]:
        """Writes that are pending or late although their step is over."""
        late = {block for _, block in self._steps}
        for key in _owed(state):
            if key not in self._steps:
                yield Drift(operation, "owed", key, "it is written", "it is not written")
        for block in entries_of(state.late):
            if block not in late:
                yield Drift(operation, "late", f"block {block}", "the step is over", "it may still write")

    def _required(self, step: Step) -> Drift | None:
        """The first thing that must hold after ``step`` and does not."""
        try:
            return _first(missing(step, self._made_known(step)))
        except ForeignPrefixError as error:
            return Drift(step.operation, "content", f"request {step.number}", "a prefix of that length", str(error))

    def _made_known(self, step: Step) -> Due | None:
        """The content that must become known to the cache in ``step``, which is taken as done; None if there is
        none."""
        if self._retention is None or step.was is None or step.names is None:
            return None
        number, answer = step.number, step.answer
        if isinstance(answer, Granted):
            tokens, begun = step.manager.population[number].tokens_computed, computed_before(step, step.was)
            if step.named is None:
                self._continue(number, progress_after(step.manager.geometry, answer.hit_tokens))
            if answer.loads:
                return None
        elif isinstance(step.operation, Transferred) and number in step.manager.population.alive:
            tokens = begun = step.was.tokens_computed
        elif isinstance(step.operation, Sample) and step.was.awaited and step.was.status is not Status.LOADING:
            # Blocks that were computed before their tokens were known become known now.
            tokens = begun = tokens_answered(step.manager.population[number])
        else:
            return None
        found = due(
            step.manager, self._retention, number, step.names, self._progress[number], range(begun + 1, tokens + 1)
        )
        self._continue(number, found.progress)
        if isinstance(answer, Granted):
            groups = step.manager.geometry.groups
            contents = (content for content, _ in found.full | found.begun)
            self._undispatched |= {content for content in contents if groups[content[0]].fences}
        return found

    def _continue(self, number: int, progress: Progress) -> None:
        self._progress = {**self._progress, number: progress}

    def _remember(self, manager: Manager) -> None:
        """Where each request stands now."""
        self._requests = {number: request.copy() for number, request in manager.population.alive.items()}

    def _follow(self, step: Step) -> None:
        """Remember where the request stands now, and what was dispatched."""
        if isinstance(step.operation, Dispatch):
            self._undispatched = frozenset()
            running = (each for each in self._requests.values() if each.status is Status.RUNNING)
            self._dispatched += any(each.undispatched for each in running)
            self._remember(step.manager)
        if not isinstance(step.operation, OfRequest):
            return
        number, alive = step.number, step.manager.population.alive
        others = {other: request for other, request in self._requests.items() if other != number}
        self._requests = {**others, number: alive[number].copy()} if number in alive else others
        if step.names is None:
            self._progress = {other: progress for other, progress in self._progress.items() if other != number}


_ALWAYS = frozenset[type[Transition]]({Use, Used, Compute, TakeBack, Computed, Overwrite})
"""What may happen in every operation: what a worker does, and what a request counts, which is compared afterwards."""


class Run:
    """The transitions of one operation, or of the end of a step in flight."""

    def __init__(self, operation: Operation | None, state: State) -> None:
        self.operation = operation
        self.state = state
        self.happened: list[Labelled] = []
        self.touched: list[Point] = []
        row = SIMULATION.get(type(operation))
        self._allowed = _ALWAYS | (row.transitions if row else frozenset())

    def through(self, labels: Iterable[Labelled | Call]) -> Drift | None:
        """Run what calls stand for; the first that cannot be, or None."""
        try:
            for each in labels:
                drift = self._other(each) if isinstance(each, Call) else self._happens(*each)
                if drift is not None:
                    return drift
        except UnexplainedError as error:
            return Drift(self.operation, "calls", "the pool", "a holder for which it is called", str(error))
        return None

    def _happens(self, transition: type[Transition], at: Operands) -> Drift | None:
        name = transition.__name__.lower()
        if transition not in self._allowed:
            return Drift(self.operation, name, at, "no such transition in this operation", "it happens")
        if not transition.guard(self.state, at):
            return Drift(self.operation, name, at, "it cannot happen", "it happens")
        self.touched.append(at if at.content else Operands(at.block, content=self.state.content[at.block]))
        self.state = transition.effect(self.state, at)
        self.happened.append((transition, at))
        return None

    def _other(self, call: Call) -> Drift | None:
        """A call that is not a transition, or not always."""
        if call.did is Did.ROOM:
            room = _has_room(self.state, call)
            if room != call.answer:
                return Drift(self.operation, "room", f"{call.count} blocks", room, call.answer)
        if call.did is Did.RESET and Reset.guard(self.state, Operands()):
            return Drift(self.operation, "reset", "all blocks", "it happens", "it does not happen")
        return None


def _released_by(given_up: list[tuple[Entry, int]], block: int) -> Labelled:
    """The release of ``block`` by one of the entries that name it, each once; none if no entry is left."""
    place = next((place for place, (_, named) in enumerate(given_up) if named == block), None)
    return Drop, Operands(block, 0 if place is None else given_up.pop(place)[0])


def _used(before: Picture, after: Picture) -> Iterator[Labelled]:
    """Blocks that steps in flight do not use any more."""
    for entry, block in before.raw.uses.items():
        if after.raw.uses.get(entry) != block:
            yield Used, Operands(block, use=entry)


def _uses(before: Picture, after: Picture) -> Iterator[Labelled]:
    """Blocks that they use from now on."""
    for entry, block in after.raw.uses.items():
        if before.raw.uses.get(entry) != block:
            yield Use, Operands(block, entry, use=entry)


def _owed(state: State) -> Mapping[tuple[Content, int], None]:
    """What is to be written, and into which block."""
    return {(what, block): None for block, what in entries_of(state.owed).items()}


def _miscounted(operation: Operation, state: State, manager: Manager) -> Iterator[Drift]:
    """What the request counts as computed by its books, and nothing was written for; or the other way round."""
    if not isinstance(operation, OfRequest) or operation.request not in manager.tables:
        return
    number = operation.request
    counts = counted(manager, number, state.part)
    if counts is None:
        return
    for index, (group, table) in enumerate(zip(manager.geometry.groups, manager.tables[number], strict=True)):
        for place, block in enumerate(table.blocks if not group.keeps_states else ()):
            entry = number, index, place
            expected, has = counts.get(entry, 0), state.has[entry] if state.counts[entry] else 0
            if block != NULL and has != expected:
                yield Drift(operation, "has", entry, expected, has)


def _with_followed(after: Picture, state: State) -> Picture:
    """``after``, with what no state of a manager shows as it is in ``state``."""
    return evolve(after, state=evolve(after.state, **{name: getattr(state, name) for name in FOLLOWED}))


def _has_room(state: State, call: Call) -> bool:
    """Whether blocks are free or can be demoted for the request that asks."""
    kept = sum(state.where[block] == WAITING for block in call.kept)
    room: bool = call.count <= state.where.count(FREE) + state.where.count(WAITING) - kept
    return room


def _differences(operation: Operation | None, expected: State, got: State) -> Iterator[Drift]:
    """Where two states differ, map by map."""
    for name in MAPS:
        wanted, seen = getattr(expected, name), getattr(got, name)
        if wanted != seen:
            keys = {**entries_of(wanted), **entries_of(seen)}
            key = next(key for key in keys if wanted[key] != seen[key])
            yield Drift(operation, name, key, wanted[key], seen[key])


def wrong(operation: Operation | None, state: State, touched: Collection[Point]) -> Iterator[Drift]:
    """Where an invariant does not hold: at what was ``touched``, and at every pending copy."""
    if not touched:
        return
    points = {
        About.POOL: [Point()],
        About.BLOCK: list({point.block: point for point in touched}.values()),
        About.CONTENT: list({(point.block, point.content): point for point in touched}.values()),
        About.COPY: [Point(copy=copy) for copy in entries_of(state.reads)],
    }
    blocks = {point.block for point in points[About.BLOCK]}
    points[About.ENTRY] = [Point(entry=entry) for entry in entries_of(state.has) if state.named[entry] in blocks]
    for invariant, law in INVARIANTS.items():
        for point in points[law.about]:
            if not invariant(state, point):
                yield Drift(operation, f"{law.statement} ({invariant.__name__})", point, "it holds", "it does not")


def everywhere(state: State) -> list[Point]:
    """Every block, with all that it holds and is listed for."""
    listed = [
        Point(block, content=content) for each in (state.listed, state.begins) for content, block in entries_of(each)
    ]
    return [Point(block, content=state.content[block]) for block in range(state.blocks)] + listed


def _recorded(manager: Manager) -> list[Call]:
    """The calls on the manager's pool since the last call of this."""
    pool = manager.pool
    assert isinstance(pool, RecordedPool), "the manager's pool is recorded"
    calls = list(pool.calls)
    pool.calls.clear()
    return calls


def _first(drifts: Iterable[Drift]) -> Drift | None:
    return next(iter(drifts), None)
