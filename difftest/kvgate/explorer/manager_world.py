"""The world of a block manager: its state, and with it what every physical slot would hold.

A worker's memory is part of the state, because what a block held once decides whether a later read is right. Of a
block that nobody holds and that is not cached it keeps nothing, and nothing of one that is handed out anew: nobody may
rely on what is there, so a read of it is a violation whatever it finds.

Progress is whatever a request gains or loses. A refusal, a question and a release of what nobody reads are none; if
they change nothing, whoever asked can tell that asking again is no use, and they are not counted as steps at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from attrs import frozen

from kvgate.case import Case
from kvgate.explorer.canonical import Canonical
from kvgate.explorer.scope import Scope
from kvgate.explorer.world import Outcome
from kvgate.monitors.ghost import GhostMemory
from kvgate.monitors.monitor import Step
from kvgate.story import describe, describe_answer
from kvreference.answers import Granted, Refused
from kvreference.block_pool import NULL
from kvreference.manager import Manager
from kvreference.operations import CommonPrefix, LookUp, Operation, ReleaseSkipped, TakeEvents, TakeStatistics
from kvreference.settings import Settings
from kvreference.snapshot import Snapshot, Violation, check

_ACHIEVES_NOTHING = (LookUp, CommonPrefix, ReleaseSkipped)


@frozen(eq=False)
class Moment:
    """A manager and the memory behind its blocks. Never changed once it is a state of the world."""

    manager: Manager
    ghost: GhostMemory
    key: tuple[int, ...]


class ManagerWorld:
    """A manager of any make, in a scope."""

    def __init__(self, name: str, scope: Scope, factory: Callable[[Settings], Manager] = Manager) -> None:
        self.name = name
        self.scope = scope
        self.factory = factory
        self._canonical = Canonical(scope.settings)

    @property
    def bounds(self) -> Mapping[str, str]:
        return self.scope.bounds

    def initial(self) -> Moment:
        return self._moment(self.factory(self.scope.settings), GhostMemory(self.scope.settings))

    def moves(self, state: Moment) -> Sequence[Operation]:
        return list(self.scope.menu.moves(state.manager))

    def step(self, state: Moment, move: Operation) -> Outcome[Moment]:
        manager, ghost = state.manager.copy(), state.ghost.copy()
        answer = manager.apply(move)
        # Nobody reads these here, and they must not pile up.
        manager.apply(TakeEvents())
        manager.apply(TakeStatistics())
        snapshot = manager.snapshot()
        if isinstance(answer, Granted):
            for blocks in answer.blocks:
                ghost.forget(blocks)
        wrong = ghost.observe(Step(move, answer, snapshot, manager.population))
        ghost.forget(
            block
            for block, references in enumerate(snapshot.references)
            if references == 0 and snapshot.contents[block] is None
        )
        after = self._moment(manager, ghost)
        idle = isinstance(answer, Refused) or isinstance(move, _ACHIEVES_NOTHING)
        violations = () if wrong is None else (Violation(wrong.statement, f"{wrong.subject}: expected {wrong.expected}, got {wrong.got}"),)
        return Outcome(after, answer, not idle or after.key == state.key, violations)

    def judge(self, state: Moment) -> Sequence[Violation]:
        return check(state.manager.snapshot())

    def key(self, state: Moment) -> tuple[int, ...]:
        return state.key

    def snapshot(self, state: Moment) -> Snapshot:
        return state.manager.snapshot()

    def _moment(self, manager: Manager, ghost: GhostMemory) -> Moment:
        return Moment(manager, ghost, self._canonical.key(manager, ghost))
