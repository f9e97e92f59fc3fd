"""Chapter 11: a step computes no more tokens, and lets no more requests run, than its limits say.

Of those that run, and of those that wait, two are looked at, one after the other, with any budget before the first: so
what is left after one is all that the next one gets, wherever in the line they stand.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from attrs import validators

from kvreference.operations import Abort, Finish, Sample, Transferred
from kvreference.population import Status
from kvreference.scheduler import scheduler as scheduler_module
from kvreference.scheduler.limits import Reason
from kvreference.scheduler.operations import Reply, Submit
from kvreference.scheduler.progress import is_held_up, is_stuck
from kvreference.scheduler.queues import Queues, Terms
from kvreference.scheduler.scheduler import Scheduler
from kvspec.loops import edited
from kvspec.obligation import Count, Obligation, only
from kvspec.progress.counted import least
from kvspec.proofs.running_requests import Tokens
from kvspec.proofs.running_tables import on_lengths
from kvspec.symbolic import either, negated

SCHEDULER = "kvreference.scheduler.scheduler:Scheduler"
SCHEDULES, ANSWER = Scheduler._schedule_running, Scheduler._answer
"""What they do, where nothing is broken."""


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
    tokens, done, operations = Tokens(u.tokens), list[type](), list[Any]()
    request = SimpleNamespace(tokens=tokens, drafts_in_flight=u.verified)

    def perform(operation: Any) -> None:
        done.append(type(operation))
        operations.append(operation)
        if isinstance(operation, Sample):
            tokens.length = tokens.length + operation.accepted + 1

    its._perform, its.settings = perform, SimpleNamespace(drafts_max=u.drafts_max)
    its.manager, sends = SimpleNamespace(population={1: request}), bool(u.sends == 1)
    its.queues = SimpleNamespace(terms={1: Terms(u.limit, sends=sends)}, leave=lambda _number: done.append(Terms))
    with on_lengths(scheduler_module), validators.disabled():
        its._answer(1, Reply(u.accepted, 7, u.drafts, ends=bool(u.ends == 1)))
    gained = tokens.length - u.tokens
    ends = (u.ends == 1) | (tokens.length == u.limit)
    within = (tokens.length <= u.limit) & (gained >= 1) & (gained <= u.verified + 1) & (gained <= u.accepted + 1)
    sample, *finish = operations
    holds = sample.accepted == least(u.accepted, u.verified, u.limit - u.tokens - 1)
    right = holds & (sample.drafts == least(u.drafts, u.drafts_max)) & (sample.token == 7 and sample.request == 1)
    right = right & all(each == Finish(1, sends) for each in finish)
    return within & right & (ends == (done == [Sample, Finish, Terms])) & (done[:1] == [Sample])


ANSWERS = Obligation(
    id="scheduler-progress.running-answer-stays-within-its-request",
    statements=("KV-LIVE-01", "KV-LIVE-02"),
    title="A request is answered its token, and all the drafts before it that hold, but never more than it may become, "
    "and gets no more new drafts than may be. When it is as long as it may become, or its answer ends it, it ends, for "
    "another node to read it or not, as it was submitted, and leaves the line.",
    unknowns={
        "tokens": Count(1),
        "limit": Count(2),
        "verified": Count(0),
        **{name: Count(0) for name in ("accepted", "drafts", "drafts_max")},
        **{name: Count(0, 1) for name in ("ends", "sends")},
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
            "no-draft-holds",
            "No draft counts as one that holds.",
            f"{SCHEDULER}._answer",
            edited(ANSWER, "Sample(number, accepted,", "Sample(number, 0,"),
        ),
        only(
            "reader-is-forgotten-at-the-end",
            "A request that ends frees its blocks while another node reads them.",
            f"{SCHEDULER}._answer",
            edited(ANSWER, "Finish(number, terms.sends)", "Finish(number, False)"),
        ),
        only(
            "more-drafts-than-may-be",
            "A request gets as many new drafts as the model gives.",
            f"{SCHEDULER}._answer",
            edited(ANSWER, "min(reply.drafts, self.settings.drafts_max)", "reply.drafts"),
        ),
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


class _Arrival:
    """An arrival of which the length of the prompt is known."""

    def __init__(self, tokens: Any) -> None:
        self.request, self.prompt = 5, [SimpleNamespace(length=tokens)]


def _is_accepted(u: Any) -> Any:
    """A request is submitted to a scheduler with two others; of all that are alive the number is known."""
    its: Any = object.__new__(Scheduler)
    its.settings = SimpleNamespace(tokens_max=u.longest, blocks=u.blocks, requests_max=u.most)
    its.queues, its._performed, done = Queues(), [object()], list[Any]()
    its.queues.running, its.queues.waiting = [1], [2]
    its.queues.terms = {1: Terms(9), 2: Terms(9)}
    before = list(its.queues.terms.values())
    its.manager = SimpleNamespace(population=SimpleNamespace(alive=Tokens(u.alive)))
    its._perform = done.append
    tokens_needed: list[Any] = []

    def needs(_settings: Any, tokens: Any) -> Any:
        tokens_needed.append(tokens)
        return u.needs

    arrival: Any = _Arrival(u.prompt)
    loads, sends = bool(u.loads == 1), bool(u.sends == 1)
    with validators.disabled():
        operation = Submit(arrival, u.answers, u.external, loads, sends)
    with on_lengths(scheduler_module), patch.object(scheduler_module, "blocks_to_run", needs):
        observation = its.apply(operation)
    limit = least(u.prompt + u.answers, u.longest)
    fits, alone = u.prompt < u.longest, u.needs <= u.blocks - 1
    others = its.queues.running == [1] and [its.queues.terms[1], its.queues.terms[2]] == before
    if not (others and observation.performed == () and observation.entered == ()):
        return False
    if observation.reason is not None:
        why = {Reason.PROMPT_TOO_LONG: negated(fits), Reason.NEVER_FITS: fits & negated(alone)}
        right = why.get(observation.reason, fits & alone & (u.alive >= u.most))
        return right & (done == [] and its.queues.waiting == [2] and len(its.queues.terms) == 2)
    terms = its.queues.terms[5]
    said = (terms.limit_tokens == limit) & (terms.external_tokens == u.external) & (tokens_needed[0] == limit - 1)
    said = said & (terms.parks == loads and terms.sends == sends and not terms.entered)
    accepted = fits & alone & (u.alive < u.most)
    return accepted & said & (done == [arrival] and its.queues.waiting == [2, 5] and len(tokens_needed) == 1)


SUBMITS = Obligation(
    id="scheduler-progress.accepted-if-it-fits-alone",
    statements=("KV-LIVE-01",),
    title="A request is accepted if and only if its prompt leaves a token to answer, it fits the empty pool up to its "
    "last token but one, and one more may be alive; else the reason is the first of these that does not hold. An "
    "accepted one waits after all others, on the terms on which it was submitted, and those of others stay.",
    unknowns={
        **{name: Count(1) for name in ("prompt", "answers", "longest", "blocks", "most")},
        **{name: Count(0) for name in ("alive", "needs", "external")},
        **{name: Count(0, 1) for name in ("loads", "sends")},
    },
    claim=_is_accepted,
    witnesses={
        "it just fits": lambda u: (
            (u.needs == 6) & (u.blocks == 7) & (u.prompt == 8) & (u.longest == 9) & (u.alive == 2) & (u.most == 3)
        ),
        "one too many": lambda u: (u.needs == 6) & (u.blocks == 9) & (u.prompt == 8) & (u.longest == 9) & (u.most == 1),
    },
    mutants=(
        only(
            "rejected-if-it-just-fits",
            "A request that needs all blocks is rejected.",
            f"{SCHEDULER}._fits_alone",
            edited(Scheduler._fits_alone, "<= self.settings.blocks - 1", "< self.settings.blocks - 1"),
        ),
        only(
            "one-too-few-are-alive",
            "One request fewer may be alive.",
            f"{SCHEDULER}._submit",
            edited(Scheduler._submit, "population.alive) >=", "population.alive) + 1 >="),
        ),
        only(
            "longest-prompt-is-rejected",
            "A prompt must leave two tokens.",
            f"{SCHEDULER}._submit",
            edited(
                Scheduler._submit,
                "operation.prompt_tokens >= self.settings.tokens_max",
                "operation.prompt_tokens >= self.settings.tokens_max - 1",
            ),
        ),
        only(
            "one-answer-each",
            "Each request ends after one answer.",
            f"{SCHEDULER}._submit",
            edited(Scheduler._submit, "operation.prompt_tokens + operation.answers_max", "operation.prompt_tokens + 1"),
        ),
        only(
            "reader-is-forgotten",
            "Of no request it is known that another node reads it.",
            f"{SCHEDULER}._submit",
            edited(Scheduler._submit, "operation.loads, operation.sends", "operation.loads, False"),
        ),
    ),
)


def _leaves_the_line(u: Any) -> Any:
    """A request is aborted, a transfer of it is over, or it gets blocks, while others run and wait."""
    its: Any = object.__new__(Scheduler)
    its.queues, its._performed, done = Queues(), [object()], list[Any]()
    stands = u.stands.__index__()
    its.queues.running = [1, *([5] if stands == 0 else []), 2]
    its.queues.waiting = [3, *([5] if stands == 1 else []), 4]
    terms = Terms(9, u.external, parks=bool(u.parks == 1), sends=bool(u.sends == 1), entered=bool(u.entered == 1))
    its.queues.terms = {number: Terms(9) for number in (1, 2, 3, 4)} | ({5: terms} if stands < 2 else {})
    its._perform = done.append
    if u.way == 2:
        if stands != 1:
            return True
        first, runs = its.queues.admit(5, bool(u.runs == 1)), bool(u.runs == 1)
        now = its.queues.terms[5]
        kept = now == Terms(9, 0, parks=False, sends=terms.sends, entered=True)
        lines = ([1, 2, 5], [3, 4]) if runs else ([1, 2], [3, 5, 4])
        return kept and first != terms.entered and (its.queues.running, its.queues.waiting) == lines
    operation: Any = Abort(5) if u.way == 0 else Transferred(5, bool(u.runs == 1))
    before = (list(its.queues.running), list(its.queues.waiting), dict(its.queues.terms))
    observation = its.apply(operation)
    if u.way == 0:
        before[2].pop(5, None)
        before = ([1, 2], [3, 4], before[2])
    same = (its.queues.running, its.queues.waiting, its.queues.terms) == before
    return same and done == [operation] and observation.performed == () and observation.reason is None


LEAVES = Obligation(
    id="scheduler-progress.only-an-end-leaves-the-line",
    statements=("KV-LIVE-01", "KV-LIVE-02"),
    title="An aborted request leaves the line, wherever it stands, and no other does; when a transfer is over, with "
    "success or without, none does. A request that gets blocks runs after all others, or keeps its place and loads; of "
    "its terms only the offer is used up.",
    unknowns={
        "way": Count(0, 2),
        "stands": Count(0, 2),
        "external": Count(0),
        **{name: Count(0, 1) for name in ("parks", "sends", "entered", "runs")},
    },
    claim=_leaves_the_line,
    witnesses={"a load has failed": lambda u: (u.way == 1) & (u.runs == 0) & (u.stands == 1) & (u.parks == 0)},
    mutants=(
        only(
            "leaves-when-its-load-is-over",
            "A request leaves the line when a transfer of it is over.",
            f"{SCHEDULER}.apply",
            edited(Scheduler.apply, "isinstance(operation, Abort)", "isinstance(operation, (Abort, Transferred))"),
        ),
        only(
            "offer-is-good-again",
            "What another node offers is offered again after a preemption.",
            "kvreference.scheduler.queues:Queues.admit",
            edited(Queues.admit, "external_tokens=0, ", ""),
        ),
        only(
            "reader-is-forgotten-when-admitted",
            "Of an admitted request it is not known any more that another node reads it.",
            "kvreference.scheduler.queues:Queues.admit",
            edited(Queues.admit, "external_tokens=0, ", "external_tokens=0, sends=False, "),
        ),
    ),
)

STATUSES = tuple(Status)


def _is_told(u: Any) -> Any:
    """What is said of a step that advanced a request or none, with two requests alive or none."""
    its: Any = object.__new__(Scheduler)
    statuses = [STATUSES[which.__index__()] for which in (u.first, u.second)]
    alive = {n: SimpleNamespace(status=status) for n, status in enumerate(statuses, 1)} if u.alive == 1 else {}
    its.manager, its.queues = SimpleNamespace(population=SimpleNamespace(alive=alive)), Queues()
    its.queues.terms = {1: Terms(9)} if u.in_line == 1 else {}
    step: Any = SimpleNamespace(advanced=bool(u.advanced == 1))
    under_way = [n for n in alive if alive[n].status in (Status.LOADING, Status.ENDING)]
    rests = not step.advanced
    held_up, stuck = is_held_up(its, step), is_stuck(its, step)
    right = stuck == (rests and bool(u.in_line == 1) and under_way == [])
    return right and held_up == (rests and under_way != []) and its.transfers() == under_way


TELLS = Obligation(
    id="scheduler-progress.told-apart",
    statements=("KV-LIVE-03",),
    title="A step that advances no request is held up if a transfer is under way, of a load or of a request that has "
    "ended; it is a hang if none is and a request runs or waits. No step is both.",
    unknowns={
        **{name: Count(0, len(STATUSES) - 1) for name in ("first", "second")},
        **{name: Count(0, 1) for name in ("alive", "in_line", "advanced")},
    },
    claim=_is_told,
    witnesses={"one that has ended is read": lambda u: (u.first == STATUSES.index(Status.ENDING)) & (u.alive == 1)},
    mutants=(
        only(
            "readers-hold-nothing-up",
            "A request that has ended and is still read counts as no transfer.",
            f"{SCHEDULER}.transfers",
            edited(Scheduler.transfers, ", Status.ENDING", ""),
        ),
        only(
            "waiting-is-no-hang",
            "No hang is seen while none runs.",
            f"{__name__}:is_stuck",
            edited(is_stuck, "scheduler.queues.terms", "scheduler.queues.running"),
        ),
    ),
)

OBLIGATIONS = (LIMITS, ANSWERS, SUBMITS, LEAVES, TELLS)
