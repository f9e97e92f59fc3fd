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
from kvreference.population import Request, Status
from kvreference.scheduler import progress
from kvreference.scheduler.progress import steps_to_end
from kvreference.scheduler.queues import Queues, Terms
from kvreference.scheduler.scheduler import Scheduler
from kvspec.loops import edited
from kvspec.obligation import Count, Obligation, only
from kvspec.progress.counted import answer_of, counted, least, length_of, request_of, scheduler_of, settings_of


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


def admission_before_and_after(u: Any, block_tokens: Any = None) -> tuple[Any, Any]:
    """The steps of the first that waits, where none runs, before and after it is admitted, to run or to load."""
    with counted():
        request = request_of(0, u.tokens, u.computed)
        terms = Terms(u.limit, u.external, parks=u.parks == 1, entered=u.computed >= 1)
        scheduler = line_of(u, [request], {0: terms}, block_tokens)
        before = steps_to_end(scheduler, 0)
        loads = bool((u.parks == 1) & (u.external >= 1))
        population = scheduler.manager.population
        population._compute(request, u.budget, Granted(u.hit, (), u.external, loads))
        scheduler.queues.admit(0, request.status is Status.RUNNING)
        if request.answers_next and answer(scheduler, 0, 0):
            return before, 0
        return before, steps_to_end(scheduler, 0)


def later_chunk(u: Any, block_tokens: Any = None) -> tuple[Any, Any]:
    """The steps of one after the first, before and after it was given its blocks."""
    with counted():
        first = request_of(0, 1, 0, Status.RUNNING)
        status, drafts = (Status.RUNNING, u.drafts) if u.runs == 1 else (Status.WAITING, 0)
        other = request_of(1, u.tokens, u.computed, status, drafts)
        scheduler = line_of(u, [first, other], {0: Terms(2), 1: Terms(u.limit, u.external)}, block_tokens)
        before = steps_to_end(scheduler, 1)
        granted = Granted(u.hit, (), u.external, bool((u.parks == 1) & (u.external >= 1)))
        scheduler.manager.population._compute(other, u.budget, granted)
        return before, steps_to_end(scheduler, 1)


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


CHUNK = Obligation(
    id="scheduler-progress.later-chunk-adds-nothing",
    statements=SERVED,
    title="A chunk of a request after the first adds nothing to its steps, whether it runs or is admitted: what it "
    "computes is not taken for sure before it is the first.",
    unknowns={**BLOCK, **{name: Count() for name in ("hit", "external")}, "parks": Count(0, 1), "runs": Count(0, 1)},
    assumes=lambda u: (
        (u.tokens < u.limit)
        & (u.limit <= u.tokens_max)
        & _is_granted(u)
        & ((u.runs == 0) | ((u.hit == 0) & (u.external == 0) & (u.parks == 0)))
    ),
    claim=lambda u: never_grows([later_chunk(u), later_chunk(u, u.block)]),
    witnesses={
        "it has a hit": lambda u: (u.runs == 0) & (u.hit >= 2) & (later_chunk(u)[0] >= 3),
        "it computes several tokens": lambda u: (u.runs == 1) & (u.chunk >= 3) & (u.budget >= 3) & (u.tokens >= 9),
    },
    mutants=(
        only(
            "computed-tokens-count-again",
            "The tokens that were computed are counted on top.",
            "kvreference.scheduler.progress:_steps_to_compute",
            edited(progress._steps_to_compute, "return steps\n", "return steps + request.tokens_computed\n"),
        ),
    ),
)

ADMITTED = Obligation(
    id="scheduler-progress.admission-brings-the-first-nearer",
    statements=SERVED,
    title="Where none runs, the first that waits is at least one step nearer to its end once it is admitted, with any "
    "hit, to run or to load.",
    unknowns={**BLOCK, **{name: Count() for name in ("hit", "external")}, "parks": Count(0, 1)},
    assumes=lambda u: (
        (u.tokens < u.limit)
        & (u.limit <= u.tokens_max)
        & _is_granted(u)
        & ((u.computed == 0) | ((u.hit == 0) & (u.external == 0) & (u.parks == 0)))
    ),
    claim=lambda u: falls(admission_before_and_after(u)) & falls(admission_before_and_after(u, u.block)),
    witnesses={
        "a load is begun": lambda u: (
            (u.parks == 1) & (u.external >= 1) & ((pair := admission_before_and_after(u, u.block))[1] + 1 == pair[0])
        ),
        "one is back from a load": lambda u: (
            (u.computed >= 2) & (u.chunk == 1) & (admission_before_and_after(u, u.block)[1] >= 3)
        ),
    },
    mutants=(
        only(
            "a-load-counts-again",
            "The step that begins a load is counted after it, too.",
            "kvreference.scheduler.queues:Queues.admit",
            edited(Queues.admit, "parks=False, ", ""),
        ),
        only(
            "a-step-computes-nothing",
            "A step computes none of the last tokens before the answer.",
            "kvreference.population:Population.tokens_from",
            lambda *_: 0,
        ),
    ),
)


OBLIGATIONS = (STEP, STATES, TOKEN, ANSWER, FIRST, CHUNK, ADMITTED)
