"""A copy of a state: it shares nothing that operations change, whichever state it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kvreference.geometry import Geometry, Group
from kvreference.holdings import Holdings
from kvreference.manager import Manager
from kvreference.operations import Admit, Arrive, Finish, Run
from kvreference.scheduler.limits import Limits
from kvreference.scheduler.operations import Step, Submit
from kvreference.scheduler.scheduler import Scheduler
from kvreference.second_tier import SecondTier
from kvreference.settings import Settings
from kvreference.state import State

SETTINGS = Settings(
    Geometry((Group("full", 2), Group("sliding_window", 2, 3))),
    blocks=16,
    pin_drop_blocks_min=1,
    retention_interval_tokens=2,
)


def changeable(part: Any) -> Iterator[Any]:
    """The states, lists, dictionaries and sets that ``part`` consists of, itself included."""
    if isinstance(part, State):
        yield part
        inside = list(vars(part).values())
    elif isinstance(part, dict):
        yield part
        inside = list(part.values())
    elif isinstance(part, (list, set)):
        yield part
        inside = list(part)
    else:
        inside = []
    for each in inside:
        yield from changeable(each)


def shared(state: Any) -> list[Any]:
    """What a copy of ``state`` has in common with it and can change."""
    its = {id(part) for part in changeable(state)}
    return [part for part in changeable(state.copy()) if id(part) in its]


def manager() -> Manager:
    """A manager with requests, something cached, and a pin."""
    made = Manager(SETTINGS)
    for number in range(2):
        made.apply(Arrive(number, (Run(0, 7),)))
        made.apply(Admit(number, 16))
    made.apply(Finish(0))
    return made


def scheduler() -> Scheduler:
    """A scheduler after a step."""
    made = Scheduler(SETTINGS, Limits())
    made.apply(Submit(Arrive(0, (Run(0, 7),)), 2))
    made.apply(Step())
    return made


def tier() -> SecondTier:
    """A second tier with a job."""
    made = SecondTier(manager().pool, 4)
    made.store(next(block for block in range(1, 16) if made.device.cached.content_of(block)))
    return made


STATES = (manager, scheduler, tier)


@pytest.mark.parametrize("make", STATES, ids=lambda make: str(make.__name__))
def test_a_copy_shares_nothing_that_changes(make: Any) -> None:
    """Goal: an operation on a copy does not change the original. Method: find what both consist of."""
    state = make()
    assert len(list(changeable(state))) > 15
    assert [] == shared(state)
    assert type(state.copy()) is type(state)


def test_what_is_not_named_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: the test can fail. Method: holdings that do not name their tables."""
    state = manager()
    monkeypatch.setattr(Holdings, "changing", ("pool", "copies", "deferred"))
    assert any(part is state.tables for part in shared(state))


def test_the_order_of_a_copied_tier_is_its_queue() -> None:
    """Goal: chunks of a copy are used in its own order. Method: the queue of the host's pool."""
    other = tier().copy()
    assert other.order is other.host.free
