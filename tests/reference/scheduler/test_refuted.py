"""Schedulers without one of the guards: the search finds that they hang, and that the sound one does not."""

from __future__ import annotations

from typing import Any

import pytest

from kvreference.geometry import Group
from kvreference.operations import Transferred
from kvreference.scheduler.limits import Limits
from kvreference.scheduler.operations import Reply, Step, Submit
from kvreference.scheduler.scheduler import Scheduler
from kvspec.refuted.schedulers import (
    FirstIsPreempted,
    FullSequenceWithoutRecycling,
    LoadedIsForgotten,
    LookaheadUnreserved,
    OversizeBlocksQueue,
    ParkedCountAsRunning,
    ReservedForLoadsAlone,
    UnreservedLoad,
)

from .search import explore
from .stage import DRAFTING, FULL, WINDOW, hangs, line, load, scheduler_of, submit

TWO = Limits(budget_tokens=4, running_max=2)
HANG = ["no request makes progress, and no transfer is under way"]

LOADS = (load(0, 6, 4, answers_max=2), submit(0, 4, answers_max=3))
CASES = [
    (UnreservedLoad, (FULL,), {"blocks": 6}, LOADS),
    (LookaheadUnreserved, (DRAFTING,), {"blocks": 6, "drafts_max": 1}, (load(0, 4, 4, answers_max=2),)),
    (OversizeBlocksQueue, (FULL,), {"blocks": 6}, (submit(0, 11), submit(0, 2))),
    (FullSequenceWithoutRecycling, (FULL, WINDOW), {"blocks": 10, "chunk_tokens": 2}, (submit(0, 10), submit(0, 2))),
    (ParkedCountAsRunning, (FULL,), {"blocks": 9}, LOADS),
    (LoadedIsForgotten, (FULL,), {"blocks": 6}, LOADS),
    (ReservedForLoadsAlone, (FULL,), {"blocks": 6}, (submit(0, 2, answers_max=8), *LOADS)),
]


def small(kind: type[Scheduler], groups: tuple[Group, ...], **rest: Any) -> Scheduler:
    """A scheduler of one kind, small enough to be searched."""
    limits = {"limits": TWO, "caches": False, "requests_max": 3, "chunk_tokens": 4}
    return scheduler_of(*groups, kind=kind, **{**limits, **rest})


@pytest.mark.parametrize(("kind", "groups", "rest", "menu"), CASES)
def test_without_its_guard_it_hangs(
    kind: type[Scheduler], groups: tuple[Group, ...], rest: dict[str, Any], menu: tuple[Submit, ...]
) -> None:
    """Goal: each guard is needed, and the search can find that it is missing. Method: the same search of both."""
    replies = Reply(drafts=1), Reply(ends=True)
    assert () == explore(small(Scheduler, groups, **rest), menu, replies).wrong
    found = explore(small(kind, groups, **rest), menu, replies, check=hangs)
    assert HANG == found.wrong
    assert Step in map(type, found.way)


def test_the_first_that_runs_loses_what_it_computed() -> None:
    """Goal: to preempt the only one that runs breaks what was promised it. Method: the search, with that promise."""
    menu = load(0, 6, 4, answers_max=2), submit(0, 2, answers_max=2, sends=True)
    assert () == explore(small(Scheduler, (FULL,), blocks=6), menu, [Reply()]).wrong
    found = explore(small(FirstIsPreempted, (FULL,), blocks=6), menu, [Reply()])
    assert any("was to be answered within" in wrong for wrong in found.wrong)


@pytest.mark.parametrize(("kind", "served"), [(UnreservedLoad, False), (Scheduler, True)])
def test_the_reported_hang_of_two_loads(kind: type[Scheduler], served: bool) -> None:
    """Goal: the bug as it was reported, async-load-remaining-prefill-not-reserved. Method: 64 blocks, 18 left free."""
    scheduler = scheduler_of(Group("full", 16), kind=kind, blocks=65, chunk_tokens=1024, caches=False)
    scheduler.apply(load(0, 800, 368))
    scheduler.apply(load(1, 592, 368))
    for _ in range(60):
        for number in scheduler.transfers():
            scheduler.apply(Transferred(number))
        scheduler.apply(Step())
    assert ((([], []), 64) if served else (([], [0, 1]), 18)) == (line(scheduler), len(scheduler.manager.pool.free))
