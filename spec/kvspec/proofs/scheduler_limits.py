"""Chapter 11: a step computes no more tokens, and lets no more requests run, than its limits say.

Of those that run, and of those that wait, two are looked at, one after the other, with any budget before the first: so
what is left after one is all that the next one gets, wherever in the line they stand.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from attrs import validators

from kvreference.operations import Finish, Sample
from kvreference.population import Status
from kvreference.scheduler import scheduler as scheduler_module
from kvreference.scheduler.operations import Reply
from kvreference.scheduler.queues import Terms
from kvreference.scheduler.scheduler import Scheduler
from kvspec.obligation import Count, Obligation, only
from kvspec.proofs.running_requests import Tokens
from kvspec.proofs.running_tables import on_lengths
from kvspec.symbolic import either

SCHEDULER = "kvreference.scheduler.scheduler:Scheduler"
SCHEDULES = Scheduler._schedule_running
"""What it does, where nothing is broken."""


def _line(u: Any, running: Any) -> tuple[Any, list[Any]]:
    """A scheduler that asks two requests, and how many tokens each of them computed when it was asked.

    A request computes no more than it may: ``scheduler-progress.running-step-stops-at-the-longest``.
    """
    computed: list[Any] = []
    its: Any = object.__new__(Scheduler)

    def compute(operation: Any) -> Any:
        if u.rejected == operation.request:
            return None
        pending = (u.first, u.second)[operation.request - 1]
        computed.append(either(pending < operation.tokens, pending, operation.tokens))
        return computed[-1]

    def admit(_number: int, runs: bool) -> bool:
        running.length = running.length + (1 if runs else 0)
        return True

    its.limits = SimpleNamespace(running_max=u.most)
    its.queues = SimpleNamespace(
        running=running, waiting=[1, 2], terms=dict.fromkeys((1, 2), Terms(9)), admit=admit, preempt=running.pop
    )
    statuses = (Status.RUNNING, Status.LOADING if u.loads == 1 else Status.RUNNING)
    its.manager = SimpleNamespace(
        population={number: SimpleNamespace(status=status) for number, status in enumerate(statuses, 1)}
    )
    its._compute, its._is_ready, its._leaves_room = compute, lambda _number: True, lambda _number: True
    its._perform = lambda _operation: None
    return its, computed


class _Running(Tokens):
    """The requests that run, of which only the number is known."""

    def pop(self) -> int:
        """The last of them is preempted."""
        return 0


def _admits_within(u: Any) -> Any:
    running = _Running(u.running)
    its, computed = _line(u, running)
    with on_lengths(scheduler_module), validators.disabled():
        its._admit_waiting(u.budget)
    return (sum(computed) <= u.budget) & (running.length <= u.most)


def _serves_within(u: Any) -> Any:
    """Two that run are served; the last of them may lose its blocks to the first."""

    class TwoRun(list[int]):
        def pop(self, *_: Any) -> int:
            """One that is preempted."""
            return super().pop()

    its, computed = _line(u, TwoRun([1, 2]))
    with validators.disabled():
        left = its._schedule_running(u.budget)
    total: Any = sum(computed)
    return (total <= u.budget) & (left is None or left == u.budget - total)


LIMITS = Obligation(
    id="scheduler-progress.running-step-stays-within-its-limits",
    statements=("KV-SYS-03",),
    title="However many requests a step serves and admits, they compute no more tokens together than its budget has, "
    "and no more run after it than may. What is left of the budget is what the running ones have not used.",
    unknowns={
        **{name: Count(1) for name in ("budget", "first", "second", "most")},
        "running": Count(0),
        "rejected": Count(0, 2),
        "loads": Count(0, 1),
    },
    assumes=lambda u: u.running <= u.most,
    claim=lambda u: _admits_within(u) & _serves_within(u),
    witnesses={
        "the second gets what is left": lambda u: (
            (u.budget == 9) & (u.first == 4) & (u.second == 8) & (u.most == 3) & (u.running == 1) & (u.rejected == 0)
        ),
        "as many run as may": lambda u: (u.running == u.most) & (u.budget == 9) & (u.rejected == 0),
    },
    mutants=(
        only(
            "served-for-nothing",
            "What running requests compute is not taken off the budget.",
            f"{SCHEDULER}._schedule_running",
            lambda self, budget: SCHEDULES(self, budget) and budget,
        ),
    ),
)


def _answers_within(u: Any) -> Any:
    """A request is answered; what its manager does to its tokens is ``eagle.running-answer-takes-back-what-failed``."""
    its: Any = object.__new__(Scheduler)
    tokens, done = Tokens(u.tokens), list[type]()
    request = SimpleNamespace(tokens=tokens, drafts_in_flight=u.verified)

    def perform(operation: Any) -> None:
        done.append(type(operation))
        if isinstance(operation, Sample):
            tokens.length = tokens.length + operation.accepted + 1

    its._perform, its.settings = perform, SimpleNamespace(drafts_max=1)
    its.manager = SimpleNamespace(population={1: request})
    its.queues = SimpleNamespace(terms={1: Terms(u.limit)}, leave=lambda _number: done.append(Terms))
    with on_lengths(scheduler_module), validators.disabled():
        its._answer(1, Reply(u.accepted, 7, ends=bool(u.ends == 1)))
    gained = tokens.length - u.tokens
    ends = (u.ends == 1) | (tokens.length == u.limit)
    within = (tokens.length <= u.limit) & (gained >= 1) & (gained <= u.verified + 1) & (gained <= u.accepted + 1)
    return within & (ends == (done == [Sample, Finish, Terms])) & (done[:1] == [Sample])


ANSWERS = Obligation(
    id="scheduler-progress.running-answer-stays-within-its-request",
    statements=("KV-LIVE-01", "KV-LIVE-02"),
    title="A request is answered a token, and the drafts before it that hold, but never more than it may become: when "
    "it is as long as that, or its answer ends it, it ends and leaves the line.",
    unknowns={
        "tokens": Count(1),
        "limit": Count(2),
        "verified": Count(0),
        "accepted": Count(0),
        "ends": Count(0, 1),
    },
    assumes=lambda u: u.tokens < u.limit,
    claim=_answers_within,
    witnesses={
        "the limit cuts the drafts": lambda u: (u.tokens == 7) & (u.limit == 9) & (u.verified == 4) & (u.accepted == 4),
        "it continues": lambda u: (
            (u.tokens == 7) & (u.limit == 20) & (u.accepted == 2) & (u.verified == 4) & (u.ends == 0)
        ),
    },
    mutants=(
        only(
            "ends-a-token-early",
            "A request ends a token before it is as long as it may become.",
            f"{SCHEDULER}._answer",
            lambda self, number, reply: _ends_early(self, number, reply),
        ),
    ),
)


def _ends_early(self: Any, number: int, reply: Reply) -> None:
    terms = self.queues.terms[number]
    self.queues.terms = {number: Terms(terms.limit_tokens - 1)}
    ANSWER(self, number, reply)


ANSWER = Scheduler._answer

OBLIGATIONS = (LIMITS, ANSWERS)
