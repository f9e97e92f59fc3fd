"""Chapter 11: no operation takes room from a request, for any number of live requests.

What a round of a step assumes (``scheduler_line``) is so in every state: there is room for each request that was
admitted, and each holds no more than it needs. It is so before any request is submitted. Here each operation is run by
the running scheduler over the running block manager, of which no more is known than the promises of
``kvspec.progress.promised``. An admission has a proof of its own (``scheduler_room``).

One request is the target of the operation, another one is watched. Of all others only the blocks count that they have
locked, and those of requests that have ended and are still read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from attrs import evolve

from kvreference.answers import Answer, Refused
from kvreference.manager import OWN
from kvreference.operations import Abort, Arrive, Preempt, Run, Schedule, Transferred
from kvreference.population import Request, Status
from kvreference.scheduler import scheduler
from kvreference.scheduler.limits import Reason
from kvreference.scheduler.operations import Reply, Submit
from kvreference.scheduler.queues import Queues, Terms
from kvreference.scheduler.room import is_room
from kvreference.scheduler.scheduler import Scheduler
from kvspec.obligation import AMap, Count, Obligation, only
from kvspec.progress.counted import (
    Growing,
    Longest,
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
    asked_of,
    held_by,
    promised,
    releases_some,
    stays_within,
)
from kvspec.progress.room import locked
from kvspec.proofs.scheduler_line import CutError

FRESH, PREEMPTED, LOADED, LOADING, RUNNING = range(5)
"""Where a live request stands: never admitted, preempted, back from a load, loading, running."""
SUBMITTED, ANSWERED, ABORTED, ARRIVED, FAILED, SCHEDULED, TAKEN = range(7)
"""The operations: a request is submitted, answered, aborted; its load ends; it gets blocks, or loses them."""
TARGET, WATCHED, NEW = range(3)
REST, SENT = 98, 99
"""Stand for all other live requests, and for all that have ended and are still read."""


@contextmanager
def on_needs(u: Any) -> Iterator[None]:
    """Over counts; meanwhile a request of so many tokens needs any number of blocks."""
    with ExitStack() as stack:
        stack.enter_context(on_counts())
        stack.enter_context(
            patch.object(scheduler, "blocks_to_run", lambda _settings, tokens: most(0, u.needs[tokens]))
        )
        yield


def _request(u: Any, answers: bool) -> Request:
    """The target, where it stands."""
    place = u.place.__index__()
    status = {LOADING: Status.LOADING, RUNNING: Status.RUNNING}.get(place, Status.WAITING)
    made = request_of(TARGET, u.tokens, u.computed, status)
    if answers:
        tokens: Any = Growing(u.tokens, Longest(u.tokens_max))
        made = request_of(TARGET, u.tokens, u.computed, status, u.accepted)
        made.tokens, made.drafts_in_flight = tokens, u.accepted
    return made


def line_of(u: Any) -> Scheduler:
    """The target and the watched request in line, over the running manager."""
    answers = bool(u.operation == ANSWERED)
    target = _request(u, answers)
    watched = request_of(WATCHED, 2, 0, Status.RUNNING if u.runs == 1 else Status.WAITING)
    in_line = [target, watched] if u.first == 1 else [watched, target]
    entered = u.place != FRESH
    terms = {
        TARGET: Terms(u.limit, 0 if entered else u.external, not entered and u.parks == 1, u.sends == 1, bool(entered)),
        WATCHED: Terms(u.its_limit, entered=True),
    }
    settings = settings_of(
        u.blocks + 1, chunk_tokens=u.chunk, tokens_max=u.tokens_max, requests_max=u.alive, steps_in_flight_max=1
    )
    settings.loads_out_of_turn, settings.lookahead_tokens = True, 0
    made = scheduler_of(settings, None, in_line, terms)
    population: Any = made.manager.population
    population.arrived = NEW
    if answers:
        longest: Any = Longest(u.tokens_max)
        longest.room = u.tokens_max - u.tokens
        target.tokens = Growing(u.tokens, longest)  # type: ignore[assignment]  # only counted
        population.settings = SimpleNamespace(**{**vars(settings), "tokens_max": longest})
    holds = {TARGET: u.own} if u.place in (LOADED, LOADING, RUNNING) else {}
    watched_holds = {} if u.runs == 0 and u.its == 0 else {WATCHED: u.its}
    holdings = Promised({**holds, **watched_holds, REST: u.rest, SENT: u.sent}, u.free, **asked_of(u))
    made.manager = promised(settings, population, holdings)
    return made


def _rooms(made: Scheduler, number: int) -> Any:
    """Whether there is room for a request next to what the other live ones have locked."""
    live = {other: held for other, held in locked(made).items() if other in made.queues.terms or other == REST}
    needed = made._blocks_to_run(made.queues.terms[number].limit_tokens - 1)
    return is_room(made.settings.blocks - 1, {number: needed}, live)


def _stands(made: Scheduler, number: int) -> Any:
    """Whether a request holds no more than it needs, becomes no longer than the longest, and has computed nothing if it
    holds nothing.

    One that never got blocks fits the empty pool.
    """
    request, terms = made.manager.population[number], made.queues.terms[number]
    needed, held = made._blocks_to_run(terms.limit_tokens - 1), held_by(made.manager, number)
    fine = (length_of(request.tokens) < terms.limit_tokens) & (held <= needed) & (needed <= made.settings.blocks - 1)
    fine = fine & (terms.limit_tokens <= made.settings.tokens_max)
    if number not in made.manager.tables:
        fine = fine & (request.tokens_computed == 0) & (request.status is Status.WAITING)
    if request.status is Status.WAITING:
        fine = fine & (request.tokens_computed < length_of(request.tokens))
    return fine & (not terms.parks if terms.entered else number not in made.manager.tables)


def is_sound(made: Scheduler) -> Any:
    """Whether both stand as they may, there is room for each that was admitted, and the others wait after them."""
    entered = [made.queues.terms[number].entered for number in made.queues.waiting]
    sound: Any = entered == sorted(entered, reverse=True)
    for number, terms in made.queues.terms.items():
        sound = sound & _stands(made, number)
        sound = sound & _rooms(made, number) if terms.entered else sound
    return sound


def is_possible(u: Any) -> Any:
    """Whether the operation is legal in a sound state."""
    with on_needs(u):
        operation, place = u.operation.__index__(), u.place.__index__()
        places = {ANSWERED: [RUNNING], SCHEDULED: [RUNNING], TAKEN: [RUNNING], ARRIVED: [LOADING], FAILED: [LOADING]}
        if place not in places.get(operation, range(5)) or (operation == TAKEN and u.first == 1 and u.runs == 1):
            return False
        # Those that run stand before those that wait.
        if (u.first == 1) != (place == RUNNING) and (u.runs == 1) != (place == RUNNING):
            return False
        asked = SimpleNamespace(**asked_of(u))
        numbers = releases_some(asked, u.own) & stays_within(asked, most(0, u.needs[u.limit - 1]))
        numbers = numbers & ((u.computed >= u.tokens) if operation == ANSWERED else (u.computed <= u.tokens))
        numbers = numbers & ((u.computed < u.tokens) | (operation != SCHEDULED))
        numbers = numbers & (u.its <= most(0, u.needs[u.its_limit - 1]))
        return numbers & is_sound(line_of(u))


def happen(made: Scheduler, u: Any) -> Reason | None:
    """The operation, performed by the running scheduler; why it was rejected, or None."""
    operation = u.operation.__index__()
    if operation == ANSWERED:
        made._answer(TARGET, Reply(u.accepted, ends=u.ends == 1))
    elif operation == ABORTED:
        made.apply(Abort(TARGET))
    elif operation in (ARRIVED, FAILED):
        made.apply(Transferred(TARGET, operation == ARRIVED))
    elif operation == SCHEDULED:
        made._compute(Schedule(TARGET, u.chunk))
    elif operation == TAKEN:
        _is_taken_from(made, u)
    else:
        runs = Run(0, u.prompt)
        submit = Submit(Arrive(NEW, (runs,)), u.answers, u.external, u.parks == 1, u.sends == 1)
        return made.apply(submit).reason
    return None


def _is_taken_from(made: Scheduler, u: Any) -> None:
    """Another request runs before all and is rejected once, so the last that runs is preempted."""
    asked = 0

    def perform(manager: Any, operation: Any) -> Answer:
        nonlocal asked
        if not isinstance(operation, Schedule):
            return OWN.perform(manager, operation)
        asked += 1
        if asked > 1:
            raise CutError
        return Refused(0, gate=False)

    manager = made.manager
    manager.choices, manager.population.alive[REST] = evolve(OWN, perform=perform), request_of(REST, 1)
    manager.population[REST].status = Status.RUNNING
    made.queues.running.insert(0, REST)
    with suppress(CutError):
        made._schedule_running(u.chunk)
    made.queues.running.remove(REST)
    del manager.population.alive[REST]


def _after(u: Any, claim: Callable[[Scheduler], Any]) -> Any:
    with on_needs(u):
        made = line_of(u)
        happen(made, u)
        return claim(made)


def _stays_sound(u: Any) -> Any:
    with on_needs(u):
        made = line_of(u)
        before = {number: made.queues.ahead_of(number) for number in made.queues.terms}
        reason = happen(made, u)
        accepted = [NEW] if u.operation == SUBMITTED and reason is None else []
        if accepted != [number for number in made.queues.waiting if number == NEW]:
            return False
        passed = any(set(made.queues.ahead_of(n)) - set(before[n]) for n in made.queues.terms if n in before)
        return not passed and is_sound(made)


def _as_if_it_had_arrived(_self: Any, request: Any, _succeeded: bool) -> None:
    request.status = Status.WAITING
    request.tokens_computed = least(request.tokens_computed, request.tokens.number - 1)


_PERFORMS: Any = Scheduler._perform
_SUBMITS: Any = Queues.submit
_ACCEPTS = Scheduler._submit
"""How a request is submitted, where nothing is broken."""


def _submitted_without_a_longest(self: Any, operation: Submit) -> Any:
    longest = operation.prompt_tokens + operation.answers_max
    with patch.object(self, "settings", SimpleNamespace(**{**vars(self.settings), "tokens_max": longest})):
        return _ACCEPTS(self, operation)


OTHER = Obligation(
    id="scheduler-progress.nothing-else-breaks-room",
    statements=("KV-LIVE-01", "KV-LIVE-02"),
    title="With any number of requests, no answer, end, abort, transfer, request that is submitted, grant to a running "
    "request and preemption takes room from any live request, lets one pass another, or leaves one with more blocks "
    "than it was said to need. Only a request that fits the empty pool to its end is accepted, none may become longer "
    "than the longest, and then it waits.",
    unknowns={
        **{name: Count() for name in (*ASKED, "own", "free", "its", "rest", "sent", "blocks")},
        **{name: Count() for name in ("computed", "accepted", "external", "alive")},
        **{name: Count(1) for name in ("tokens", "chunk", "prompt", "answers")},
        **{name: Count(2) for name in ("limit", "tokens_max")},
        **{name: Count(0, 1) for name in ("first", "runs", "parks", "sends", "ends")},
        "its_limit": Count(3),
        "operation": Count(0, TAKEN),
        "place": Count(0, RUNNING),
        "needs": AMap(),
    },
    assumes=is_possible,
    claim=_stays_sound,
    witnesses={
        "an answer is given, of which drafts hold": lambda u: (
            ((u.operation == ANSWERED) & (u.accepted >= 2)) and _after(u, lambda made: TARGET in made.queues.terms)
        ),
        "a request is accepted": lambda u: (
            (u.operation == SUBMITTED) and _after(u, lambda made: len(made.queues.terms) == NEW + 1)
        ),
        "a whole prompt has arrived, while others have loaded": lambda u: (
            (u.operation == ARRIVED) & (u.computed == u.tokens) & (u.rest >= 1) & (u.own >= 1)
        ),
        "one that ends is still read": lambda u: (
            ((u.operation == ANSWERED) & (u.ends == 1) & (u.left >= 1) & (u.sends == 1))
            and _after(u, lambda made: TARGET not in made.queues.terms)
        ),
        "one is preempted, while another runs": lambda u: (u.operation == TAKEN) & (u.runs == 1) & (u.own >= 1),
        "one grows": lambda u: (
            (u.operation == SCHEDULED) & (u.left < u.own) & (u.takes >= 1) & (u.takes == u.free + u.freed)
        ),
    },
    mutants=(
        only(
            "oversize-accepted",
            "Every request is accepted (vllm-project/vllm#35570).",
            "kvreference.scheduler.scheduler:Scheduler._fits_alone",
            lambda *_: True,
        ),
        only(
            "answers-without-end",
            "A request may become longer than the longest.",
            "kvreference.scheduler.scheduler:Scheduler._submit",
            _submitted_without_a_longest,
        ),
        only(
            "failed-counts-as-loaded",
            "After a load that failed its tokens count as computed, in blocks that are freed.",
            "kvreference.population:Population._transferred",
            _as_if_it_had_arrived,
        ),
        only(
            "submitted-before-all",
            "A request that is submitted waits before all others.",
            "kvreference.scheduler.queues:Queues.submit",
            lambda self, number, terms: (self.waiting.insert(0, number), self.terms.update({number: terms})),
        ),
        only(
            "sender-is-not-queued",
            "A request whose blocks another node is to read is accepted, and does not wait.",
            "kvreference.scheduler.queues:Queues.submit",
            lambda self, number, terms: None if terms.sends else _SUBMITS(self, number, terms),
        ),
        only(
            "preempted-is-only-queued",
            "A request that is preempted waits, and its blocks are not freed.",
            "kvreference.scheduler.scheduler:Scheduler._perform",
            lambda self, operation: None if isinstance(operation, Preempt) else _PERFORMS(self, operation),
        ),
        only(
            "preempted-keeps-its-blocks",
            "A request that is preempted keeps its blocks.",
            "kvreference.manager:Manager._free",
            lambda self, request: None,
        ),
        only(
            "aborted-load-stays-in-line",
            "A request that is aborted stays in the line.",
            "kvreference.scheduler.queues:Queues.leave",
            lambda self, number: None,
        ),
    ),
)

OBLIGATIONS = (OTHER,)
