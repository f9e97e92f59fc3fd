"""Obligations: the steps that a request still needs are a ranking.

A step that is not held up takes at least one from the first in line, and nothing that happens adds to anybody's. What a
request waits for is a sum over those ahead of it, so it is enough to say this of one request at a time.
"""

from __future__ import annotations

from typing import Any

from kvreference.mamba import tokens_to_boundary
from kvreference.scheduler import progress
from kvspec.obligation import Count, Obligation, only
from kvspec.progress.ranking import (
    another_before_and_after,
    becoming_first,
    let_in,
    preempted,
    steps_before_and_after,
    token_before_and_after,
)
from kvspec.progress.stand_ins import least

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
BLOCK = {**UNKNOWNS, "block": Count(1)}
LINE = {
    **{f"{name}{n}": Count(least) for n in range(5) for name, least in (("tokens", 1), ("computed", 0))},
    "chunk": Count(1),
    "budget": Count(1),
    "tokens_max": Count(2),
}


def _runs(u: Any) -> Any:
    """It has something to compute, and something to be answered."""
    return (u.computed < u.tokens) & (u.tokens < u.limit) & (u.limit <= u.tokens_max)


def _falls(pair: tuple[Any, Any]) -> Any:
    before, after = pair
    return after < before


def _never_grows(pairs: list[tuple[Any, Any]]) -> Any:
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
    sentence="Each step that gives the first in line its next tokens brings it at least one step nearer to its end, "
    "however many drafts hold.",
    unknowns=UNKNOWNS,
    given=_runs,
    shows=lambda u: _falls(steps_before_and_after(u)),
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
    sentence="The same where states are kept at block ends only: a chunk that ends early has ended a block.",
    unknowns=BLOCK,
    given=_runs,
    shows=lambda u: _falls(steps_before_and_after(u, u.block)),
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
    sentence="Each step that gives the first in line its next tokens brings its next answer at least one step nearer, "
    "also where chunks end early.",
    unknowns=BLOCK,
    given=_runs,
    shows=lambda u: _falls(token_before_and_after(u, u.block)),
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
    sentence="An answer to somebody further back adds nothing to its steps: the tokens to compute again are as many "
    "as the answers that are not owed any more.",
    unknowns=BLOCK,
    given=lambda u: (u.tokens + u.accepted < u.limit) & (u.limit <= u.tokens_max),
    shows=lambda u: _never_grows([another_before_and_after(u, u.block)]),
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
    sentence="Whoever becomes the first that runs needs no more steps than were counted for it before.",
    unknowns=BLOCK,
    given=_runs,
    shows=lambda u: _never_grows([becoming_first(u, u.block)]),
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


IN_LINE = "three that run and two that wait, of any sizes: more in line are more of the same summands"


def _in_line(u: Any) -> Any:
    possible: Any = True
    for n in range(3):
        possible = possible & (getattr(u, f"computed{n}") <= getattr(u, f"tokens{n}"))
    return possible


PREEMPTION = Obligation(
    id="scheduler-progress.preemption-adds-nothing",
    statements=SERVED,
    sentence="To preempt the last that runs adds to nobody's steps: it computes again what was never taken for sure, "
    "and nobody passes anybody.",
    unknowns=LINE,
    given=_in_line,
    shows=lambda u: _never_grows(preempted(u)),
    witnesses={"it had computed something": lambda u: (u.computed2 >= 2) & (preempted(u)[2][0] > preempted(u)[0][0])},
    mutants=(
        only(
            "the-first-is-preempted",
            "The first that runs loses its blocks.",
            "kvreference.scheduler.queues:Queues.preempt",
            lambda self: (self.waiting.insert(0, self.running[0]), self.running.pop(0))[1],
        ),
        only(
            "preempted-waits-behind-all",
            "Whoever is preempted waits behind all others.",
            "kvreference.scheduler.queues:Queues.preempt",
            lambda self: (self.waiting.append(self.running[-1]), self.running.pop())[1],
        ),
    ),
    bound=IN_LINE,
)

ADMISSION = Obligation(
    id="scheduler-progress.admission-adds-nothing",
    statements=SERVED,
    sentence="To let somebody in, to run or to load, adds to nobody's steps; only one that loads is passed.",
    unknowns=LINE,
    given=_in_line,
    shows=lambda u: _never_grows([*let_in(u, 3, False), *let_in(u, 3, True), *let_in(u, 4, True)]),
    witnesses={"a load is begun for one step": lambda u: let_in(u, 3, False)[3][0] == let_in(u, 3, False)[3][1] + 1},
    mutants=(
        only(
            "passes-those-that-run",
            "Whoever is let in runs before all others.",
            "kvreference.scheduler.queues:Queues.let_in",
            lambda self, number, runs: runs and (self.waiting.remove(number), self.running.insert(0, number)),
        ),
    ),
    bound=IN_LINE,
)

RANKS = (STEP, STATES, TOKEN, ANSWER, FIRST, PREEMPTION, ADMISSION)
