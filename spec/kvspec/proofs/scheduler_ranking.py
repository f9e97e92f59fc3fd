"""Chapter 11: the steps that a request still needs are a ranking.

A step that is not held up takes at least one from the first request, and no operation adds to any other. Here
this is proved of one request at a time. A request waits for a sum over those ahead of it; ``scheduler_line`` proves
that this sum falls for any number of them.

``steps_to_end`` of the reference is run as it is. A chunk is computed by the reference's own ``Population._compute``
and answered by its ``Population._answer``; the number of accepted drafts is unknown.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kvreference.answers import Granted
from kvreference.mamba import tokens_to_boundary
from kvreference.operations import Preempt
from kvreference.population import Request, Status
from kvreference.scheduler import progress
from kvreference.scheduler.progress import steps_to_end
from kvreference.scheduler.queues import Queues, Terms
from kvreference.scheduler.scheduler import Scheduler
from kvspec.loops import edited
from kvspec.obligation import Count, Obligation, only
from kvspec.progress.counted import answer_of, counted, least, length_of, request_of, scheduler_of, settings_of
from kvspec.symbolic import implies


def line_of(u: Any, requests: list[Request], terms: dict[int, Terms], block_tokens: Any = None) -> Scheduler:
    """A scheduler with these live ``requests``, and the limits of a step."""
    settings = settings_of(
        state_block_tokens=block_tokens,
        lookahead_tokens=0 if block_tokens is None else u.lookahead_blocks * block_tokens,
        chunk_tokens=u.chunk,
        tokens_max=u.tokens_max,
    )
    return scheduler_of(settings, SimpleNamespace(budget_tokens=u.budget), requests, terms)


def first_of(u: Any, block_tokens: Any = None) -> Scheduler:
    """A scheduler whose first request runs, and has something to compute."""
    first = request_of(0, u.tokens, u.computed, Status.RUNNING, u.drafts)
    return line_of(u, [first], {0: Terms(u.limit)}, block_tokens)


def compute(scheduler: Scheduler, number: int, budget_tokens: Any) -> None:
    """A request that runs was given its blocks: its next tokens count as computed."""
    population = scheduler.manager.population
    population._compute(population[number], budget_tokens, Granted(0, ()))


def answer(scheduler: Scheduler, number: int, accepted: Any) -> Any:
    """Drafts hold and one token more is answered; whether the request is over."""
    request = scheduler.manager.population[number]
    answer_of(scheduler.manager.population, request, accepted)
    return length_of(request.tokens) == scheduler.queues.terms[number].limit_tokens


def token_before_and_after(u: Any, block_tokens: Any = None) -> tuple[Any, Any]:
    """The steps to the next answer of the first request, before and after a step that gives it blocks; then it is 0."""
    with counted():
        scheduler = first_of(u, block_tokens)
        before = progress.steps_to_answer(scheduler, 0)
        compute(scheduler, 0, u.budget)
        answered = scheduler.manager.population[0].answers_next
        return before, 0 if answered else progress.steps_to_answer(scheduler, 0)


def steps_before_and_after(u: Any, block_tokens: Any = None) -> tuple[Any, Any]:
    """The first request's steps to its end, before and after a step that gives it blocks."""
    with counted():
        scheduler = first_of(u, block_tokens)
        before = steps_to_end(scheduler, 0)
        compute(scheduler, 0, u.budget)
        request = scheduler.manager.population[0]
        if not request.answers_next:
            return before, steps_to_end(scheduler, 0)
        # Tokens beyond the request's limit are not answered.
        accepted = least(u.accepted, request.drafts_in_flight, u.limit - u.tokens - 1)
        if answer(scheduler, 0, accepted):
            return before, 0
        return before, steps_to_end(scheduler, 0)


def another_before_and_after(u: Any, block_tokens: Any = None) -> tuple[Any, Any]:
    """The steps of one that runs after the first, before and after it is answered."""
    with counted():
        first = request_of(0, 1, 0, Status.RUNNING)
        other = request_of(1, u.tokens, u.tokens, Status.RUNNING, u.accepted)
        scheduler = line_of(u, [first, other], {0: Terms(2), 1: Terms(u.limit)}, block_tokens)
        other.drafts_in_flight = u.accepted
        before = progress._steps_alone(scheduler, 1)
        ends = answer(scheduler, 1, u.accepted)
        return before, 0 if ends else progress._steps_alone(scheduler, 1)


def becoming_first(u: Any, block_tokens: Any = None) -> tuple[Any, Any]:
    """The steps of one that runs after another, and then before all."""
    with counted():
        first = request_of(0, 1, 0, Status.RUNNING)
        other = request_of(1, u.tokens, u.computed, Status.RUNNING)
        scheduler = line_of(u, [first, other], {0: Terms(2), 1: Terms(u.limit)}, block_tokens)
        before = progress._steps_alone(scheduler, 1)
        scheduler.queues.leave(0)
        return before, steps_to_end(scheduler, 1)


NOTHING, GIVEN, TAKEN = range(3)
"""What is done to a request in a step, before it may be answered: it gets blocks, or loses them."""


def over_a_step(u: Any, block_tokens: Any = None) -> tuple[Any, Any]:
    """The steps of a request by itself, before and after all that a step may do to it; 0 once it has ended.

    It stands before all others, or another one runs before it, which may end before it is answered.
    """
    with counted():
        waits, is_first = bool(u.waits == 1), bool(u.is_first == 1)
        status, drafts = (Status.WAITING, 0) if waits else (Status.RUNNING, u.drafts)
        its = request_of(1, u.tokens, u.computed, status, drafts)
        line = [its] if is_first else [request_of(0, 1, 0, Status.RUNNING), its]
        terms = {0: Terms(2), 1: Terms(u.limit, u.external, parks=waits and u.parks == 1)}
        scheduler = line_of(u, line, terms, block_tokens)
        before = progress._steps_alone(scheduler, 1)
        population, queues, done = scheduler.manager.population, scheduler.queues, u.done.__index__()
        if done == GIVEN:
            loads = waits and bool((u.parks == 1) & (u.external >= 1))
            granted = Granted(u.hit, (), u.external, loads) if waits else Granted(0, ())
            population._compute(its, u.budget if is_first else u.part, granted)
        if done == GIVEN and waits:
            queues.admit(1, its.status is Status.RUNNING)
        if done == TAKEN:
            population.settle(Preempt(queues.preempt()), Granted(0, ()))
        if not is_first and u.leaves == 1:
            queues.leave(0)
        accepted = least(u.accepted, its.drafts_in_flight, u.limit - u.tokens - 1)
        if its.answers_next and answer(scheduler, 1, accepted):
            return before, 0
        return before, progress._steps_alone(scheduler, 1)


def _falls_if_first(u: Any, pair: tuple[Any, Any]) -> Any:
    before, after = pair
    return (after <= before) & implies((u.is_first == 1) & (u.done == GIVEN), after < before)


SERVED = ("KV-LIVE-01", "KV-LIVE-02", "KV-LIVE-03")
UNKNOWNS = {
    "tokens": Count(1),
    "computed": Count(0),
    "drafts": Count(0),
    "accepted": Count(0),
    "limit": Count(2),
    "chunk": Count(1),
    "budget": Count(1),
    "tokens_max": Count(2),
}
BLOCK = {**UNKNOWNS, "block": Count(1), "lookahead_blocks": Count(0)}


def _runs(u: Any) -> Any:
    """It has something to compute, and something to be answered."""
    return (u.computed < u.tokens) & (u.tokens < u.limit) & (u.limit <= u.tokens_max)


def falls(pair: tuple[Any, Any]) -> Any:
    before, after = pair
    return after < before


def never_grows(pairs: list[tuple[Any, Any]]) -> Any:
    shown: Any = True
    for before, after in pairs:
        shown = shown & (after <= before)
    return shown


def _chunks(scheduler: Any, request: Any, keeps: bool) -> Any:
    """The whole chunks that a request's tokens take, with or without what it ``keeps`` of those computed."""
    chunk = least(scheduler.settings.chunk_tokens, scheduler.limits.budget_tokens)
    return -(-(request.tokens.number - (request.tokens_computed if keeps else 0)) // chunk)


def _steps_without_answers(scheduler: Any, number: int) -> Any:
    return progress._steps_to_compute(scheduler, scheduler.manager.population[number])


STEP = Obligation(
    id="scheduler-progress.step-brings-the-first-nearer",
    statements=("KV-LIVE-02", "KV-LIVE-03"),
    title="Each step that gives the first request its next tokens brings it at least one step nearer to its end, "
    "however many drafts hold.",
    unknowns=UNKNOWNS,
    assumes=_runs,
    claim=lambda u: falls(steps_before_and_after(u)),
    witnesses={
        "several chunks are left": lambda u: (
            (u.drafts == 0)
            & (u.budget <= 8)
            & (steps_before_and_after(u)[1] >= 3)
            & (u.chunk >= 2)
            & (u.budget > u.chunk)
        ),
        "drafts hold": lambda u: (
            (u.computed == u.tokens - 1) & (u.accepted >= 2) & (u.drafts >= 2) & (steps_before_and_after(u)[1] >= 2)
        ),
    },
    mutants=(
        only(
            "an-answer-is-free",
            "The steps that answers take are not counted.",
            "kvreference.scheduler.progress:_steps_alone",
            _steps_without_answers,
        ),
        only(
            "a-step-computes-nothing",
            "A step computes none of the last tokens before the answer.",
            "kvreference.population:Population.tokens_from",
            lambda *_: 0,
        ),
    ),
)


STATES = Obligation(
    id="scheduler-progress.state-blocks-bring-nearer",
    statements=("KV-LIVE-02", "KV-LIVE-03"),
    title="The same where states are kept at block ends only: a chunk that ends early has ended a block.",
    unknowns=BLOCK,
    assumes=_runs,
    claim=lambda u: falls(steps_before_and_after(u, u.block)),
    witnesses={
        "a chunk ends early": lambda u: (
            (u.computed == 0)
            & (u.tokens > u.chunk)
            & (u.budget > u.chunk)
            & (tokens_to_boundary(0, u.chunk, u.block) < u.chunk)
        )
    },
    mutants=(
        only(
            "floors-to-zero",
            "A chunk smaller than a block is rounded down to nothing (vLLM's split of Mamba prompts).",
            "kvreference.population:tokens_to_boundary",
            lambda _computed, tokens, block: tokens // block * block,
        ),
        only(
            "ends-are-not-counted",
            "The bound takes each chunk to be whole.",
            "kvreference.scheduler.progress:_steps_to_compute",
            lambda scheduler, request: _chunks(scheduler, request, scheduler.queues.running[:1] == [request.number]),
        ),
    ),
)

TOKEN = Obligation(
    id="scheduler-progress.next-token-comes-nearer",
    statements=("KV-LIVE-02",),
    title="Each step that gives the first request its next tokens brings its next answer at least one step nearer, "
    "also where chunks end early.",
    unknowns=BLOCK,
    assumes=_runs,
    claim=lambda u: falls(token_before_and_after(u, u.block)),
    witnesses={
        "three steps are left": lambda u: (
            (u.budget <= 8) & (u.block >= 2) & (u.drafts == 0) & (token_before_and_after(u, u.block)[1] == 3)
        )
    },
    mutants=(
        only(
            "computed-is-not-counted",
            "The bound forgets what is computed.",
            "kvreference.scheduler.progress:_steps_to_compute",
            lambda scheduler, request: _chunks(scheduler, request, keeps=False),
        ),
        only(
            "floors-to-zero",
            "A chunk smaller than a block is rounded down to nothing (vLLM's split of Mamba prompts).",
            "kvreference.population:tokens_to_boundary",
            lambda _computed, tokens, block: tokens // block * block,
        ),
    ),
)

ANSWER = Obligation(
    id="scheduler-progress.answer-adds-nothing",
    statements=SERVED,
    title="An answer to a later request adds nothing to its steps: the tokens to compute again are as many "
    "as the answers that are not owed any more.",
    unknowns=BLOCK,
    assumes=lambda u: (u.tokens + u.accepted < u.limit) & (u.limit <= u.tokens_max),
    claim=lambda u: never_grows([another_before_and_after(u, u.block)]),
    witnesses={
        "it takes as many steps as before": lambda u: (
            (u.limit > u.tokens + 1) & (another_before_and_after(u)[0] == another_before_and_after(u)[1])
        )
    },
    mutants=(
        only(
            "answers-left-are-not-counted",
            "Only the tokens to compute count.",
            "kvreference.scheduler.progress:_steps_alone",
            _steps_without_answers,
        ),
    ),
)

FIRST = Obligation(
    id="scheduler-progress.first-keeps-what-it-computed",
    statements=SERVED,
    title="The request that becomes the first to run needs no more steps than were counted for it before.",
    unknowns=BLOCK,
    assumes=_runs,
    claim=lambda u: never_grows([becoming_first(u, u.block)]),
    witnesses={"it needs fewer": lambda u: becoming_first(u, u.block)[1] + 2 <= becoming_first(u, u.block)[0]},
    mutants=(
        only(
            "the-first-computes-again",
            "The first that runs is taken to have computed nothing, all others to keep what they computed.",
            "kvreference.scheduler.progress:_steps_to_compute",
            lambda scheduler, request: _chunks(scheduler, request, scheduler.queues.running[:1] != [request.number]),
        ),
    ),
)


def _is_granted(u: Any) -> Any:
    """What one that is admitted is granted leaves it a token to compute, unless it loads."""
    start = u.computed + u.hit + u.external
    return (start < u.tokens) | ((u.parks == 1) & (u.external >= 1) & (start <= u.tokens))


def _whole(at_block_ends: bool) -> Obligation:
    """One step of one request, with states that are kept at block ends only, or without."""
    name, more = ("-with-states", " where states are kept at block ends only") if at_block_ends else ("", "")
    return Obligation(
        id=f"scheduler-progress.step-adds-nothing-to-any-request{name}",
        statements=SERVED,
        title="All that one step may do to a request, which gets blocks or loses them, is answered and ends, while "
        f"another may end before it, adds nothing to its steps{more}. If it stands before all others and gets blocks, "
        "it needs at least one step less.",
        unknowns={
            **BLOCK,
            **{name: Count() for name in ("hit", "external")},
            **{name: Count(0, 1) for name in ("parks", "waits", "is_first", "leaves")},
            "part": Count(1),
            "done": Count(0, TAKEN),
        },
        assumes=lambda u: (
            (u.computed < u.tokens)
            & (u.tokens < u.limit)
            & (u.limit <= u.tokens_max)
            & (u.part <= u.budget)
            & implies(u.waits == 1, _is_granted(u))
            & implies(u.computed >= 1, (u.hit == 0) & (u.external == 0) & (u.parks == 0))
            & implies(u.done == TAKEN, (u.waits == 0) & (u.is_first == 0))
        ),
        claim=lambda u: _falls_if_first(u, over_a_step(u, u.block if at_block_ends else None)),
        witnesses={
            "it becomes the first, and is answered": lambda u: (
                (u.is_first == 0)
                & (u.leaves == 1)
                & (u.done == GIVEN)
                & (u.tokens >= 3)
                & (over_a_step(u)[1] + 2 <= over_a_step(u)[0])
            ),
            "a load is begun where none runs": lambda u: (
                (u.is_first == 1)
                & (u.waits == 1)
                & (u.done == GIVEN)
                & (u.parks == 1)
                & (u.external >= 1)
                & ((pair := over_a_step(u))[1] + 1 == pair[0])
            ),
        },
        mutants=(
            only(
                "an-answer-is-free",
                "The steps that answers take are not counted.",
                "kvreference.scheduler.progress:_steps_alone",
                _steps_without_answers,
            ),
            only(
                "computed-tokens-count-again",
                "What the first that runs has computed is counted again.",
                "kvreference.scheduler.progress:_steps_to_compute",
                edited(progress._steps_to_compute, "(len(request.tokens) - computed)", "len(request.tokens)"),
            ),
            only(
                "a-load-counts-again",
                "The step that begins a load is counted after it, too.",
                "kvreference.scheduler.queues:Queues.admit",
                edited(Queues.admit, "parks=False, ", ""),
            ),
        ),
    )


WHOLE, WHOLE_STATES = _whole(at_block_ends=False), _whole(at_block_ends=True)

OBLIGATIONS = (WHOLE, WHOLE_STATES, STEP, STATES, TOKEN, ANSWER, FIRST)
