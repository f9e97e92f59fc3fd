"""Breadth-first search through all states of a world: nearest first, so a shortest path to each violation is found.

Of a state only its key is kept, and how it was first reached; whole states live in the queue alone. A path is described
by walking it again from the initial state. At the end: whether steps without progress can go round in circles, and if
they cannot, how many there are in a row at most.
"""

from __future__ import annotations

import time
from array import array
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Generic, TypeAlias

from attrs import frozen

from kvgate.explore.exploration import INTERRUPTED, Exploration, Found, Limits, Sighting
from kvgate.explore.world import Move, State, World
from kvreference.snapshot import Violation

Successors: TypeAlias = Mapping[int, Sequence[int]]


@frozen
class Idling:
    """What steps without progress come to."""

    steps_max: int
    """The most of them in a row, outside of any circle."""
    circle: tuple[int, ...] = ()
    """The states of a shortest circle through the lowest-numbered state that lies on one; empty if there is none."""


def idling(successors: Successors) -> Idling:
    """Look for a circle, and measure the longest path."""
    steps: dict[int, int] = {}
    circular: list[list[int]] = []
    for component in components(successors):
        outside = [steps[after] for state in component for after in successors.get(state, ()) if after in steps]
        longest = max((1 + count for count in outside), default=0)
        steps.update(dict.fromkeys(component, longest))
        if len(component) > 1 or component[0] in successors.get(component[0], ()):
            circular.append(component)
    if not circular:
        return Idling(max(steps.values(), default=0))
    return Idling(max(steps.values()), _shortest_circle(successors, min(map(min, circular))))


def components(successors: Successors) -> Iterator[list[int]]:
    """The strongly connected components, each after all others that it leads to (Tarjan's algorithm)."""
    index: dict[int, int] = {}
    lowest: dict[int, int] = {}
    finished: set[int] = set()
    stack: list[int] = []
    for root in successors:
        if root in index:
            continue
        # Each entry is a state that is being visited, and those of its successors that are still to be looked at.
        visits = [(root, iter(successors.get(root, ())))]
        index[root] = lowest[root] = len(index)
        stack.append(root)
        while visits:
            state, remaining = visits[-1]
            for after in remaining:
                if after not in index:
                    index[after] = lowest[after] = len(index)
                    stack.append(after)
                    visits.append((after, iter(successors.get(after, ()))))
                    break
                if after not in finished:
                    lowest[state] = min(lowest[state], index[after])
            else:
                visits.pop()
                if visits:
                    lowest[visits[-1][0]] = min(lowest[visits[-1][0]], lowest[state])
                if lowest[state] == index[state]:
                    component = [stack.pop()]
                    while component[-1] != state:
                        component.append(stack.pop())
                    finished.update(component)
                    yield component


def _shortest_circle(successors: Successors, start: int) -> tuple[int, ...]:
    """The states of a shortest way from ``start`` back to it, both ends included."""
    before: dict[int, int] = {}
    queue = deque([start])
    while start not in before:
        state = queue.popleft()
        for after in successors.get(state, ()):
            if after not in before:
                before[after] = state
                queue.append(after)
    circle = [start, before[start]]
    while circle[-1] != start:
        circle.append(before[circle[-1]])
    return tuple(reversed(circle))


NOTHING_SPINS = "KV-LIVE-03"
NEVER_RAISES = "KV-SYS-01"


class _LimitReachedError(Exception):
    """A limit is reached, and states are left."""


class Search(Generic[State, Move]):
    """One search of a world, breadth first."""

    def __init__(
        self,
        world: World[State, Move],
        limits: Limits,
        report: Callable[[Sighting], None] = lambda _sighting: None,
    ) -> None:
        self.world = world
        self.limits = limits
        self.report = report
        self.edges = 0
        self.depth = 0
        self._numbers: dict[Hashable, int] = {}
        """Key to number. States are numbered as they are reached, and visited in that order."""
        self._parents = array("q")
        self._moves: list[Move] = []
        """Per state but the first, the move that first led there."""
        self._idle: dict[int, list[int]] = {}
        """Per state, where moves without progress lead."""

    def run(self) -> Exploration[Move]:
        """Visit every state, until something is found, a limit is reached, or the user interrupts."""
        started = time.monotonic()
        found, stopped, steps_max = None, None, None
        try:
            found = self._visit_all(started + self.limits.seconds_max)
        except _LimitReachedError as limit:
            stopped = str(limit)
        except KeyboardInterrupt:
            stopped = INTERRUPTED
        if found is None:
            idle = idling(self._idle)
            if idle.circle:
                found, stopped = self._spinning(idle.circle), None
            elif stopped is None:
                steps_max = idle.steps_max
        seconds = time.monotonic() - started
        return Exploration(len(self._parents), self.edges, self.depth, seconds, found, stopped, steps_max)

    def _visit_all(self, until: float) -> Found[Move] | None:
        initial = self.world.initial()
        self._numbers[self.world.key(initial)] = 0
        self._parents.append(-1)
        wrong = self.world.violations_in(initial)
        if wrong:
            return Found(tuple(wrong), ())
        queue = deque([initial])
        number = nearest = 0
        while queue:
            if number > nearest:
                self.depth, nearest = self.depth + 1, len(self._parents) - 1
            self._keep_within(until)
            found = self._visit(number, queue.popleft(), queue)
            if found is not None:
                return found
            number += 1
        return None

    def _keep_within(self, until: float) -> None:
        states = len(self._parents)
        self.report(Sighting(states, self.edges, self.depth))
        if states >= self.limits.states_max:
            raise _LimitReachedError(f"stopped at {states} states")
        if time.monotonic() > until:
            raise _LimitReachedError(f"stopped after {self.limits.seconds_max:g} s")

    def _visit(self, number: int, state: State, queue: deque[State]) -> Found[Move] | None:
        """Try every move; states not reached before are checked and put into the queue."""
        for move in self.world.moves(state):
            self.edges += 1
            try:
                outcome = self.world.step(state, move)
            except Exception as error:
                raised = Violation(NEVER_RAISES, f"{type(error).__name__}: {error}")
                return Found((raised,), (*self._way_to(number), move))
            violations = outcome.violations
            after = self._numbers.setdefault(self.world.key(outcome.state), len(self._parents))
            if after == len(self._parents):
                self._parents.append(number)
                self._moves.append(move)
                queue.append(outcome.state)
                violations = (*violations, *self.world.violations_in(outcome.state))
            if violations:
                return Found(violations, (*self._way_to(number), move))
            if not outcome.progress:
                self._idle.setdefault(number, []).append(after)
        return None

    def _way_to(self, number: int) -> tuple[Move, ...]:
        """The moves by which a state was first reached."""
        moves = []
        while number > 0:
            moves.append(self._moves[number - 1])
            number = self._parents[number]
        return tuple(reversed(moves))

    def _spinning(self, circle: Iterable[int]) -> Found[Move]:
        """The way into a circle and once around it. A state met again may have other names, so moves are sought."""
        keys = list(self._numbers)
        first, *others = circle
        way = self._way_to(first)
        state = self.world.initial()
        for move in way:
            state = self.world.step(state, move).state
        around = []
        for number in others:
            outcomes = ((move, self.world.step(state, move)) for move in self.world.moves(state))
            move, outcome = next(
                (move, outcome)
                for move, outcome in outcomes
                if not outcome.progress and self.world.key(outcome.state) == keys[number]
            )
            around.append(move)
            state = outcome.state
        return Found(
            (Violation(NOTHING_SPINS, f"back in the same state after {len(around)} steps"),), way, tuple(around)
        )
