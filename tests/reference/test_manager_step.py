"""The step function, and copies: the state that was given stays as it is."""

from __future__ import annotations

import pytest

from kvreference.answers import Done, Granted, Happened, Statistics
from kvreference.block_pool import Pinned
from kvreference.manager import Manager, step
from kvreference.operations import (
    Abort,
    Admit,
    Arrive,
    CommonPrefix,
    Evict,
    Finish,
    LookUp,
    Operation,
    Preempt,
    ReleaseSkipped,
    Reset,
    Run,
    Sample,
    Schedule,
    TakeEvents,
    TakeStatistics,
)

from .stage import BUDGET, FULL, WINDOW, arrive, enter, manager_of, perform, seen


def busy() -> Manager:
    """Request 0 decodes with drafts, 1 prefills, 2 waits; there are events and statistics to be taken."""
    manager = manager_of(FULL, WINDOW, drafts_max=2)
    enter(manager, 0, 100)
    perform(manager, Sample(0, 0, 500, 2), arrive(1, 200), Admit(1, 50), arrive(2, 100))
    return manager


def everything(manager: Manager) -> list[object]:
    """All that a manager will ever tell, read from a copy."""
    copy = manager.copy()
    requests = [request.copy() for request in copy.population.alive.values()]
    taken = [copy.apply(TakeEvents()), copy.apply(TakeStatistics())]
    return [seen(copy), requests, copy.population.arrived, *taken]


@pytest.mark.parametrize(
    "operation",
    [
        Arrive(3, (Run(0, 9),)),
        LookUp(2),
        Admit(2, BUDGET),
        Schedule(0, BUDGET),
        Schedule(1, BUDGET),
        Preempt(0),
        Finish(0),
        Abort(2),
        ReleaseSkipped(0),
        CommonPrefix(0),
        Evict(1),
        Reset(),
        TakeEvents(),
        TakeStatistics(),
    ],
)
def test_a_step_leaves_the_given_state_alone(operation: Operation) -> None:
    """Goal: a state is a value, so that it can be kept and compared. Method: everything told before and after; and
    the same operation in place answers and leaves the same.
    """
    manager = busy()
    before = everything(manager)
    after, answer = step(manager, operation)
    assert before == everything(manager)
    assert answer == perform(manager, operation)
    assert everything(after) == everything(manager)


def test_a_step_from_a_step() -> None:
    """Goal: one state, two futures. Method: accept the drafts in one, reject them in the other; neither knows."""
    manager, _ = step(busy(), Schedule(0, BUDGET))
    accepted, _ = step(manager, Sample(0, 2, 7, 0))
    rejected, _ = step(manager, Sample(0, 0, 8, 0))
    assert [*range(100), 500, 501, 502, 7] == accepted.population[0].tokens
    assert [*range(100), 500, 8] == rejected.population[0].tokens
    assert (103, 2) == (manager.population[0].tokens_computed, manager.population[0].drafts_in_flight)


def test_a_new_manager() -> None:
    """Goal: in the beginning there is nothing. Method: ask a new one."""
    manager = manager_of(FULL, blocks=4)
    assert ({}, [0, 0, 0, 0], [1, 2, 3], 3, [None] * 4, {}, Pinned(), (), frozenset()) == seen(manager)
    assert Happened(()) == perform(manager, TakeEvents())
    assert Statistics() == perform(manager, TakeStatistics())


def test_arriving_and_answering_tell_nothing() -> None:
    """Goal: the block manager has no part in them. Method: both are done, and no block changes hands."""
    manager = manager_of(FULL)
    before = seen(manager)
    assert Done() == perform(manager, arrive(0, 40))
    assert before == seen(manager)
    assert Granted(0, ((1, 2, 3),)) == perform(manager, Admit(0, BUDGET))
    before = seen(manager)
    assert Done() == perform(manager, Sample(0, 0, 500, 0))
    assert before == seen(manager)


def test_a_snapshot_keeps_what_it_lists() -> None:
    """Goal: what was observed does not change afterwards. Method: keep what it lists; end the requests."""
    manager = busy()
    snapshot = manager.snapshot()
    tables, references, free, contents = (
        {number: [list(table) for table in tables] for number, tables in snapshot.tables.items()},
        list(snapshot.references),
        list(snapshot.free),
        list(snapshot.contents),
    )
    perform(manager, Schedule(1, BUDGET), Finish(1), Preempt(0), Evict(1))
    assert tables == snapshot.tables
    assert (references, free, contents) == (snapshot.references, snapshot.free, snapshot.contents)
