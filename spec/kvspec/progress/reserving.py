"""Room: what is said to be needed is enough, and stays so whoever is let in.

Requests are two that are not known and all others together: what is said of any two is said of all, and of the others
nothing counts but how much they have parked.
"""

from __future__ import annotations

from typing import Any

from kvreference.population import Status
from kvreference.scheduler import room
from kvreference.scheduler.queues import Terms
from kvreference.scheduler.room import blocks_parked
from kvreference.scheduler.scheduler import Scheduler
from kvspec.progress.stand_ins import counted, request_of, scheduler_of, settings_of, tables_of

OTHER, NEW, REST = range(3)
"""One that was let in, one that asks to be, and all others that have parked blocks."""


def finds_its_blocks(u: Any) -> Any:
    """Whether the first in line finds the blocks that it wants, with everybody behind it preempted.

    It holds some already. Of all others, only what they have parked is left.
    """
    is_room = room.is_room(u.blocks, {OTHER: u.needed}, {OTHER: 0, REST: u.parked})
    return not is_room or u.wanted - u.held <= u.blocks - u.parked - u.held


def line_with_another(u: Any) -> Scheduler:
    """Somebody that runs or waits with its blocks, and somebody that is let in if there is room.

    What a request needs is taken to be as many blocks as it has tokens: whatever else it were, it would be a number
    that grows with them.
    """
    status = Status.RUNNING if u.other_runs else Status.WAITING
    other, new = request_of(OTHER, 1, status=status), request_of(NEW, u.tokens)
    terms = {
        OTHER: Terms(u.other_needed + 1, entered=True),
        NEW: Terms(u.needed + 1, u.external, bool(u.parks), entered=bool(u.entered)),
    }
    made = scheduler_of(settings_of(u.blocks + 1), None, [other, new], terms)
    made.manager.tables.update(tables_of({OTHER: u.other_held, NEW: u.held, REST: u.rest}))
    vars(made)["_blocks_to_run"] = lambda tokens: tokens
    return made


def has_room(made: Scheduler, number: int, needed: Any) -> bool:
    """Whether a request gets to its end beside what the others have parked."""
    return room.is_room(
        made.settings.blocks - 1, {number: needed}, blocks_parked(made.manager.tables, made.queues.running)
    )


def had_room(u: Any) -> bool:
    """Whether whoever was let in before had room."""
    with counted():
        made = line_with_another(u)
        before = not u.entered or has_room(made, NEW, u.needed)
        return before and has_room(made, OTHER, u.other_needed)


def has_room_behind(u: Any) -> Any:
    """Whether both have room once the one that asks was let in, if it was: to load into what it parks, or to run."""
    with counted():
        made = line_with_another(u)
        if not made._leaves_room(NEW):
            return True
        made.manager.tables.update(tables_of({NEW: u.takes}))
        made.queues.let_in(NEW, runs=not u.parks)
        return has_room(made, OTHER, u.other_needed) and has_room(made, NEW, u.needed)


def leaves_room(u: Any) -> Any:
    """Whether the request that asks is let in."""
    with counted():
        return line_with_another(u)._leaves_room(NEW)
