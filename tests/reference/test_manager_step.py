"""The step function, and copies: the state that was given stays as it is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kvreference.answers import Done, Granted, Happened, Refused, Statistics
from kvreference.block_pool import Pinned
from kvreference.geometry import Group
from kvreference.manager import Manager, step
from kvreference.operations import (
    Abort,
    Admit,
    Arrive,
    CommonPrefix,
    Dispatch,
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
    Transferred,
)

from .stage import BUDGET, FULL, SHORT, UNIT, WINDOW, arrive, enter, manager_of, perform, seen


def busy() -> Manager:
    """Request 0 decodes with drafts, 1 prefills, 2 waits; there are events and statistics to be taken."""
    manager = manager_of(FULL, WINDOW, drafts_max=2)
    enter(manager, 0, 100)
    perform(manager, Sample(0, 0, 500, 2), arrive(1, 200), Admit(1, 50), arrive(2, 100))
    return manager


def everything(manager: Manager) -> list[object]:
    """All that a manager will ever report, read from a copy."""
    copy = manager.copy()
    requests = [request.copy() for request in copy.population.alive.values()]
    taken = [copy.apply(TakeEvents()), copy.apply(TakeStatistics())]
    return [seen(copy), requests, copy.population.arrived, copy.pool.partial.offers, *taken]


def in_a_step() -> Manager:
    """Request 0 is to be answered, 1 copies from it and computes in a step that is not dispatched, as do 2, which loads
    after a copy, and 3, of whose tokens 4, waiting, would copy. 5 has ended and sends; 6, ended, left pinned blocks.
    """
    manager = manager_of(
        *(UNIT, SHORT, Group("mamba", 16, states="align", draft_states=2)),
        drafts_max=2,
        pin_drop_blocks_min=1,
        retention_interval_tokens=16,
        scratch_first=True,
    )
    perform(manager, arrive(0, 48), arrive(1, 48), arrive(2, 48))
    perform(manager, arrive(3, 48, first=1000), arrive(4, 60, first=1000), arrive(5, 48, first=2000))
    perform(manager, arrive(6, 100, first=9000), Admit(6, BUDGET))
    perform(manager, Admit(0, 33), Admit(5, BUDGET), Dispatch(), Finish(6), Finish(5, sends=True), Schedule(0, BUDGET))
    perform(manager, Dispatch(), Admit(1, BUDGET), Admit(2, BUDGET, 3, loads=True), Admit(3, BUDGET))
    return manager


def between_steps() -> Manager:
    """The same, dispatched; 2 has loaded."""
    manager = in_a_step()
    perform(manager, Dispatch(), Transferred(2))
    return manager


@pytest.mark.parametrize(
    ("start", "operation"),
    [
        (busy, Arrive(3, (Run(0, 9),))),
        (busy, LookUp(2)),
        (busy, Admit(2, BUDGET)),
        (busy, Schedule(0, BUDGET)),
        (busy, Schedule(1, BUDGET)),
        (busy, Preempt(0)),
        (busy, Finish(0)),
        (busy, Abort(2)),
        (busy, ReleaseSkipped(0)),
        (busy, CommonPrefix(0)),
        (busy, Evict(1)),
        (busy, Reset()),
        (busy, TakeEvents()),
        (busy, TakeStatistics()),
        (in_a_step, Admit(4, BUDGET)),
        (in_a_step, Dispatch()),
        (in_a_step, Transferred(5)),
        (in_a_step, Sample(0, 0, 7, 2)),
        (in_a_step, Evict(1)),
        (between_steps, Admit(2, BUDGET)),
        (between_steps, Admit(4, BUDGET)),
        (between_steps, Abort(2)),
        (between_steps, Finish(1, sends=True)),
        (between_steps, Finish(0)),
        (between_steps, ReleaseSkipped(1)),
    ],
)
def test_a_step_leaves_the_given_state_alone(start: Callable[[], Manager], operation: Operation) -> None:
    """Goal: a state is a value, so that it can be kept and compared. Method: everything readable before and after; and
    the same operation in place answers and leaves the same.
    """
    manager = start()
    before = everything(manager)
    after, answer = step(manager, operation)
    assert before == everything(manager)
    assert answer == perform(manager, operation)
    assert everything(after) == everything(manager)


def test_what_is_pending_is_part_of_the_state() -> None:
    """Goal: copies, and what this step computes, are copied too. Method: after two futures, one dispatched, the given
    state still has two copies to make, and refuses the request that would copy what it computes.
    """
    manager = in_a_step()
    assert 2 == len(manager.copies)
    after, _ = step(manager, Dispatch())
    assert Refused(48, gate=True) == manager.copy().apply(Admit(4, BUDGET))
    assert Refused(48, gate=True) == manager.copy().copy().apply(Admit(4, BUDGET))
    granted = after.apply(Admit(4, BUDGET))
    assert isinstance(granted, Granted)
    assert (2, 1) == (len(manager.copies), len(after.copies))


def test_a_step_from_a_step() -> None:
    """Goal: one state, two futures. Method: accept the drafts in one, reject them in the other; neither knows."""
    manager, _ = step(busy(), Schedule(0, BUDGET))
    accepted, _ = step(manager, Sample(0, 2, 7, 0))
    rejected, _ = step(manager, Sample(0, 0, 8, 0))
    assert [*range(100), 500, 501, 502, 7] == accepted.population[0].tokens
    assert [*range(100), 500, 8] == rejected.population[0].tokens
    assert (103, 2) == (manager.population[0].tokens_computed, manager.population[0].drafts_in_flight)


def test_a_new_manager() -> None:
    """Goal: a new manager is empty. Method: ask one."""
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
    """Goal: a snapshot does not change afterwards. Method: keep what it lists; end the requests."""
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
