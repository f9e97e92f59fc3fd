"""The world of a block manager: its state, and with it what every physical slot would hold.

A worker's memory is part of the state, because what a block held once decides whether a later read is right. Nothing is
kept of a block that is neither held nor cached, nor of a newly allocated one: its content is undefined, so every read
of it is a violation.

Progress is what a request gains or loses. A rejection, a look-up and a release of unread blocks are not progress. If
they change nothing, they are not counted as steps: asking again would not help.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import frozen

from kvgate.adapters.reference import Reference
from kvgate.explore.canonical import Canonical
from kvgate.explore.invariants import COMMON, Checks
from kvgate.explore.scope import Scope
from kvgate.explore.world import Outcome
from kvgate.gate.story import describe, describe_answer
from kvgate.kernel.difference import Difference
from kvgate.kernel.monitor import Step
from kvgate.monitors.slot_memory import GhostMemory
from kvreference.answers import Answer, Granted, Refused
from kvreference.manager import Manager
from kvreference.operations import CommonPrefix, LookUp, Operation, ReleaseSkipped, TakeEvents, TakeStatistics
from kvreference.settings import Settings
from kvreference.snapshot import Snapshot, Violation

_ACHIEVES_NOTHING = (LookUp, CommonPrefix, ReleaseSkipped)


@frozen(eq=False)
class Moment:
    """A manager and the memory of its blocks; neither changes any more."""

    manager: Manager
    ghost: GhostMemory
    key: tuple[int, ...]


class ManagerWorld:
    """A block manager of some design, in a scope."""

    memory: type[GhostMemory] = GhostMemory

    def __init__(
        self,
        name: str,
        scope: Scope,
        factory: Callable[[Settings], Manager] = Reference,
        checks: Checks = COMMON,
    ) -> None:
        self.name = name
        self.scope = scope
        self.factory = factory
        self.checks = checks
        self._unwritten = self.memory(scope.settings)
        self._canonical = Canonical(scope.settings, self._unwritten.states)

    @property
    def bounds(self) -> Mapping[str, str]:
        return self.scope.bounds

    def initial(self) -> Moment:
        return self._moment(self.factory(self.scope.settings), self._unwritten.copy())

    def moves(self, state: Moment) -> Sequence[Any]:
        return list(self.scope.menu.moves(state.manager))

    def step(self, state: Moment, move: Operation) -> Outcome[Moment]:
        manager, ghost = state.manager.copy(), state.ghost.copy()
        answer = manager.apply(move)
        snapshot = manager.snapshot()
        if isinstance(answer, Granted):
            before = state.manager.pool.references
            ghost.forget(block for blocks in answer.blocks for block in blocks if before[block] == 0)
        difference = ghost.observe(Step(move, answer, snapshot, manager.population))
        after = self._after(manager, ghost)
        idle = isinstance(answer, Refused) or isinstance(move, _ACHIEVES_NOTHING)
        lossless = not (self.scope.menu.evicts or self.scope.menu.resets)
        seen = self.checks.of_step(state.manager, move, answer, manager, lossless)
        wrong = (*(violations_of(difference) if self.checks.watches_memory else ()), *seen)
        return Outcome(after, answer, not idle or after.key == state.key, wrong)

    def violations_in(self, state: Moment) -> Sequence[Violation]:
        return self.checks.of_state(state.manager)

    def key(self, state: Moment) -> tuple[int, ...]:
        return state.key

    def snapshot(self, state: Moment) -> Snapshot:
        return state.manager.snapshot()

    def describe_edge(self, move: Operation, answer: Answer | None) -> str:
        return f"{describe(move)} -> {'raised' if answer is None else describe_answer(answer)}"

    def _after(self, manager: Manager, ghost: GhostMemory) -> Moment:
        """What a move has led to."""
        # No client reads them here, and they must not pile up.
        manager.apply(TakeEvents())
        manager.apply(TakeStatistics())
        references = manager.pool.references
        ghost.forget(
            block for block, count in enumerate(references) if count == 0 and not manager.pool.is_cached(block)
        )
        return self._moment(manager, ghost)

    def _moment(self, manager: Manager, ghost: GhostMemory) -> Moment:
        return Moment(manager, ghost, self._canonical.key(manager, ghost))


def violations_of(difference: Difference | None) -> tuple[Violation, ...]:
    """What memory has seen, as a violation."""
    if difference is None:
        return ()
    detail = f"{difference.subject}: expected {difference.expected}, got {difference.got}"
    return (Violation(difference.statement, detail),)
