"""Chapter 11: the bounds that are promised for an admission and for an answer count down.

A bound on steps is kept if it falls with each step that is not held up, if nothing else adds to it, and if it is at
least 1 until what it is about has happened. That nothing adds to it is proved together with the steps to the end
(``scheduler_line``). With no request ahead, one step admits a request, and its own tokens are computed
(``scheduler_line``, ``scheduler_ranking``).

There a line has few entries, some of which stand for any number of requests. That every one of a line of any length is
counted is proved by itself: of two queues in which one request is asked about, another one is observed, and any number
stand before, between and after them.
"""

from __future__ import annotations

from itertools import islice
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from kvreference.scheduler import progress
from kvreference.scheduler.queues import Queues
from kvspec.obligation import Count, Obligation, only
from kvspec.proofs.scheduler_line import EVERYBODY, served
from kvspec.sequences import Parts, Stretch
from kvspec.symbolic import implies
from kvspec.turns import one_by_one


def admission(u: Any) -> tuple[Any, Any]:
    """The bound on the steps to an admission, before and after a step that gives the first its next tokens."""
    return served(u, lambda made, number: progress.steps_to_admission(made, number))


def answer(u: Any) -> tuple[Any, Any]:
    """The bound on the steps to the next answer of a later request, before and after such a step."""
    return served(u, lambda made, number: progress.steps_to_answer(made, number))


def _count_down(*bounds: tuple[Any, Any]) -> Any:
    shown: Any = True
    for before, after in bounds:
        shown = shown & (after < before) & (after >= 1)
    return shown


BOUNDS = Obligation(
    id="scheduler-progress.bounds-count-down",
    statements=("KV-LIVE-01", "KV-LIVE-02"),
    title="With any number of requests, a step that gives the first its next tokens takes at least one from the bound "
    "on the steps to each later request's admission, and from the one on those to its next answer. Until then, both "
    "are at least 1.",
    unknowns=EVERYBODY.unknowns,
    assumes=EVERYBODY.assumes,
    claim=lambda u: _count_down(admission(u), answer(u)),
    witnesses={
        "it is admitted next": lambda u: (
            (u.runs == 0) & (u.others_run == 0) & (u.steps11 == 0) & (admission(u)[1] == 1) & (answer(u)[1] >= 3)
        ),
        "others are between": lambda u: (u.others_run == 1) & (u.steps10 >= 2) & (u.steps11 >= 2) & (u.runs == 0),
    },
    mutants=(
        only(
            "next-step-is-promised",
            "A request is promised to be admitted in the next step.",
            "kvreference.scheduler.progress:steps_to_admission",
            lambda _scheduler, _number: 1,
        ),
        only(
            "own-step-is-not-counted",
            "The step in which a request is admitted is not counted.",
            "kvreference.scheduler.progress:steps_to_admission",
            lambda scheduler, number: progress._steps_ahead(scheduler, number),
        ),
        only(
            "those-ahead-are-not-counted",
            "A request is promised its answer after its own tokens are computed.",
            "kvreference.scheduler.progress:steps_to_answer",
            lambda scheduler, number: progress._steps_to_compute(scheduler, scheduler.manager.population[number]),
        ),
    ),
)


ASKED, OTHER = 1, 2
"""The request that is asked about, and another one."""
QUEUES = "kvreference.scheduler.queues:Queues"
_AHEAD = Queues.ahead_of
"""How it is counted, where nothing is broken."""


def _lines(u: Any) -> tuple[Queues, dict[Any, Any]]:
    """Both queues, of which so many of the two requests run; and of all that stand before the one asked, the steps."""
    two = [ASKED, OTHER] if u.asked_first == 1 else [OTHER, ASKED]
    run = u.run.__index__()
    stretches: dict[Any, Any] = {
        Stretch(getattr(u, f"count{place}")): getattr(u, f"steps{place}") for place in range(4)
    }
    first, second, third, last = stretches
    running: list[Any] = [[first], [first, two[0], second], [first, two[0], second, two[1], third]][run]
    waiting: list[Any] = [[second, two[0], third, two[1], last], [third, two[1], last], [last]][run]
    queues, lines = Queues(), (Parts(running), Parts(waiting))
    queues.running, queues.waiting = lines  # type: ignore[assignment]  # for lists
    whole = [*running, *waiting]
    steps = {**stretches, OTHER: u.others}
    return queues, {part: steps[part] for part in whole[: whole.index(ASKED)]}


def _none_takes_none(u: Any) -> Any:
    """Where a stretch is empty, it adds no steps."""
    fine: Any = True
    for place in range(4):
        fine = fine & implies(getattr(u, f"count{place}") == 0, getattr(u, f"steps{place}") == 0)
    return fine


def _is_any(part: Any) -> bool:
    """Whether it is a request, or at least one."""
    return not isinstance(part, Stretch) or bool(part.count >= 1)


def every_one_is_counted(u: Any) -> Any:
    """Whether exactly those that stand before it are ahead of a request, and each bound adds the steps of each."""
    queues, before = _lines(u)
    ahead: Any = queues.ahead_of(ASKED)
    if list(filter(_is_any, ahead)) != list(filter(_is_any, before)):
        return False
    scheduler: Any = SimpleNamespace(queues=queues, manager=SimpleNamespace(population={ASKED: None}))
    alone = {**before, ASKED: u.alone}
    with (
        patch.object(progress, "_steps_alone", lambda _scheduler, part: alone[part]),
        patch.object(progress, "_steps_to_compute", lambda *_: u.compute),
    ):
        bounds = progress.steps_to_admission, progress.steps_to_answer, progress.steps_to_end
        admission, answer, end = (bound(scheduler, ASKED) for bound in bounds)
    total: Any = sum(before.values())
    adds = (admission == total + 1) & (answer == total + u.compute) & (end == total + u.alone)
    return adds & (one_by_one(progress._steps_ahead) == 1)


def _steps_of_a_hundred(scheduler: Any, number: int) -> Any:
    ahead = scheduler.queues.ahead_of(number)
    return sum(progress._steps_alone(scheduler, other) for other in islice(ahead, 100))


def _steps_of_every_second(scheduler: Any, number: int) -> Any:
    ahead = enumerate(scheduler.queues.ahead_of(number))
    return sum(progress._steps_alone(scheduler, other) for place, other in ahead if place % 2 == 0)


COUNTED = Obligation(
    id="scheduler-progress.every-request-ahead-is-counted",
    statements=("KV-LIVE-01", "KV-LIVE-02", "KV-LIVE-03"),
    title="However many run, and however many wait, exactly those that stand before a request are counted in the "
    "bounds on its steps, each once: all that run before it, and, if it waits, all that run and those that wait "
    "before it.",
    unknowns={
        **{f"{name}{place}": Count() for place in range(4) for name in ("count", "steps")},
        **{name: Count() for name in ("others", "alone", "compute")},
        "asked_first": Count(0, 1),
        "run": Count(0, 2),
    },
    assumes=_none_takes_none,
    claim=every_one_is_counted,
    witnesses={
        "many run before it, and many wait": lambda u: (
            (u.run == 1) & (u.asked_first == 0) & (u.count0 >= 5) & (u.count1 >= 5) & (u.count2 >= 5)
        ),
        "none is before it": lambda u: (u.run == 2) & (u.asked_first == 1) & (u.count0 == 0) & (u.count1 >= 3),
    },
    mutants=(
        only(
            "only-a-hundred-are-ahead",
            "Only the first hundred of those ahead of a request are counted.",
            f"{QUEUES}.ahead_of",
            lambda self, number: _AHEAD(self, number)[:100],
        ),
        only(
            "those-that-wait-are-not-ahead",
            "Of those ahead of a request only the ones that run are counted.",
            f"{QUEUES}.ahead_of",
            lambda self, number: self.running if number not in self.running else _AHEAD(self, number),
        ),
        only(
            "those-that-wait-are-ahead-of-those-that-run",
            "Those that wait are counted before those that run.",
            f"{QUEUES}.ahead_of",
            lambda self, number: (line := self.waiting + self.running)[: line.index(number)],
        ),
        only(
            "those-behind-are-counted",
            "All that are alive are counted.",
            f"{QUEUES}.ahead_of",
            lambda self, number: self.running + self.waiting,
        ),
        only(
            "steps-of-a-hundred",
            "Only the steps of the first hundred ahead of a request are added.",
            "kvreference.scheduler.progress:_steps_ahead",
            _steps_of_a_hundred,
        ),
        only(
            "steps-of-every-second",
            "Of those ahead of a request, the steps of every second one are added.",
            "kvreference.scheduler.progress:_steps_ahead",
            _steps_of_every_second,
        ),
    ),
)

OBLIGATIONS = (BOUNDS, COUNTED)
