"""Chapter 11: any number of running and waiting requests.

Between two requests there may be any number of others, none included. No code that runs asks which they are. Of those
ahead of a request only the sum of their steps counts; of those that wait for remote KV only the sum of their blocks. So
a part of a queue is one entry here, with a sum that is not known. A watched request, at any place, shows that no
operation adds to such a sum.

A step is cut where the code asks for a request the second time: what was done up to there is one round. Rounds end by
induction over how many run after the first, since each takes one of them away. In a round the running block manager is
asked, over the promises of ``kvspec.progress.promised``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from attrs import Factory, define, evolve

from kvreference import population
from kvreference.answers import Done, Granted, Refused
from kvreference.manager import Manager
from kvreference.operations import Admit, Preempt, Schedule, Transferred
from kvreference.population import Population, Status
from kvreference.scheduler import progress, room
from kvreference.scheduler.progress import steps_to_end
from kvreference.scheduler.queues import Terms
from kvreference.scheduler.scheduler import Scheduler
from kvspec.obligation import AMap, Count, Obligation, Unknown, only
from kvspec.progress.counted import (
    Counted,
    counted,
    least,
    length_of,
    most,
    on_counts,
    request_of,
    scheduler_of,
    settings_of,
)
from kvspec.progress.promised import (
    ASKED,
    Promised,
    adds_up,
    asked_of,
    leaves_a_token,
    passes_within,
    promised,
    releases_some,
    serves_at_once,
    stays_within,
)
from kvspec.progress.queued import Queued
from kvspec.proofs.scheduler_ranking import SERVED, UNKNOWNS, answer, compute, falls, line_of, never_grows

FIRST, RUNS, LAST, WAITS, BACK = range(5)
"""Requests, by where they stand: first of those that run, among them, last of them, and two that wait."""
PARTS = range(10, 14)
"""Parts of the line: any number of requests each."""


@contextmanager
def in_parts(u: Any) -> Iterator[None]:
    """Meanwhile each part of a line needs as many steps as all its requests together."""
    alone = progress._steps_alone

    def steps_alone(scheduler: Scheduler, number: int) -> Any:
        return getattr(u, f"steps{number}") if number in PARTS else alone(scheduler, number)

    with counted(), patch.object(progress, "_steps_alone", steps_alone):
        yield


def line(u: Any, running: Sequence[int], waiting: Sequence[int]) -> Scheduler:
    """A line of requests and parts, in this order; the second of those that wait would load."""
    requests = {
        n: request_of(n, getattr(u, f"tokens{n}"), getattr(u, f"computed{n}") if n in running else 0)
        for n in (*running, *waiting)
        if n not in PARTS
    }
    for n in running:
        if n in requests:
            requests[n].status = Status.RUNNING
    terms = {n: Terms(getattr(u, f"tokens{n}") + getattr(u, f"answers{n}"), parks=n == BACK) for n in requests}
    made = line_of(u, list(requests.values()), terms)
    made.queues.running, made.queues.waiting = list(running), Queued(waiting)  # type: ignore[assignment]  # for a list
    return made


def place_of(u: Any, *places: int) -> int:
    """Where the request stands that is watched."""
    return places[int(u.watched.__index__())]


def steps(made: Scheduler, watched: int) -> tuple[Any, ...]:
    """The steps of the request that is watched: to its end, those that it needs by itself, and the other bounds."""
    bounds = progress.steps_to_admission(made, watched), progress.steps_to_answer(made, watched)
    return steps_to_end(made, watched), progress._steps_alone(made, watched), *bounds


def preempted(u: Any) -> list[tuple[Any, Any]]:
    """The steps of any request, before and after the last that runs is preempted."""
    with in_parts(u):
        watched = place_of(u, FIRST, RUNS, LAST, WAITS)
        between = [RUNS, 11] if watched == RUNS else []
        behind = [WAITS, 13] if watched == WAITS else []
        made = line(u, [FIRST, 10, *between, LAST], [12, *behind])
        before = steps(made, watched)
        made.manager.population.settle(Preempt(made.queues.preempt()), Granted(0, ()))
        return list(zip(before, steps(made, watched), strict=True))


def admitted(u: Any) -> list[tuple[Any, Any]]:
    """The steps of any request that is not passed, before and after a waiting one is admitted, to run or to load.

    Before it only requests wait that load: it may pass them, and nothing is said of those.
    """
    with in_parts(u):
        watched = place_of(u, FIRST, RUNS, BACK, WAITS)
        running = [FIRST, 10] if watched in (FIRST, RUNS) or u.others_run == 1 else []
        between = [RUNS, 11] if watched == RUNS else []
        behind = [WAITS, 13] if watched == WAITS else []
        made = line(u, [*running, *between], [12, BACK, *behind])
        before = steps(made, watched)
        made.queues.admit(BACK, runs=u.runs == 1)
        return list(zip(before, steps(made, watched), strict=True))


def left(u: Any) -> list[tuple[Any, Any]]:
    """The steps of any request, before and after another leaves the line, or a new one joins it."""
    with in_parts(u):
        watched = place_of(u, FIRST, RUNS, WAITS)
        between = [10] if u.others_run == 1 else []
        made = line(u, [FIRST, *between, *([RUNS] if watched == RUNS else [LAST])], [11, WAITS, 12, BACK])
        leaver = (FIRST, LAST, BACK)[u.leaver.__index__()]
        before = steps(made, watched)
        if leaver not in (watched, *([] if watched != RUNS else [LAST])):
            made.queues.leave(leaver)
        made.queues.submit(BACK + 1, Terms(u.tokens4))
        return list(zip(before, steps(made, watched), strict=True))


def transferred(u: Any) -> list[tuple[Any, Any]]:
    """The steps of any request, before and after a load of one that waits is over, with success or without."""
    with in_parts(u):
        watched = place_of(u, FIRST, RUNS, BACK, WAITS)
        between = [RUNS, 11] if watched == RUNS else []
        running = [FIRST, 10, *between] if watched in (FIRST, RUNS) or u.others_run == 1 else []
        behind = [WAITS, 13] if watched == WAITS else []
        made = line(u, running, [12, BACK, *behind])
        made.queues.admit(BACK, runs=False)
        loads = made.manager.population[BACK]
        loads.status, loads.tokens_computed = Status.LOADING, u.loaded
        before = steps(made, watched)
        made.manager.population.settle(Transferred(BACK, bool(u.succeeded == 1)), Done())
        return list(zip(before, steps(made, watched), strict=True))


def served(u: Any, bound: Callable[[Scheduler, int], Any] = steps_to_end) -> tuple[Any, Any]:
    """The steps of any request after the first, before and after a step that gives the first its next tokens."""
    with in_parts(u):
        first = request_of(FIRST, u.tokens, u.computed, Status.RUNNING, u.drafts)
        watched = request_of(WAITS, u.tokens3, status=Status.RUNNING if u.runs == 1 else Status.WAITING)
        terms = {FIRST: Terms(u.limit), WAITS: Terms(u.tokens3 + u.answers3)}
        made = line_of(u, [first, watched], terms)
        between = [10] if u.others_run == 1 else []
        made.queues.running = [FIRST, *between, *([WAITS] if u.runs == 1 else [])]
        made.queues.waiting = [] if u.runs == 1 else [11, WAITS]
        before = bound(made, WAITS)
        compute(made, FIRST, u.budget)
        if first.answers_next and answer(
            made, FIRST, least(u.accepted, first.drafts_in_flight, u.limit - u.tokens - 1)
        ):
            made.queues.leave(FIRST)
        return before, bound(made, WAITS)


SUMS = {f"steps{part}": Count() for part in PARTS}
LIMITS = {name: Count(1) for name in ("chunk", "budget")} | {"tokens_max": Count(2)}
LINE = {
    **{
        f"{name}{n}": Count(fewest)
        for n in range(5)
        for name, fewest in (("tokens", 1), ("computed", 0), ("answers", 1))
    },
    **SUMS,
    **LIMITS,
}


def _is_possible(u: Any) -> Any:
    possible: Any = True
    for n in range(5):
        possible = possible & (getattr(u, f"computed{n}") <= getattr(u, f"tokens{n}"))
    return possible


PREEMPTION = Obligation(
    id="scheduler-progress.preemption-adds-nothing",
    statements=SERVED,
    title="With any number of requests, preempting the last that runs adds to no request's steps: it computes again "
    "what was never taken for sure, and no request passes another.",
    unknowns={**LINE, "watched": Count(0, 3)},
    assumes=_is_possible,
    claim=lambda u: never_grows(preempted(u)),
    witnesses={
        "it had computed something, and others are between": lambda u: (
            (u.watched == 2) & (u.computed2 >= 2) & (u.steps10 >= 2) & (preempted(u)[0][0] > u.steps10 + 1)
        )
    },
    mutants=(
        only(
            "the-first-is-preempted",
            "The first that runs loses its blocks.",
            "kvreference.scheduler.queues:Queues.preempt",
            lambda self: (self.waiting.insert(0, self.running[0]), self.running.pop(0))[1],
        ),
        only(
            "preempted-waits-behind-all",
            "A preempted request waits after all others.",
            "kvreference.scheduler.queues:Queues.preempt",
            lambda self: (self.waiting.append(self.running[-1]), self.running.pop())[1],
        ),
    ),
)

ADMISSION = Obligation(
    id="scheduler-progress.admission-adds-nothing",
    statements=SERVED,
    title="With any number of requests, admitting one, to run or to load, adds to no request's steps; only requests "
    "that load are passed.",
    unknowns={**LINE, "watched": Count(0, 3), "runs": Count(0, 1), "others_run": Count(0, 1)},
    assumes=_is_possible,
    claim=lambda u: never_grows(admitted(u)),
    witnesses={
        "a load is begun for one step": lambda u: (
            (u.watched == 2) & (u.runs == 0) & (u.others_run == 1) & (admitted(u)[1][0] == admitted(u)[1][1] + 1)
        )
    },
    mutants=(
        only(
            "passes-those-that-run",
            "An admitted request runs before all others.",
            "kvreference.scheduler.queues:Queues.admit",
            lambda self, number, runs: runs and (self.waiting.remove(number), self.running.insert(0, number)),
        ),
    ),
)

LEAVING = Obligation(
    id="scheduler-progress.ends-and-arrivals-add-nothing",
    statements=SERVED,
    title="With any number of requests, one that ends, wherever it stands, or one that is submitted adds to no "
    "request's steps.",
    unknowns={**LINE, "watched": Count(0, 2), "leaver": Count(0, 2), "others_run": Count(0, 1)},
    assumes=_is_possible,
    claim=lambda u: never_grows(left(u)),
    witnesses={
        "the first ends": lambda u: (
            (u.watched == 2) & (u.leaver == 0) & (u.steps10 >= 2) & (left(u)[0][1] + 2 <= left(u)[0][0])
        )
    },
    mutants=(
        only(
            "submitted-before-all",
            "A request that is submitted waits before all others.",
            "kvreference.scheduler.queues:Queues.submit",
            lambda self, number, terms: (self.waiting.insert(0, number), self.terms.update({number: terms})),
        ),
    ),
)

OVER = Obligation(
    id="scheduler-progress.transfer-adds-nothing",
    statements=SERVED,
    title="With any number of requests, the end of a load, with success or without, adds to no request's steps.",
    unknowns={
        **LINE,
        "watched": Count(0, 3),
        "loaded": Count(0),
        **{name: Count(0, 1) for name in ("succeeded", "others_run")},
    },
    assumes=_is_possible,
    claim=lambda u: never_grows(transferred(u)),
    witnesses={
        "a load that others wait behind": lambda u: (
            (u.watched == 3) & (u.succeeded == 0) & (u.loaded == 8) & (u.tokens4 == 9) & (transferred(u)[0][1] >= 3)
        )
    },
    mutants=(
        only(
            "a-failed-load-leaves-a-token-more",
            "A request of which a load has failed has a token more to compute.",
            "kvreference.population:Population._transferred",
            lambda self, request, succeeded: request.tokens.__iadd__([0]) if not succeeded else None,
        ),
    ),
)

EVERYBODY = Obligation(
    id="scheduler-progress.step-brings-every-request-nearer",
    statements=SERVED,
    title="With any number of requests, a step that gives the first its next tokens brings every later one at "
    "least one step nearer to its end.",
    unknowns={
        **UNKNOWNS,
        **SUMS,
        "tokens3": Count(1),
        "answers3": Count(1),
        "runs": Count(0, 1),
        "others_run": Count(0, 1),
    },
    assumes=lambda u: (u.computed < u.tokens) & (u.tokens < u.limit) & (u.limit <= u.tokens_max),
    claim=lambda u: falls(served(u)),
    witnesses={
        "the first ends, others are between": lambda u: (
            (u.others_run == 1) & (u.runs == 0) & (u.steps10 >= 2) & (u.steps11 >= 2) & (u.limit == u.tokens + 1)
        )
    },
    mutants=(
        only(
            "a-step-computes-nothing",
            "A step computes none of the last tokens before the answer.",
            "kvreference.population:Population.tokens_from",
            lambda *_: 0,
        ),
        only(
            "those-between-are-not-counted",
            "Only the first request is ahead of another.",
            "kvreference.scheduler.queues:Queues.ahead_of",
            lambda self, number: [*self.running, *self.waiting][:1] if number not in self.running else [],
        ),
    ),
)


# A round of a step: what is done with the first request, until the code turns to another

OTHER = 1
"""Stands for any request after the first."""
LOADS, SENT = 20, 30
"""Stand for all requests that load or have loaded, and for all that have ended and are still read."""


class CutError(Exception):
    """The code asks for another request, or for the same one again: the round is over."""


class AnyLine(Counted):
    """Those that run: the first, and any number of others."""

    def __getitem__(self, place: Any) -> int:
        return FIRST if place == 0 else OTHER

    def __contains__(self, number: int) -> bool:
        return number in (FIRST, OTHER)

    def pop(self) -> int:
        """Take the last away."""
        last = OTHER if self.number > 1 else FIRST
        object.__setattr__(self, "number", self.number - 1)
        return last


@define
class Round:
    """How a manager performs what is asked of it until the round is over."""

    takes: Any
    """How many blocks any other request takes, if it is asked for first."""
    computes: Any
    """How many tokens of it are computed then."""
    asked: list[int] = Factory(list)
    """The requests that were asked for, in order."""

    def __call__(self, manager: Any, operation: Any) -> Any:
        """What is asked of the first request is performed; another one stands for several."""
        number = operation.request
        if isinstance(operation, Preempt):
            return Granted(0, ()) if number == OTHER else manager.perform(operation)
        again = number in self.asked or (number == OTHER and FIRST in self.asked)
        self.asked.append(number)
        if again:
            raise CutError
        if number == FIRST:
            return manager.perform(operation)
        if self.takes > manager.holdings.free:
            return Refused(0, gate=False)
        manager.holdings.free = manager.holdings.free - self.takes
        manager.population[OTHER].tokens_computed += least(self.computes, operation.tokens)
        manager.population[OTHER].status = Status.RUNNING
        return Granted(0, ())


def first_in_line(u: Any, running: Any, waiting: list[int], terms: Terms) -> tuple[Scheduler, Round]:
    """The first request and others after it, over the running manager; and what was asked of that."""
    runs = Status.WAITING if waiting else Status.RUNNING
    requests = [
        request_of(FIRST, u.tokens, u.computed, runs, u.drafts),
        request_of(OTHER, 1, status=runs),
        request_of(LOADS, 1, status=Status.LOADING),
    ]
    settings = settings_of(
        u.blocks + 1,
        chunk_tokens=u.chunk,
        tokens_max=u.tokens_max,
        state_block_tokens=1 if u.states == 1 else None,
        keeps_states=u.states == 1,
        fences=True,
        full_sequence_must_fit=True,
        loads_out_of_turn=True,
        lookahead_tokens=u.lookahead,
    )
    settings.lookahead_tokens = u.lookahead
    requests[0].prompt_tokens, requests[0].preemptions, requests[0].junction_tokens = (
        u.prompt,
        u.preemptions,
        u.junction,
    )
    requests[0].reads_cache, terms = u.reads == 1, evolve(terms, sends=u.sends == 1)
    limits = SimpleNamespace(budget_tokens=u.budget, running_max=u.running_max)
    made = scheduler_of(settings, limits, requests, {FIRST: terms, OTHER: Terms(2), LOADS: Terms(2, entered=True)})
    made.queues.running, made.queues.waiting = running, Queued(waiting)  # type: ignore[assignment]  # for a list
    # One that waits and has no blocks has no tables.
    has_tables = not waiting or bool(u.own > 0)
    held = {**({FIRST: u.own} if has_tables else {}), LOADS: u.parked, SENT: u.sent}
    holdings = Promised(held, u.free, **asked_of(u))
    asks = Round(u.others_take, u.computes)
    made.manager = promised(settings, made.manager.population, holdings, u.hit, asks, u.ready)
    vars(made)["_blocks_to_run"] = lambda tokens: u.needs[tokens]
    return made, asks


def _next_tokens(made: Scheduler, computed: Any, drafts: Any, budget: Any) -> Any:
    """The whole next chunk of the first request once so many tokens are ``computed``, by the rule of the reference."""
    request = made.manager.population[FIRST]
    its = request_of(FIRST, length_of(request.tokens), computed, request.status, drafts)
    return made.manager.population.tokens_from(its, computed, budget)


@contextmanager
def cut_anywhere(u: Any) -> Iterator[None]:
    """Over counts; meanwhile, where states are kept at block ends, a chunk ends anywhere, and is not empty.

    That it is never empty is proved of the running rule (``attention-kinds.states-chunk-ends-at-a-block``).
    """
    with ExitStack() as stack:
        stack.enter_context(on_counts())
        ends = (
            ("tokens_served", lambda *_: u.serves),
            ("tokens_to_boundary", lambda computed, tokens, _: most(1, least(tokens, u.ends[computed, tokens]))),
        )
        for name, by in ends:
            stack.enter_context(patch.object(population, name, by))
        yield


def running_round(u: Any) -> tuple[Scheduler, Any]:
    """The first that runs is asked for, with any number after it; the scheduler, and how many run afterwards."""
    with cut_anywhere(u):
        line = AnyLine(u.others + 1)
        running: Any = line
        made, _ = first_in_line(u, running, [], Terms(u.limit, entered=True))
        with suppress(CutError):
            made._schedule_running(u.budget)
        return made, line.number


def is_served(u: Any) -> Any:
    """Whether the first has its whole chunk, or a later one lost its blocks, or only an ended request holds some.

    The next that is asked for is rejected, and takes from the last that runs: the first still runs. The block manager
    is asked to free the blocks of each request that does not run any more.
    """
    made, run = running_round(u)
    freed = sum(isinstance(operation, Preempt) for operation, _ in made._performed)
    computed = made.manager.population[FIRST].tokens_computed
    with cut_anywhere(u):
        served = computed == u.computed + _next_tokens(made, u.computed, u.drafts, u.budget)
    one_less = (computed == u.computed) & (u.others >= 1) & (run == u.others)
    held_up = (computed == u.computed) & (u.others == 0) & (run == 1) & (u.sent >= 1)
    return (run >= 1) & (run + freed == u.others + 1) & (served | one_less | held_up)


def waiting_round(u: Any, running: Sequence[int] = ()) -> tuple[Scheduler, Round]:
    """The first that waits for no transfer is looked at; before it none waits, or one that stands for all that load."""
    with cut_anywhere(u):
        before = [LOADS] if u.parked >= 1 else []
        fresh = u.entered == 0
        parks = bool(fresh) and bool(u.parks == 1)
        terms = Terms(u.limit, u.external if fresh else 0, parks, entered=not fresh)
        made, asks = first_in_line(u, [*running], [*before, FIRST, OTHER], terms)
        made.queues.terms.pop(LOADS) if not before else None
        with suppress(CutError):
            made._admit_waiting(u.budget)
        return made, asks


def is_admitted(u: Any) -> Any:
    """Whether it runs and has its whole chunk, or loads, or a transfer holds what it needs; else it is not passed."""
    made, asks = waiting_round(u)
    request, terms = made.manager.population[FIRST], made.queues.terms[FIRST]
    if request.status is Status.LOADING:
        return terms.entered and not terms.parks and FIRST in made.queues.waiting
    if FIRST not in made.queues.running:
        held_up = (u.sent >= 1) | ((u.entered == 0) & (u.parked >= 1))
        return held_up & (OTHER not in asks.asked)
    with cut_anywhere(u):
        left = u.tokens - u.hit - (1 if u.states == 1 or _loads(u) == 0 else 0)
        provided = least(u.external, left) if u.entered == 0 else 0
        start = u.computed if u.computed > 0 else u.hit + provided
        chunk = _next_tokens(made, start, 0, u.budget)
    return made.queues.running[0] == FIRST and (request.tokens_computed == start + chunk)


def _loads(u: Any) -> Any:
    """Whether the request loads, if another node has something for it."""
    return u.parks if u.entered == 0 else 0


HELD: dict[str, Unknown] = {
    name: Count() for name in (*ASKED, "others", "own", "free", "parked", "sent", "blocks", "drafts")
}
HELD |= {"others_take": Count(), "computes": Count(1), "hit": Count(), "ready": Count(0, 1), "needs": AMap()}
STATES: dict[str, Unknown] = {"states": Count(0, 1), "serves": Count(), "ends": AMap(2), "lookahead": Count()}
ROUND: dict[str, Unknown] = {
    **HELD,
    **LIMITS,
    **STATES,
    "tokens": Count(1),
    "computed": Count(),
    "prompt": Count(1),
    "preemptions": Count(),
    "junction": Count(),
    "sends": Count(0, 1),
    "reads": Count(0, 1),
    "limit": Count(2),
    "running_max": Count(1),
}


def _needed(u: Any) -> Any:
    """How many blocks the first request was said to need when it was accepted."""
    return u.needs[u.limit - 1]


def _has_room(u: Any) -> Any:
    """There is room for the first request."""
    return room.is_room(u.blocks, {FIRST: _needed(u)}, {FIRST: 0, LOADS: u.parked})


def _is_line(u: Any) -> Any:
    """What is so of the blocks: what no request holds can be had, and the first never holds more than its need.

    With what it asks the gate for, that is no more than its need, either.
    """
    kept = u.parked + u.sent
    asked: Any = SimpleNamespace(**asked_of(u))
    had = adds_up(u.blocks, u.free, u.own, kept) & adds_up(u.blocks, u.free + asked.freed, asked.left, kept)
    needs = passes_within(asked, u.own, _needed(u)) & stays_within(asked, _needed(u)) & releases_some(asked, u.own)
    tokens = (u.computed < u.tokens) & (u.tokens < u.limit) & (u.limit <= u.tokens_max)
    return ((u.others >= 1) | had) & needs & tokens


def _is_fresh(u: Any) -> Any:
    """Whether it never got blocks."""
    return (u.entered == 0) & (u.computed == 0) & (u.own == 0)


SERVES = Obligation(
    id="scheduler-progress.first-of-any-line-is-served",
    statements=("KV-LIVE-01", "KV-LIVE-02", "KV-LIVE-03"),
    title="However many run after the first, it is tried before them, and is given its whole next chunk, or one of "
    "them loses its blocks and it is asked again; if it runs by itself, only requests that have ended and are still "
    "read can hold it up.",
    unknowns=ROUND,
    assumes=lambda u: _is_line(u) & _has_room(u),
    claim=is_served,
    witnesses={
        "one of many is preempted": lambda u: (
            (u.others >= 3) & (running_round(u)[1] == u.others) & (u.parked >= 1) & (u.left >= 1)
        ),
        "an ended request holds it up": lambda u: (
            (u.others == 0) & (u.own >= 1) & (u.sent >= 1) & (u.free + u.freed < u.takes)
        ),
        "it drafts up to the longest": lambda u: (
            (u.others == 0) & (u.drafts >= 2) & (u.limit == u.tokens_max) & (u.computed == u.limit - 2)
        ),
        "what it releases is enough": lambda u: (
            (u.others == 0) & (u.left < u.own) & (u.free < u.takes) & (u.takes <= u.free + u.freed) & (u.states == 1)
        ),
    },
    mutants=(
        only(
            "the-first-is-preempted",
            "The only running request frees its blocks for nothing.",
            "kvreference.scheduler.scheduler:Scheduler._preempts",
            lambda self: True,
        ),
        only(
            "nobody-is-preempted",
            "The first waits for later ones.",
            "kvreference.scheduler.scheduler:Scheduler._preempts",
            lambda self: False,
        ),
        only(
            "parked-is-not-counted",
            "Blocks of those that cannot be preempted are taken for free ones.",
            "kvreference.scheduler.room:is_room",
            lambda blocks, needed, _parked: all(need <= blocks for need in needed.values()),
        ),
        only(
            "another-is-asked-first",
            "One that runs after the first is tried before it.",
            "kvreference.scheduler.scheduler:Scheduler._schedule_running",
            lambda self, budget: _another_first(self, budget),
        ),
        only(
            "preempted-is-only-queued",
            "A request that is preempted waits, and its blocks are not freed.",
            "kvreference.scheduler.scheduler:Scheduler._perform",
            lambda self, operation: None if isinstance(operation, Preempt) else _PERFORMS(self, operation),
        ),
        only(
            "preempted-computes-nothing",
            "Of a request that was ever preempted no token is computed.",
            "kvreference.population:Population.tokens_from",
            lambda self, request, *rest: 0 if request.preemptions > 0 else _TOKENS(self, request, *rest),
        ),
        only(
            "asks-twice",
            "The blocks for one chunk are asked for twice.",
            "kvreference.manager:Manager._allocate",
            lambda self, *asked: (_ASKS(self, *asked), _ASKS(self, *asked))[1],
        ),
    ),
)


def _another_first(self: Scheduler, budget: int) -> int | None:
    if len(self.queues.running) > 1:
        budget -= self._compute(Schedule(self.queues.running[1], budget)) or 0
    return _IN_TURN(self, budget)


_IN_TURN, _IN_LINE = Scheduler._schedule_running, Scheduler._admit_waiting
_ASKS: Any = Manager._allocate
_PERFORMS: Any = Scheduler._perform
_COMPUTES, _SETTLES = Population._compute, Population.settle
_TOKENS: Any = Population.tokens_from
_READY = Scheduler._is_ready
"""How requests are asked, where nothing is broken."""

TRIED_TOO = only(
    "a-later-one-is-tried-too",
    "If a request is not admitted, the next one is tried.",
    "kvreference.scheduler.scheduler:Scheduler._admit_waiting",
    lambda self, budget: (_IN_LINE(self, budget), self._compute(Admit(OTHER, budget)))[0],
)

LETS_IN = Obligation(
    id="scheduler-progress.first-of-any-line-is-admitted",
    statements=("KV-LIVE-01", "KV-LIVE-03"),
    title="However many wait, if none runs, the first that waits for no transfer is tried before later ones, and "
    "is admitted, with any hit, to run with its whole next chunk or to load, unless a transfer holds what it needs. "
    "One that was admitted before is held up by no load. Until it is admitted, no later one is tried.",
    unknowns={**ROUND, **{name: Count(0, 1) for name in ("entered", "parks")}, "external": Count()},
    assumes=lambda u: (
        _is_line(u)
        & (u.others == 0)
        & (u.drafts == 0)
        & leaves_a_token(u.hit, u.tokens)
        & serves_at_once(u.ready)
        & (u.needs[u.tokens] <= _needed(u))
        & (((u.entered == 1) & _has_room(u)) | (_is_fresh(u) & (_needed(u) <= u.blocks)))
    ),
    claim=is_admitted,
    witnesses={
        "one is back from a load, while others load": lambda u: (
            (u.entered == 1) & (u.own >= 1) & (u.parked >= 1) & (FIRST in waiting_round(u)[0].queues.running)
        ),
        "its whole prompt of one token was loaded": lambda u: (
            (u.entered == 1) & (u.tokens == 1) & (u.own == 1) & (FIRST in waiting_round(u)[0].queues.running)
        ),
        "a load is begun": lambda u: (
            (u.entered == 0) & (u.parks == 1) & (waiting_round(u)[0].manager.population[FIRST].status is Status.LOADING)
        ),
        "it hits, and takes the last block": lambda u: (
            (u.entered == 0)
            & (u.hit >= 2)
            & (u.gate < u.takes)
            & (u.takes == u.blocks)
            & (FIRST in waiting_round(u)[0].queues.running)
        ),
        "loads leave no room": lambda u: (
            (u.entered == 0) & (u.parked >= 1) & (FIRST in waiting_round(u)[0].queues.waiting) & (u.sent == 0)
        ),
    },
    mutants=(
        only(
            "loaded-is-forgotten",
            "A request that waited for a transfer is not looked at again (vllm-project/vllm-ascend#10559).",
            "kvreference.scheduler.scheduler:Scheduler._is_ready",
            lambda self, number: number not in self.manager.tables,
        ),
        only(
            "waits-for-loads-to-end",
            "No request is admitted while another loads.",
            "kvreference.scheduler.scheduler:Scheduler._leaves_room",
            lambda self, number: len(self.queues.terms) == 2,
        ),
        only(
            "the-last-is-asked-first",
            "Those that wait are asked from the last to the first.",
            "kvreference.scheduler.scheduler:Scheduler._admit_waiting",
            lambda self, budget: (self.queues.waiting.reverse(), _IN_LINE(self, budget))[1],
        ),
        TRIED_TOO,
        only(
            "preempted-is-forgotten",
            "A request that was ever preempted is not looked at again.",
            "kvreference.scheduler.scheduler:Scheduler._is_ready",
            lambda self, number: _READY(self, number) and not self.manager.population[number].preemptions > 0,
        ),
        only(
            "sender-is-forgotten",
            "A request whose blocks another node is to read is never looked at.",
            "kvreference.scheduler.scheduler:Scheduler._is_ready",
            lambda self, number: _READY(self, number) and not self.queues.terms[number].sends,
        ),
        only(
            "hit-is-computed-again",
            "Of the next chunk the hit is computed again.",
            "kvreference.population:Population._compute",
            lambda self, request, budget, granted: _COMPUTES(self, request, budget, evolve(granted, hit_tokens=0)),
        ),
    ),
)


def is_not_passed(u: Any) -> Any:
    """Whether it is admitted, or no later one is tried, where others run."""
    made, asks = waiting_round(u, [LAST])
    return made.manager.population[FIRST].status is not Status.WAITING or OTHER not in asks.asked


IN_ORDER = Obligation(
    id="scheduler-progress.none-is-tried-before-an-earlier-one",
    statements=("KV-LIVE-01", "KV-LIVE-03"),
    title="However many run, and however many wait, until the first that waits for no transfer is admitted, no later "
    "one is tried.",
    unknowns={**ROUND, **{name: Count(0, 1) for name in ("entered", "parks")}, "external": Count()},
    assumes=lambda u: (
        (u.others >= 1)
        & _is_line(u)
        & (u.drafts == 0)
        & leaves_a_token(u.hit, u.tokens)
        & ((u.entered == 1) | _is_fresh(u))
    ),
    claim=is_not_passed,
    witnesses={
        "it is admitted": lambda u: OTHER in waiting_round(u, [LAST])[1].asked,
        "it asks in vain": lambda u: waiting_round(u, [LAST])[1].asked == [FIRST],
    },
    mutants=(TRIED_TOO,),
)


OBLIGATIONS = (PREEMPTION, ADMISSION, LEAVING, OVER, EVERYBODY, SERVES, LETS_IN, IN_ORDER)
