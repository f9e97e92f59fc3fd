"""Chapter 11: the bounds that are promised for an admission and for an answer count down.

A bound on steps is kept if it falls with each step that is not held up, if nothing else adds to it, and if it is at
least 1 until what it is about has happened. That nothing adds to it is proved together with the steps to the end
(``scheduler_line``). With no request ahead, one step admits a request, and its own tokens are computed
(``scheduler_line``, ``scheduler_ranking``).

A line has few entries here, some of which stand for any number of requests. That ``Queues.ahead_of`` drops none of a
line with more entries is left to tests.
"""

from __future__ import annotations

from typing import Any

from kvreference.scheduler import progress
from kvspec.obligation import Obligation, only
from kvspec.proofs.scheduler_line import EVERYBODY, served


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

OBLIGATIONS = (BOUNDS,)
