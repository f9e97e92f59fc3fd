"""What a step is made of, and what is proved of each part: why a step that is not held up brings all requests nearer.

However many requests are alive, a step asks its block manager for these actions and for nothing else, in this order,
and lets no request pass another but one that loads (``STEP``). So to one request no more is done in a step than this:
it gets blocks, or loses them; it is answered; it ends. All of this together adds nothing to its steps, and if it stands
before all others and gets blocks, it needs one step less (``RANK``). It gets them, unless a transfer holds the step up.
A rank is a sum over all that stand before, each counted once, and itself (``RANK``). So each step that is not held up
takes at least one from every rank. No action takes room (``ACTIONS``).

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
RANK = (
    "scheduler-progress.step-adds-nothing-to-any-request",
    "scheduler-progress.step-adds-nothing-to-any-request-with-states",
    "scheduler-progress.every-request-ahead-is-counted",
)
"""That what a step does to one request adds nothing to its steps, and takes one from those of the first; and that a
bound adds the steps of each request ahead."""

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
            _ROOM,
        ),
        Preempt: ("scheduler-progress.preemption-adds-nothing", _ROOM),
        Admit: (
            "scheduler-progress.first-of-any-line-is-admitted",
            "scheduler-progress.none-is-tried-before-an-earlier-one",
            "scheduler-progress.admission-adds-nothing",
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
        Transferred: ("scheduler-progress.transfer-adds-nothing", _ROOM),
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
