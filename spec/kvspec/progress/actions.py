"""What a step is made of, and what is proved of each part: why a step that is not held up brings all requests nearer.

A step asks its block manager for these actions and for nothing else, in this order, however many requests are alive
(``STEP``). To one request no more is done in a step than this: it is given blocks, or loses them; it is answered; it
ends. What is done to it changes no other request's steps, but those of the one that becomes the first (``ACTIONS``). So
the steps of each request by itself do not grow, those of the first fall, and no request passes another but one that
loads. A rank is a sum of them over those that stand before, and all of these are counted (``COUNTED``): each rank falls
by at least one. No action takes room.

A test compares the actions with the source of the scheduler: it asks for nothing that is not here.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from kvreference import operations
from kvreference.operations import (
    Abort,
    Admit,
    Arrive,
    Dispatch,
    Finish,
    Preempt,
    Sample,
    Schedule,
    TakeEvents,
    Transferred,
)

STEP = (
    "scheduler-progress.all-that-run-are-served-in-order",
    "scheduler-progress.all-that-wait-are-admitted-in-order",
    "scheduler-progress.step-is-dispatched-before-its-answers",
)
"""That a step makes these actions, of those requests and with what is left, and makes no others."""
COUNTED = ("scheduler-progress.every-request-ahead-is-counted",)
"""That a bound adds the steps of each request ahead."""

_ROOM = "scheduler-progress.nothing-else-breaks-room"
_LEAVES = ("scheduler-progress.ends-and-arrivals-add-nothing", "scheduler-progress.first-keeps-what-it-computed", _ROOM)

ACTIONS: Mapping[type[operations.Operation], tuple[str, ...]] = MappingProxyType(
    {
        Schedule: (
            "scheduler-progress.first-of-any-line-is-served",
            "scheduler-progress.step-brings-the-first-nearer",
            "scheduler-progress.state-blocks-bring-nearer",
            "scheduler-progress.next-token-comes-nearer",
            "scheduler-progress.step-brings-every-request-nearer",
            "scheduler-progress.bounds-count-down",
            "scheduler-progress.later-chunk-adds-nothing",
            _ROOM,
        ),
        Preempt: ("scheduler-progress.preemption-adds-nothing", _ROOM),
        Admit: (
            "scheduler-progress.first-of-any-line-is-admitted",
            "scheduler-progress.none-is-tried-before-an-earlier-one",
            "scheduler-progress.admission-brings-the-first-nearer",
            "scheduler-progress.admission-adds-nothing",
            "scheduler-progress.later-chunk-adds-nothing",
            "scheduler-progress.admission-keeps-room",
        ),
        Dispatch: ("partial-hits.running-dispatch",),
        Sample: (
            "scheduler-progress.step-brings-the-first-nearer",
            "scheduler-progress.answer-adds-nothing",
            "scheduler-progress.running-answer-stays-within-its-request",
            _ROOM,
        ),
        Finish: _LEAVES,
        TakeEvents: ("kv-events.running-reports-in-order",),
        Arrive: ("scheduler-progress.ends-and-arrivals-add-nothing", _ROOM),
        Abort: _LEAVES,
        Transferred: (_ROOM,),
    }
)
"""What a scheduler asks its block manager for, and what is proved of it: the last three are no parts of a step."""

ASKS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "apply": ("operation",),
        "_compute": ("operation",),
        "_submit": ("operation.arrival",),
        "_step": ("Dispatch", "TakeEvents"),
        "_schedule_running": ("Schedule", "Preempt"),
        "_admit_waiting": ("Admit",),
        "_answer": ("Sample", "Finish"),
    }
)
"""The methods of the scheduler that ask, and what for: for an action, or for the one that they were given."""
