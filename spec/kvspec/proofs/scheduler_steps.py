"""Chapter 11: with any two live requests, a step advances the first, and no operation breaks the invariant.

The scheduler that runs is the reference's own, over counts (``kvspec.progress.counted``). A step is taken in two
halves, since the answer to one request does not depend on the blocks that another is given. With the ranking
(``scheduler_ranking``) and the room (``scheduler_room``) this bounds every wait.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kvreference.geometry import Geometry, Group
from kvreference.operations import Abort, Arrive, Run, Transferred
from kvreference.population import Status
from kvreference.refuted.scheduling import FirstIsPreempted, LoadedIsForgotten, UnreservedLoad
from kvreference.scheduler.observation import Observation
from kvreference.scheduler.operations import Reply, Submit
from kvreference.scheduler.progress import _steps_to_compute
from kvreference.scheduler.scheduler import Scheduler
from kvspec.obligation import Count, Obligation, Unknown, only
from kvspec.progress.counted import least, on_counts
from kvspec.progress.hanging import Course, Shop, on_terms
from kvspec.progress.states import (
    FRESH,
    LOADED,
    LOADING,
    RUNNING,
    SENT,
    Before,
    brings_on,
    is_possible,
    is_sound,
    of,
    passes_no_request,
    state,
    unknowns,
    with_others,
)
from kvspec.symbolic import Condition

IN_LINE = 2
SMALL = 6
"""Up to how many blocks a witness has: it is to be read."""
FULL = Geometry((Group("full", 1),))
BOUND = (
    "two live requests, of any sizes, and any number that have ended and are still read; one group that keeps all "
    "its slots, in blocks of one token, without caching and drafts; each more multiplies the paths of a step"
)
OTHERS_BOUND = (
    "the request that it is about and another one, of any sizes, and any number of other live ones and of those that "
    "have ended and are still read; one group that keeps all its slots, in blocks of one token, without caching and "
    "drafts"
)
UNRESERVED = only(
    "load-unreserved",
    "A load is begun if it fits by itself (vllm-project/vllm#45388).",
    "kvreference.scheduler.scheduler:Scheduler._leaves_room",
    UnreservedLoad._leaves_room,
)


def is_a_state(u: Any) -> Condition:
    """Whether the unknowns are those of a state in which all holds that must."""
    with on_counts():
        if not is_possible(u, IN_LINE):
            return False
        return is_sound(state(u, IN_LINE))


def schedule(made: Scheduler) -> Observation:
    """The first half of a step: who gets blocks."""
    budget = made._schedule_running(made.limits.budget_tokens)
    entered = () if budget is None else made._admit_waiting(budget)
    return Observation(tuple(made._performed), entered)


def _scheduled(u: Any) -> Condition:
    with on_counts():
        after = state(u, IN_LINE)
        before = Before.of(after)
        observation = schedule(after)
        return is_sound(after) & brings_on(before, after, observation)


def _after(u: Any, claim: Callable[[Scheduler, Observation], Any]) -> Any:
    """The claim about the state after a half step."""
    with on_counts():
        after = state(u, IN_LINE)
        return claim(after, schedule(after))


RUNS = Obligation(
    id="scheduler-progress.first-that-runs-gets-on",
    statements=("KV-LIVE-02", "KV-LIVE-03"),
    title="In any state, a step gives the first that runs its whole next chunk, unless a transfer holds what "
    "it needs; it is never set back, no request passes another, and room stays room.",
    unknowns=unknowns(IN_LINE),
    assumes=lambda u: is_a_state(u) if u.place0 == RUNNING else False,
    claim=_scheduled,
    witnesses={
        "the second is preempted for the first": lambda u: (
            ((u.place1 == RUNNING) & (u.computed1 >= 2) & (u.blocks <= SMALL))
            and _after(u, lambda made, _: len(made.queues.waiting) == 1)
        ),
        "a transfer holds it up": lambda u: (
            ((u.place1 == LOADED) & (u.sent >= 1) & (u.blocks <= SMALL))
            and _after(u, lambda _, observation: not observation.advanced)
        ),
    },
    mutants=(
        only(
            "the-first-is-preempted",
            "The only running request frees its blocks for nothing.",
            "kvreference.scheduler.scheduler:Scheduler._preempts",
            FirstIsPreempted._preempts,
        ),
        UNRESERVED,
    ),
    bound=BOUND,
)

WAITS = Obligation(
    id="scheduler-progress.first-that-waits-is-let-in",
    statements=("KV-LIVE-01", "KV-LIVE-03"),
    title="If no request runs, a step admits the first that waits for no transfer, unless a transfer holds what it "
    "needs; a load is begun only if room stays room.",
    unknowns=unknowns(IN_LINE),
    assumes=lambda u: is_a_state(u) if u.place0 != RUNNING else False,
    claim=_scheduled,
    witnesses={
        "the second load waits for the first": lambda u: (
            ((u.place0 == LOADING) & (u.place1 == FRESH) & (u.parks1 == 1) & (u.external1 >= 1) & (u.blocks <= SMALL))
            and _after(u, lambda made, _: not made.queues.terms[1].entered)
        )
    },
    mutants=(
        UNRESERVED,
        only(
            "loaded-is-forgotten",
            "A request that waited for a transfer is not looked at again (vllm-project/vllm-ascend#10559).",
            "kvreference.scheduler.scheduler:Scheduler._is_ready",
            LoadedIsForgotten._is_ready,
        ),
    ),
    bound=BOUND,
)

SUBMITTED, ANSWERED, ABORTED, ARRIVED, FAILED = range(5)
"""The other operations: an answer, an abort, an end of a transfer, a new request."""
OTHERWISE: dict[str, Unknown] = {
    **with_others(unknowns(IN_LINE)),
    "operation": Count(0, FAILED),
    "target": Count(0, IN_LINE - 1),
    "prompt": Count(1),
    "answers": Count(1),
    "ends": Count(0, 1),
}


def _can_happen(u: Any) -> Condition:
    """Whether the operation is legal; an answered request has all its tokens computed."""
    with on_counts():
        number, operation = u.target.__index__(), u.operation.__index__()
        if operation == SUBMITTED and number != 0:
            # It concerns no queued request.
            return False
        if not is_possible(u, IN_LINE, answers=operation == ANSWERED):
            return False
        place = of(u, "place", number)
        loads = place == LOADING
        computed = of(u, "computed", number) == of(u, "tokens", number)
        legal = {ANSWERED: (place == RUNNING) & computed, ARRIVED: loads, FAILED: loads}
        if not legal.get(operation, True):
            return False
        return is_sound(state(u, IN_LINE, shows_sent=False))


def happen(made: Scheduler, u: Any) -> None:
    """The operation, performed."""
    operation, number = u.operation.__index__(), u.target.__index__()
    if operation == ANSWERED:
        made._answer(number, Reply(ends=u.ends == 1))
    elif operation == ABORTED:
        made.apply(Abort(number))
    elif operation in (ARRIVED, FAILED):
        made.apply(Transferred(number, operation == ARRIVED))
    else:
        runs = Run(0, u.prompt)
        made.apply(Submit(Arrive(SENT + 1, (runs,)), u.answers, u.external0, u.parks0, u.sends0))


def _still_holds(u: Any) -> Condition:
    with on_counts():
        after = state(u, IN_LINE, shows_sent=False)
        before = Before.of(after)
        happen(after, u)
        return passes_no_request(before, after) and is_sound(after)


def _ended(u: Any, claim: Callable[[Scheduler], Any]) -> Any:
    with on_counts():
        after = state(u, IN_LINE, shows_sent=False)
        happen(after, u)
        return claim(after)


def _as_if_it_had_arrived(_self: Any, request: Any, _succeeded: bool) -> None:
    request.status = Status.WAITING
    request.tokens_computed = least(request.tokens_computed, request.tokens.number - 1)


OTHER = Obligation(
    id="scheduler-progress.nothing-else-breaks-room",
    statements=("KV-LIVE-01", "KV-LIVE-02"),
    title="No answer, end, abort, transfer or request that is submitted takes room from any live request, or lets "
    "one pass another, for any locked blocks of others.",
    unknowns=OTHERWISE,
    assumes=_can_happen,
    claim=_still_holds,
    witnesses={
        "an answer is given": lambda u: (
            (u.operation == ANSWERED) and _ended(u, lambda made: u.target.__index__() in made.queues.terms)
        ),
        "a request is accepted": lambda u: (
            (u.operation == SUBMITTED) and _ended(u, lambda made: len(made.queues.terms) == IN_LINE + 1)
        ),
        "a whole prompt has arrived, while others have loaded": lambda u: (
            (u.operation == ARRIVED) & (u.computed0 == u.tokens0) & (u.target == 0) & (u.rest >= 1)
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
    ),
    bound=OTHERS_BOUND,
)

TOKENS_MOST = 2


def _course(loads: tuple[bool, ...], u: Any) -> Course:
    return on_terms(Shop(FULL, loads, steps=20, chunk_tokens=2), u)


def ends_in_time(name: str, loads: tuple[bool, ...], subject: str) -> Obligation:
    """From the beginning and to the end, within the steps that were promised when the last was submitted."""

    def claim(u: Any) -> Any:
        with on_counts():
            course = _course(loads, u)
            return not course.hangs and not course.set_back and course.left == 0 and course.steps <= course.promised

    return Obligation(
        id=f"scheduler-progress.{name}",
        statements=("KV-LIVE-01", "KV-LIVE-02", "KV-LIVE-03"),
        title=f"{subject} that are accepted both end within as many steps as were promised, however small the pool is.",
        unknowns={**Shop(FULL, loads, steps=20).unknowns(1, TOKENS_MOST), "blocks": Count(1)},
        claim=claim,
        witnesses={
            "the last step that was promised is taken": lambda u: (
                (u.blocks == 3) & (u.tokens1 == 2) & (u.answers0 == 2)
                and _course(loads, u).steps == _course(loads, u).promised
            )
        },
        mutants=(
            UNRESERVED,
            only(
                "answers-are-not-counted",
                "The bound takes all answers to be given in one step.",
                "kvreference.scheduler.progress:_steps_alone",
                lambda scheduler, number: (
                    scheduler.queues.terms[number].parks
                    + _steps_to_compute(scheduler, scheduler.manager.population[number])
                ),
            ),
        ),
        bound=f"two requests of up to {TOKENS_MOST} tokens and as many answers, in chunks of two, over full attention; "
        "every transfer is over before the next step; each token more doubles the paths",
    )


LIVE = (
    ends_in_time("two-loads-end-in-time", (True, True), "Two requests that load"),
    ends_in_time("beside-a-load-ends-in-time", (False, True), "A request that runs and one that loads meanwhile"),
)
OBLIGATIONS = (RUNS, WAITS, OTHER, *LIVE)
