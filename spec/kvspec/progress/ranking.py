"""The ranking: what a step, an answer, a preemption and an admission do to the steps that a request still needs.

``steps_to_end`` of the reference is run as it is. A chunk is computed by the reference's own books
(``Population._compute``); how many of the drafts hold is not known.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kvreference.answers import Granted
from kvreference.operations import Preempt
from kvreference.population import Request, Status
from kvreference.scheduler import progress
from kvreference.scheduler.progress import steps_to_end
from kvreference.scheduler.queues import Terms
from kvreference.scheduler.scheduler import Scheduler
from kvspec.progress.counted import CountedPopulation
from kvspec.progress.stand_ins import counted, least, length_of, request_of, scheduler_of, settings_of


def line_of(u: Any, requests: list[Request], terms: dict[int, Terms], block_tokens: Any = None) -> Scheduler:
    """A scheduler with ``requests`` in line, and the limits of a step."""
    settings = settings_of(state_block_tokens=block_tokens, chunk_tokens=u.chunk, tokens_max=u.tokens_max)
    return scheduler_of(settings, SimpleNamespace(budget_tokens=u.budget), requests, terms)


def first_of(u: Any, block_tokens: Any = None) -> Scheduler:
    """A scheduler whose first request runs, and has something to compute."""
    first = request_of(0, u.tokens, u.computed, Status.RUNNING, u.drafts)
    return line_of(u, [first], {0: Terms(u.limit)}, block_tokens)


def compute(scheduler: Scheduler, number: int, budget_tokens: Any) -> None:
    """A request that runs was given its blocks: its next tokens count as computed."""
    books = scheduler.manager.population
    books._compute(books[number], budget_tokens, Granted(0, ()))


def answer(scheduler: Scheduler, number: int, accepted: Any) -> Any:
    """Drafts hold and one token more is answered; whether the request is over."""
    request = scheduler.manager.population[number]
    told: Any = SimpleNamespace(accepted=accepted, drafts=0)
    books: Any = scheduler.manager.population
    CountedPopulation._answer(books, request, told)
    return length_of(request.tokens) == scheduler.queues.terms[number].limit_tokens


def token_before_and_after(u: Any, block_tokens: Any = None) -> tuple[Any, Any]:
    """The steps to the next answer of the first in line, before and after a step that gives it blocks; then it is 0."""
    with counted():
        scheduler = first_of(u, block_tokens)
        before = progress.steps_to_answer(scheduler, 0)
        compute(scheduler, 0, u.budget)
        answered = scheduler.manager.population[0].answers_next
        return before, 0 if answered else progress.steps_to_answer(scheduler, 0)


def steps_before_and_after(u: Any, block_tokens: Any = None) -> tuple[Any, Any]:
    """The first in line's steps to its end, before and after a step that gives it blocks."""
    with counted():
        scheduler = first_of(u, block_tokens)
        before = steps_to_end(scheduler, 0)
        compute(scheduler, 0, u.budget)
        request = scheduler.manager.population[0]
        if not request.answers_next:
            return before, steps_to_end(scheduler, 0)
        # What is beyond the request's limit was never said.
        accepted = least(u.accepted, request.drafts_in_flight, u.limit - u.tokens - 1)
        if answer(scheduler, 0, accepted):
            return before, 0
        return before, steps_to_end(scheduler, 0)


def another_before_and_after(u: Any, block_tokens: Any = None) -> tuple[Any, Any]:
    """The steps of one that runs behind the first, before and after it is answered."""
    with counted():
        first = request_of(0, 1, 0, Status.RUNNING)
        other = request_of(1, u.tokens, u.tokens, Status.RUNNING, u.accepted)
        scheduler = line_of(u, [first, other], {0: Terms(2), 1: Terms(u.limit)}, block_tokens)
        other.drafts_in_flight = u.accepted
        before = progress._steps_alone(scheduler, 1)
        ends = answer(scheduler, 1, u.accepted)
        return before, 0 if ends else progress._steps_alone(scheduler, 1)


def becoming_first(u: Any, block_tokens: Any = None) -> tuple[Any, Any]:
    """The steps of one that runs behind another, and then before all."""
    with counted():
        first = request_of(0, 1, 0, Status.RUNNING)
        other = request_of(1, u.tokens, u.computed, Status.RUNNING)
        scheduler = line_of(u, [first, other], {0: Terms(2), 1: Terms(u.limit)}, block_tokens)
        before = progress._steps_alone(scheduler, 1)
        scheduler.queues.leave(0)
        return before, steps_to_end(scheduler, 1)


def in_line(u: Any) -> Scheduler:
    """Three that run and two that wait, the first of which would load."""
    running = [request_of(n, getattr(u, f"tokens{n}"), getattr(u, f"computed{n}"), Status.RUNNING) for n in range(3)]
    waiting = [request_of(n, getattr(u, f"tokens{n}")) for n in range(3, 5)]
    terms = {n: Terms(getattr(u, f"tokens{n}") + 1, parks=n == 3) for n in range(5)}
    return line_of(u, [*running, *waiting], terms)


def preempted(u: Any) -> list[tuple[Any, Any]]:
    """Everybody's steps to the end, before and after the last that runs is preempted."""
    with counted():
        scheduler = in_line(u)
        before = [steps_to_end(scheduler, number) for number in range(5)]
        number = scheduler.queues.preempt()
        scheduler.manager.population.settle(Preempt(number), Granted(0, ()))
        return [(then, steps_to_end(scheduler, n)) for n, then in enumerate(before)]


def let_in(u: Any, number: int, runs: bool) -> list[tuple[Any, Any]]:
    """The steps of all others that wait for no transfer, before and after a waiting one was given blocks."""
    with counted():
        scheduler = in_line(u)
        others = [n for n in range(5) if n != number and not (number == 4 and n == 3)]
        before = {n: steps_to_end(scheduler, n) for n in others}
        scheduler.queues.let_in(number, runs)
        return [(before[n], steps_to_end(scheduler, n)) for n in others]
