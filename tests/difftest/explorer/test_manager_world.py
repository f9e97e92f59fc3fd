"""The world of a block manager.

Goal: a step leaves the state that it was given as it was, checks what the worker would read, and counts as progress
only if something was gained. Method: the reference as control, and managers that each break one thing.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from kvgate.adapters.reference import Reference
from kvgate.explore.canonical import Prompt
from kvgate.explore.designs import ReleasesEarly
from kvgate.explore.manager_world import ManagerWorld
from kvgate.explore.scope import Menu
from kvreference.answers import Answer, Granted, Refused
from kvreference.block_pool import BlockPool
from kvreference.geometry import Group
from kvreference.operations import Admit, Arrive, Finish, LookUp, Operation, Preempt, ReleaseSkipped, Schedule
from kvreference.settings import Settings

from .stage import FULL, WINDOW, explore, walk, world_of

ENTER = (Arrive(0, Prompt(3).runs(0)), Admit(0, 8))


def test_the_state_that_a_step_is_given_stays_as_it_is() -> None:
    """After any number of operations tried from it."""
    world = world_of(FULL)
    state = walk(world, ENTER)
    before = world.key(state)
    for move in (*world.moves(state), *world.moves(state)):
        world.step(state, move)
        assert before == world.key(state) == world._canonical.key(state.manager, state.ghost)


def test_nothing_reported_outside_piles_up() -> None:
    """Neither events nor statistics, nor memory content that no request may rely on."""
    world = world_of(FULL)
    state = walk(world, (*ENTER, Finish(0)))
    assert [] == state.manager._events
    assert 0 == state.manager.cache.statistics.requests
    # The first block is cached; the second was never full.
    assert [None, True, False, False] == [None, *(state.ghost.slots(block) is not None for block in (1, 2, 3))]


class NeverTouches(BlockPool):
    """Takes the blocks of a hit without holding them."""

    def touch(self, blocks: Iterable[int]) -> None:
        del blocks


class HitsUnheld(Reference):
    """Does not hold the blocks that a request is served from."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.holdings.pool = NeverTouches(settings.blocks)


class Trips(Reference):
    """Cannot be asked to preempt."""

    def apply(self, operation: Operation) -> Answer:
        if isinstance(operation, Preempt):
            raise ZeroDivisionError("no way back")
        return super().apply(operation)


class KeepsOut(Reference):
    """Admits no request."""

    def apply(self, operation: Operation) -> Answer:
        return Refused(0, gate=True) if isinstance(operation, Admit) else super().apply(operation)


class TurnsInItsSleep(Reference):
    """Moves the first free block to the back whenever it refuses."""

    def apply(self, operation: Operation) -> Answer:
        answer = super().apply(operation)
        if isinstance(answer, Refused) and len(self.pool.free) > 1:
            self.pool.free.append(self.pool.free.pop())
        return answer


SMALL = Menu((Prompt(3), Prompt(4)), budgets_tokens=(2, 8))


@pytest.mark.parametrize(
    ("group", "factory", "expected"),
    [
        (FULL, Reference, None),
        (WINDOW, Reference, None),
        (FULL, HitsUnheld, ("KV-INV-01", 4, 0)),
        (WINDOW, ReleasesEarly, ("KV-MEM-01", 3, 0)),
        (FULL, Trips, ("KV-SYS-01", 3, 0)),
        (FULL, KeepsOut, ("KV-LIVE-01", 2, 0)),
        (WINDOW, TurnsInItsSleep, ("KV-LIVE-03", 11, 2)),
    ],
)
def test_what_is_broken_is_found(group: Group, factory: type[Reference], expected: tuple[str, int, int] | None) -> None:
    """Each by its statement, on a shortest way; in the reference, which is the control, nothing is."""
    found = explore(world_of(group, menu=SMALL, tokens_max=5, factory=factory)).found
    assert expected == (found and (found.violations[0].statement, len(found.moves), len(found.circle)))


def step(world: ManagerWorld, moves: Iterable[Operation], move: Operation) -> tuple[object, bool]:
    """The answer to a move, and whether there was progress."""
    outcome = world.step(walk(world, moves), move)
    return type(outcome.answer), outcome.progress


def test_a_rejection_that_changes_something_is_not_progress() -> None:
    """It frees the blocks that the window has passed, once; the second attempt changes nothing."""
    world = world_of(WINDOW, tokens_max=6, full_sequence_must_fit=False)
    first = (Arrive(0, Prompt(4).runs(0)), Admit(0, 2), Arrive(1, Prompt(3).runs(1)), Admit(1, 1))
    assert (Refused, False) == step(world, first, Schedule(0, 2))
    assert (Refused, True) == step(world, (*first, Schedule(0, 2)), Schedule(0, 2))
    assert (Granted, True) == step(world, (*first, Schedule(0, 2)), Schedule(0, 1))


def test_questions_are_no_steps_and_a_release_is_one_without_progress() -> None:
    """An operation that changes nothing is not a step."""
    world = world_of(WINDOW, tokens_max=6)
    entered = (Arrive(0, Prompt(3).runs(0)), Admit(0, 8))
    assert step(world, entered[:1], LookUp(0))[1]
    assert not step(world, entered, ReleaseSkipped(0))[1]
    assert step(world, (*entered, ReleaseSkipped(0)), ReleaseSkipped(0))[1]


@pytest.mark.parametrize(("groups", "states", "idle_steps_max"), [((FULL,), 255, 0), ((WINDOW,), 666, 1)])
def test_a_small_world_is_in_order(groups: tuple[Group, ...], states: int, idle_steps_max: int) -> None:
    """The number of its states is what it was when this was written: a change of it is to be understood."""
    seen = explore(world_of(*groups, menu=SMALL, tokens_max=5))
    assert (True, states, idle_steps_max) == (seen.exhaustive, seen.states, seen.idle_steps_max)
