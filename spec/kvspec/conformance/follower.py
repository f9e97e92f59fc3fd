"""A follower: runs the transitions beside a manager, and says where the two part.

After every operation each recorded call must be a transition that can happen in the state so far and that such an
operation may consist of; the state that they lead to must be the manager's, map by map; and the invariants must hold at
whatever was touched. What was not touched is as it was before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence

from kvreference.manager import Manager
from kvreference.operations import Operation
from kvspec.conformance.allowed import ALLOWED
from kvspec.conformance.drift import Drift
from kvspec.conformance.labels import Labels, UnexplainedError, begin
from kvspec.conformance.picture import picture
from kvspec.conformance.recording import Call, Did, RecordedPool, record
from kvspec.maps import entries_of
from kvspec.pool.contents import Reset
from kvspec.pool.invariants import INVARIANTS, About, Point
from kvspec.pool.state import FREE, MAPS, WAITING, Operands, State
from kvspec.pool.transition import Transition


class Follower:
    """Follows one manager from the state that it is in."""

    def __init__(self, manager: Manager, tally: Counter[str] | None = None) -> None:
        record(manager.pool)
        self.now = picture(manager)
        self.tally: Counter[str] = Counter() if tally is None else tally
        """How often each transition was seen."""

    def copy(self) -> Follower:
        """A follower of a copy of the manager; they count together."""
        other = type(self).__new__(type(self))
        other.now, other.tally = self.now, self.tally
        return other

    def observe(self, manager: Manager, operation: Operation) -> Drift | None:
        """The first difference after ``manager`` performed ``operation``, or None. Follow no further behind one."""
        pool = manager.pool
        assert isinstance(pool, RecordedPool), "the manager's pool is recorded"
        calls = list(pool.calls)
        pool.calls.clear()
        after = picture(manager, self.now)
        run = Run(operation, self.now.state)
        drift = run.through(Labels(operation, self.now, after), calls)
        drift = drift or _first(_differences(operation, run.state, after.state))
        drift = drift or _first(wrong(operation, after.state, run.touched))
        self.now = after
        self.tally.update(run.happened)
        return drift


class Run:
    """The transitions of one operation."""

    def __init__(self, operation: Operation, state: State) -> None:
        self.operation = operation
        self.state = state
        self.happened: list[str] = []
        self.touched: list[Point] = []
        self._allowed = ALLOWED.get(type(operation), frozenset())

    def through(self, labels: Labels, calls: Sequence[Call]) -> Drift | None:
        """Run what the calls stand for; the first that cannot be, or None."""
        try:
            for each in labels.of(calls):
                drift = self._other(each) if isinstance(each, Call) else self._happens(*each)
                if drift is not None:
                    return drift
        except UnexplainedError as error:
            return Drift(self.operation, "calls", "the pool", "a holder for whom it is called", str(error))
        return None

    def _happens(self, transition: type[Transition], at: Operands) -> Drift | None:
        name = transition.__name__.lower()
        if transition not in self._allowed:
            return Drift(self.operation, name, at, "no such transition in this operation", "it happens")
        if not transition.guard(self.state, at):
            return Drift(self.operation, name, at, "it cannot happen", "it happens")
        self.touched.append(at if at.content else Operands(at.block, content=self.state.content[at.block]))
        self.state = transition.effect(self.state, at)
        self.happened.append(name)
        return None

    def _other(self, call: Call) -> Drift | None:
        """A call that is no transition, or not always."""
        if call.did is Did.BEGIN:
            # To offer a boundary again changes nothing.
            known = self.state.begins[call.content, call.block] != 0
            return None if known else self._happens(*begin(call))
        if call.did is Did.ROOM:
            room = _has_room(self.state, call)
            if room != call.answer:
                return Drift(self.operation, "room", f"{call.count} blocks", room, call.answer)
        if call.did is Did.RESET and Reset.guard(self.state, Operands()):
            return Drift(self.operation, "reset", "all blocks", "it happens", "it does not happen")
        return None


def _has_room(state: State, call: Call) -> bool:
    """Whether blocks are free or can be demoted for whoever asks."""
    kept = sum(state.where[block] == WAITING for block in call.kept)
    room: bool = call.count <= state.where.count(FREE) + state.where.count(WAITING) - kept
    return room


def _differences(operation: Operation, expected: State, got: State) -> Iterator[Drift]:
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
    for invariant, law in INVARIANTS.items():
        for point in points[law.about]:
            if not invariant(state, point):
                yield Drift(operation, f"{law.statement} ({invariant.__name__})", point, "it holds", "it does not")


def everywhere(state: State) -> list[Point]:
    """Every block, with whatever it holds and is listed for."""
    listed = [
        Point(block, content=content) for each in (state.listed, state.begins) for content, block in entries_of(each)
    ]
    return [Point(block, content=state.content[block]) for block in range(state.blocks)] + listed


def _first(drifts: Iterable[Drift]) -> Drift | None:
    return next(iter(drifts), None)
