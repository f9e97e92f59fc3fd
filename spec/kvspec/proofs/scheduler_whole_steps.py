"""Chapter 11: whole steps of any number of requests.

A step has three loops: over those that run, over those that wait, over those that are answered. Of each loop one turn
is run, at any place and from any state that the turns before it may leave (``kvspec.loops``). Two requests are
observed, wherever they stand, so each turn is of one of them, and the other one shows what it changes besides. Where
the step calls the first two loops, all that is known is what is proved of them.

The block manager grants or rejects whatever is legal; that a scheduler asks for nothing else is a part of each claim,
since the scheduler raises then. Which tokens are computed is what the running ``Population`` says. What the actions do
to the bounds, the order and the room has proofs of its own: ``kvspec.progress.actions`` names them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, reduce
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from kvreference.answers import Answer, Done, Granted, Refused
from kvreference.operations import Admit, Dispatch, Finish, OfRequest, Preempt, Sample, Schedule, TakeEvents
from kvreference.population import Population, Request, Status
from kvreference.scheduler.operations import Reply
from kvreference.scheduler.queues import Queues, Terms
from kvreference.scheduler.scheduler import Scheduler
from kvspec.loops import Rule, TurnOverError, cut, edited
from kvspec.obligation import Count, Mutant, Obligation, Unknown, only
from kvspec.progress.counted import (
    Counted,
    answer_of,
    least,
    length_of,
    most,
    on_counts,
    request_of,
    scheduler_of,
    settings_of,
)
from kvspec.progress.queued import Queued
from kvspec.symbolic import either, implies, negated
from kvspec.turns import one_by_one

ONE, TWO, ANY = range(3)
"""Two requests that are observed, the first of them before the other, and any other one."""
BOTH = (ONE, TWO)
RUNS, WAITS, LOADS = range(3)
"""Where a request stands when the step begins."""


class Line(Counted):
    """Those that run: so many, and in which places those stand that are observed."""

    def __init__(self, number: Any, places: dict[int, Any]) -> None:
        super().__init__(number)
        object.__setattr__(self, "places", places)
        self.places: dict[int, Any]

    def __getitem__(self, which: Any) -> Any:
        return next((number for number, place in self.places.items() if place == which), ANY)

    def __iter__(self) -> Iterator[int]:
        return iter(list(self.places))

    def __contains__(self, number: int) -> bool:
        return number in self.places

    def append(self, number: int) -> None:
        """One more, after all others."""
        self.places[number] = self.number
        self._count(1)

    def pop(self, place: int | None = None) -> int:
        """Take the last away, or the one in this place."""
        taken: int = self[self.number - 1 if place is None else place]
        at = self.places.pop(taken, None)
        if at is not None:
            self.places.update({n: either(its > at, its - 1, its) for n, its in self.places.items()})
        self._count(-1)
        return taken

    def _count(self, more: int) -> None:
        object.__setattr__(self, "number", self.number + more)


class Noted(Queued):
    """Those that were admitted for the first time."""


class World:
    """A scheduler before a step, with the two requests in it; and what it asks of its block manager."""

    def __init__(self, u: Any) -> None:
        self.u = u
        self.fine: Any = True
        """Whether all was as it should be so far."""
        self.log: dict[int, list[Any]] = {number: [] for number in BOTH}
        """What was done to each request in this step, in order."""
        self.before: OfRequest | TakeEvents | Dispatch | None = None
        """The last operation that was asked for."""
        self.kind, self.dispatched = 0, False
        self.rejected: int | None = None
        """The request whose blocks were rejected last."""
        self.is_rejected: Any = False
        self.denied, self.roomy, self.left = False, -1, u.budget
        self.where = {number: self.of("where", number).__index__() for number in BOTH}
        requests = [self._request(number) for number in BOTH]
        terms = {number: self._terms(number) for number in BOTH}
        settings = settings_of(
            chunk_tokens=u.chunk,
            tokens_max=u.tokens_max,
            fences=u.fences == 1,
        )
        limits: Any = SimpleNamespace(budget_tokens=u.budget, running_max=u.running_max)
        made = scheduler_of(settings, limits, [*requests, request_of(ANY, 1, status=Status.RUNNING)], terms)
        self.line = Line(u.run, {n: self.of("at", n) for n in BOTH if self.where[n] == RUNS})
        self.begun = list(self.line.places)
        running: Any = self.line
        queued: Any = Queued([n for n in BOTH if self.where[n] != RUNS])
        made.queues.running, made.queues.waiting = running, queued
        self.population = made.manager.population
        manager: Any = SimpleNamespace(population=self.population, apply=self.apply)
        made.manager = manager
        vars(made)["_leaves_room"] = self.leaves_room
        self.made = made
        self.kept = {number: self.state(number) for number in BOTH}

    def of(self, name: str, number: int) -> Any:
        """An unknown of a request."""
        return getattr(self.u, f"{name}{number}")

    def _request(self, number: int) -> Any:
        status = (Status.RUNNING, Status.WAITING, Status.LOADING)[self.where[number]]
        drafts = self.of("drafts", number) if self.where[number] == RUNS else 0
        made = request_of(number, self.of("tokens", number), self.of("computed", number), status, drafts)
        made.prompt_tokens = self.of("prompt", number)
        return made

    def _terms(self, number: int) -> Terms:
        of_terms: Callable[..., Terms] = Terms  # of terms
        limit, sends = self.of("limit", number), (self.u.sends == 1) & (number == ONE)
        if self.where[number] != WAITS:
            return of_terms(limit, sends=sends, entered=True)
        fresh = self.of("entered", number) == 0
        return of_terms(
            limit,
            either(fresh, self.of("external", number), 0),
            fresh & (self.of("parks", number) == 1),
            sends,
            negated(fresh),
        )

    def state(self, number: int) -> tuple[Any, ...]:
        """The state of a request, as far as a step may change it; nothing if it has ended."""
        if number not in self.population.alive:
            return ()
        its = self.population[number]
        counts = length_of(its.tokens), its.tokens_computed, length_of(its.drafts), its.drafts_in_flight
        return its.status, its.undispatched, its.preemptions, *counts

    def turn_among(self, elements: Sequence[Any]) -> int:
        """Of which element the turn is run; how many there are, if of none."""
        return next((place for place, _ in enumerate(elements) if self.u.turn == place), len(elements))

    def check(self, *conditions: Any) -> None:
        """Note whether something is as it should be."""
        for condition in conditions:
            self.fine = self.fine & condition

    def untouched(self) -> None:
        """Check that no request was changed but by the block manager."""
        for number in BOTH:
            before, now = self.kept[number], self.state(number)
            self.check(len(before) == len(now), *(one == other for one, other in zip(before, now, strict=False)))

    def leaves_room(self, number: int) -> bool:
        """Whether a request leaves room for those admitted before: it does or does not."""
        self.denied = bool(self.of("denied", number) == 1)
        self.roomy = number
        return not self.denied

    # What is asked of the block manager

    def apply(self, operation: Any) -> Answer:
        """Note what is asked for, and perform it."""
        kinds = (Schedule, Preempt), (Admit,), (Dispatch,), (Sample, Finish), (TakeEvents,)
        (kind,) = (place for place, each in enumerate(kinds) if isinstance(operation, each))
        self.check(kind >= self.kind, not isinstance(self.before, TakeEvents))
        if isinstance(operation, (Schedule, Admit)) and operation.request == ANY:
            # The turn is of one that is observed.
            self.check(False)
            raise TurnOverError
        if isinstance(operation, Dispatch):
            self.check(not self.dispatched)
            self.dispatched = True
        if isinstance(operation, (Sample, TakeEvents)):
            self.check((self.u.fences == 1) == self.dispatched)
        if isinstance(operation, (Schedule, Admit)):
            self.check(operation.tokens == self.left, self.left >= 1)
        if isinstance(operation, Preempt):
            its = self.made.queues
            self.check(isinstance(self.before, Schedule), self.is_rejected, self.line.number >= 1)
            self.check(operation.request not in self.line, next(iter(its.waiting), None) == operation.request)
        if isinstance(operation, Admit):
            terms = self.made.queues.terms[operation.request]
            self.check(not self.is_rejected, self.roomy == operation.request, not self.denied)
            self.check(self.line.number < self.u.running_max)
            self.check(operation.external_tokens == terms.external_tokens, operation.loads == terms.parks)
        if isinstance(operation, Finish):
            self.check(isinstance(self.before, Sample) and self.before.request == operation.request)
        self.kind, self.before, self.roomy = kind, operation, -1
        answer = self.perform(operation)
        for number in BOTH:
            self.kept[number] = self.state(number)
        return answer

    def perform(self, operation: Any) -> Answer:
        """Perform what is asked for; blocks are granted or not."""
        answer: Answer = Done()
        number = operation.request if isinstance(operation, OfRequest) else ANY
        if isinstance(operation, (Schedule, Admit)):
            if self.of("rejects", number) == 1:
                self.rejected, self.is_rejected = number, True
                return Refused(0, gate=False)
            answer = self.granted(operation)
        if number in BOTH:
            self.log[number].append(operation)
        if isinstance(operation, Sample):
            answer_of(self.population, self.population[number], operation.accepted)
            return answer
        before = self.population[number].tokens_computed
        self.population.settle(operation, answer)
        if isinstance(answer, Granted):
            used = self.population[number].tokens_computed - before - answer.hit_tokens - answer.external_tokens
            self.check(used >= 0, used <= operation.tokens)
            self.left = self.left - used
        return answer

    def granted(self, operation: Schedule | Admit) -> Granted:
        """What is granted: one that is admitted has a hit, and what another node offers comes now or later."""
        if isinstance(operation, Schedule):
            return Granted(0, ())
        hit, external = (self.of(name, operation.request) for name in ("hit", "gets"))
        return Granted(hit, (), external, bool(operation.loads) and bool(external >= 1))

    # What is so after part of a step

    def served(self, run: Any) -> None:
        """Put there what is left once those that run were asked, up to any place; so many run now."""
        u = self.u
        preempted = []
        for number in list(self.line):
            at = self.line.places[number]
            if at >= run:
                preempted.append(number)
                self.perform(Preempt(number))
            elif at < u.place:
                self.perform_granted(Schedule(number, u.budget if at == 0 else self.of("part", number)))
        for number in reversed(preempted):
            del self.line.places[number]
            self.made.queues.waiting.insert(0, number)
        object.__setattr__(self.line, "number", run)
        self.left = u.left
        self.is_rejected = run < u.run
        self.keep()

    def perform_granted(self, operation: Schedule | Admit) -> None:
        """Perform what was asked for before, and granted."""
        self.log[operation.request].append(operation)
        self.population.settle(operation, self.granted(operation))

    def is_served(self, place: Any, run: Any) -> None:
        """Check what is left once those that run were asked up to a place, and so many run now."""
        for number in self.begun:
            at, its = self.of("at", number), self.log[number]
            if at >= run:
                self.check(list(map(type, its)) == [Preempt], number in self.made.queues.waiting)
            elif at < place:
                self.check(list(map(type, its)) == [Schedule], number in self.line)
                self.check(*(implies(at == 0, each.tokens == self.u.budget) for each in its))
            else:
                self.check(not its, number in self.line)
        self.in_order()
        self.untouched()

    def admitted(self, numbers: Sequence[int]) -> None:
        """Put there what is left once so many of those that wait were admitted, and any number between them."""
        for number in numbers:
            terms = self.made.queues.terms[number]
            self.perform_granted(Admit(number, self.of("part", number), terms.external_tokens, terms.parks))
            self.made.queues.admit(number, self.population[number].status is Status.RUNNING)
        object.__setattr__(self.line, "number", self.line.number + self.u.more)
        self.left = self.u.left_now
        self.keep()

    def entered(self) -> list[int]:
        """Those observed that were admitted for the first time."""
        return [n for n in BOTH if any(isinstance(each, Admit) for each in self.log[n]) and self.of("entered", n) == 0]

    def are_admitted(self, numbers: Sequence[int]) -> None:
        """Check that these were admitted, and no others."""
        for number in BOTH:
            its = self.log[number]
            self.check([type(each) for each in its] == ([Admit] if number in numbers else []))
            if number in numbers:
                runs = self.population[number].status is Status.RUNNING
                terms = self.made.queues.terms[number]
                self.check(runs or self._loads(number), terms.entered, not terms.parks)
                self.check((number in self.line) == runs, (number in list(self.made.queues.waiting)) != runs)
        self.in_order()
        self.untouched()

    def _loads(self, number: int) -> bool:
        return number in self.population.alive and self.population[number].status is Status.LOADING

    def in_order(self) -> None:
        """Check that no request has passed another, but one that loads or leaves."""
        now = [number for number in (*self.made.queues.running, *self.made.queues.waiting) if number in BOTH]
        self.check(len(set(now)) == len(now))
        self.check(now == sorted(now) or self._loads(ONE))

    def keep(self) -> None:
        """The requests are in a state in which they may be."""
        self.kept = {number: self.state(number) for number in BOTH}


@contextmanager
def cut_anywhere(u: Any) -> Iterator[None]:
    """Over counts; meanwhile a chunk may end early, but is not empty by that: so it is where states are kept.

    That it is never empty is proved of the running rule (``attention-kinds.states-chunk-ends-at-a-block``).
    """

    def tokens_from(self: Population, request: Request, computed: Any, budget: Any) -> Any:
        return least(
            _TOKENS(self, request, computed, budget),
            getattr(u, f"cut{request.number}") if request.number in BOTH else 1,
        )

    with on_counts(), patch.object(Population, "tokens_from", tokens_from):
        yield


_TOKENS: Any = Population.tokens_from


class Serves(Rule):
    """Before each turn over those that run: those in the places before were granted, those preempted were the last."""

    condition = "place < len(running) and budget > 0"
    carried = ("budget", "place", "refused")

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world

    def begins(self, _through: Any, *carried: Any) -> tuple[Any, ...]:
        world, u = self.world, self.world.u
        budget, place, refused = carried
        world.check(budget == u.budget, place == 0, not refused)
        world.served(u.run_now)
        self.place, self.run = u.place, u.run_now
        return u.left, u.place, bool(u.run_now < u.run)

    def is_over(self, *carried: Any) -> None:
        world, u = self.world, self.world.u
        budget, place, refused = carried
        run = world.line.number
        world.check(budget == world.left, budget >= 0, implies(place == 0, budget == u.budget))
        world.check(place <= run, run >= 1, (run < u.run) if refused else (run == u.run))
        # The loop ends: this falls with each turn.
        world.check(2 * run - place < 2 * self.run - self.place)
        world.is_served(place, run)


def serve(u: Any) -> World:
    """Those that run are asked; one turn, or what comes after the last."""
    with cut_anywhere(u):
        world = World(u)
        with suppress(TurnOverError):
            budget = cut(Scheduler._schedule_running, Serves(world))(world.made, u.budget)
            run = world.line.number
            if world.is_rejected:
                world.check(budget is None)
            else:
                world.check(budget == world.left, run == u.run)
            # Each has its next tokens, or no budget is left, or the first runs by itself and is rejected.
            for number in world.line:
                alone = world.is_rejected & (run == 1) & (world.rejected == number)
                world.check(bool(world.log[number]) or (world.left == 0) | alone)
            world.is_served(u.place if u.place < run else run, run)
        return world


def _is_place(u: Any) -> Any:
    """Whether a turn is of a request that is observed, if there is one."""
    turn = (u.place < u.run_now) & (u.left >= 1)
    observed = ((u.where0 == RUNS) & (u.place == u.at0)) | ((u.where1 == RUNS) & (u.place == u.at1))
    return implies(turn, observed)


def _is_part(u: Any) -> Any:
    """Whether so many run after a part of a loop, and so much of the budget is left."""
    parts = (u.run_now <= u.run) & (u.place <= u.run_now) & ((u.run_now >= 1) | (u.run == 0)) & (u.left <= u.budget)
    return parts & implies(u.place == 0, u.left == u.budget)


def _is_line(u: Any) -> Any:
    """What is so between steps: each request has something to compute, and may become longer."""
    fine: Any = True
    for n in BOTH:
        tokens, computed, where = (getattr(u, f"{name}{n}") for name in ("tokens", "computed", "where"))
        limit, at = getattr(u, f"limit{n}"), getattr(u, f"at{n}")
        fine = fine & (computed < tokens) & (tokens < limit) & (limit <= u.tokens_max)
        fine = fine & implies(where == RUNS, at < u.run)
    return fine & _stand_in_order(u)


class Admits(Rule):
    """Before each turn over those that wait: each that waits for no transfer and stands before was admitted."""

    condition = "[number for number in self.queues.waiting if self._is_ready(number)]"
    carried = ("budget", "entered")

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world

    def begins(self, through: Any, *carried: Any) -> tuple[Any, ...]:
        world = self.world
        budget, entered = carried
        ready = list(through)
        world.check(budget == world.left, list(entered) == [])
        world.check(ready == [number for number in BOTH if world.where[number] == WAITS])
        turn = world.turn_among(ready)
        self.elements = ready[turn : turn + 1]
        self.admitted = ready[: turn + 1]
        world.admitted(ready[:turn])
        return world.left, Noted(world.entered())

    def is_over(self, *carried: Any) -> None:
        world = self.world
        budget, entered = carried
        world.check(budget == world.left, budget >= 0, not world.is_rejected)
        world.check(list(entered) == world.entered())
        world.are_admitted(self.admitted)


def admit(u: Any) -> World:
    """Those that wait are tried; one turn, or what comes after the last."""
    with cut_anywhere(u):
        world = World(u)
        world.left = u.left
        with suppress(TurnOverError):
            entered = cut(Scheduler._admit_waiting, Admits(world))(world.made, u.left)
            queues = world.made.queues
            admitted = [number for number in BOTH if world.log[number]]
            world.check(list(entered) == world.entered())
            for number in BOTH:
                if world.where[number] == WAITS and number not in admitted:
                    full: Any = world.line.number >= u.running_max
                    world.check(world.is_rejected | world.denied | (world.left == 0) | full)
                    world.check(number > max(admitted, default=-1), number in queues.waiting)
            world.are_admitted(admitted)
        return world


_elements = cache(one_by_one)


class Answers(Rule):
    """Before each turn over those that are answered: those before were, and ended or did not."""

    condition = "zip(answered, cycle(replies), strict=False)"

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world

    def begins(self, through: Any, *_carried: Any) -> tuple[Any, ...]:
        world = self.world
        pairs = list(through)
        running = list(world.made.queues.running)
        self.due = [number for number in running if world.population[number].answers_next]
        world.check([number for number, _ in pairs] == self.due, _elements(Scheduler._step) == 1)
        turn = world.turn_among(pairs)
        self.elements = pairs[turn : turn + 1]
        for number, reply in pairs[:turn]:
            world.made._answer(number, reply)
        self.answered = dict(world.population.alive)
        self.noted = {number: len(its) for number, its in world.log.items()}
        return ()

    def is_over(self, *_carried: Any) -> None:
        world = self.world
        ((number, reply),) = self.elements
        for other in BOTH:
            done = list(map(type, world.log[other][self.noted[other] :]))
            ended = other not in world.made.queues.terms
            if other != number:
                world.check(not done)
                continue
            world.check(done == ([Sample, Finish] if ended else [Sample]))
            world.check(ended == (number not in world.made.queues.running))
            its_last = reply.ends | (length_of(self.answered[number].tokens) == world.of("limit", number))
            world.check(its_last if ended else negated(its_last))
        world.in_order()
        world.untouched()


def whole_step(u: Any) -> World:
    """A step, of which the first two loops leave any state."""
    with cut_anywhere(u):
        world = World(u)
        for number in world.begun:
            its = world.population[number]
            its.undispatched = (u.fences == 1) & (world.of("given", number) == 1)
            its.drafts_in_flight = most(0, its.tokens_computed - length_of(its.tokens))
        world.keep()
        called: list[str] = []
        world.left, entered = u.left, (ONE,)

        def schedules(budget: Any) -> Any:
            world.check(not called, world.before is None, budget == u.budget)
            called.append("those that run")
            world.is_rejected = bool(u.rejected == 1)
            return None if world.is_rejected else u.left

        def admits(budget: Any) -> tuple[int, ...]:
            world.check(len(called) == 1, world.before is None, budget == u.left, not world.is_rejected)
            called.append("those that wait")
            return entered

        vars(world.made).update(_schedule_running=schedules, _admit_waiting=admits)
        replies = Reply(u.accepted, ends=u.ends_first == 1), Reply(ends=u.ends_second == 1)
        with suppress(TurnOverError):
            given = cut(Scheduler._step, Answers(world))(world.made, replies)
            world.check(isinstance(world.before, TakeEvents), given == (() if world.is_rejected else entered))
            world.check(len(called) == (1 if world.is_rejected else 2))
            world.in_order()
            world.untouched()
        return world


UNKNOWNS: dict[str, Unknown] = {
    **{
        f"{name}{n}": Count()
        for n in BOTH
        for name in ("computed", "drafts", "at", "external", "hit", "gets", "prompt")
    },
    **{f"{name}{n}": Count(1) for n in BOTH for name in ("tokens", "part", "cut")},
    **{f"limit{n}": Count(2) for n in BOTH},
    **{f"where{n}": Count(0, LOADS) for n in BOTH},
    **{f"{name}{n}": Count(0, 1) for n in BOTH for name in ("entered", "parks", "rejects", "denied", "given")},
    **{name: Count() for name in ("run", "run_now", "place", "left", "left_now", "more", "accepted")},
    "turn": Count(0, 2),
    **{name: Count(1) for name in ("budget", "chunk", "running_max")},
    **{name: Count(0, 1) for name in ("fences", "sends", "rejected", "ends_first", "ends_second")},
    "tokens_max": Count(2),
}


def _may_be(u: Any) -> Any:
    """What is so after the first two loops: of those that run, drafts may be computed, too."""
    fine: Any = (u.limit0 <= u.tokens_max) & (u.limit1 <= u.tokens_max)
    for n in BOTH:
        tokens, computed, where = (getattr(u, f"{name}{n}") for name in ("tokens", "computed", "where"))
        may_be_computed = tokens + either(where == RUNS, getattr(u, f"drafts{n}"), -1)
        fine = fine & (computed <= may_be_computed) & (tokens < getattr(u, f"limit{n}"))
        fine = fine & implies(where == RUNS, getattr(u, f"at{n}") < u.run)
    return fine & _stand_in_order(u)


def _stand_in_order(u: Any) -> Any:
    """The first observed stands before the other; those that run stand before those that wait."""
    both = (u.where0 == RUNS) & (u.where1 == RUNS)
    return implies(both, u.at0 < u.at1) & ((u.where0 == RUNS) | (u.where1 != RUNS))


def _hits(u: Any) -> Any:
    """What the manager grants to one that is admitted leaves it a token to compute, unless it loads."""
    fine: Any = True
    for n in BOTH:
        start = getattr(u, f"computed{n}") + getattr(u, f"hit{n}") + getattr(u, f"gets{n}")
        loads = (getattr(u, f"entered{n}") == 0) & (getattr(u, f"parks{n}") == 1) & (getattr(u, f"gets{n}") >= 1)
        tokens = getattr(u, f"tokens{n}")
        fine = fine & ((start < tokens) | (loads & (start <= tokens)))
    return fine


def _done(world: World) -> list[list[type]]:
    """What was done to each of both."""
    return [[type(each) for each in world.log[number]] for number in BOTH]


def _broken(name: str, story: str, function: Callable[..., Any], *edits: tuple[str, str]) -> Mutant:
    """A mutant of which the source differs in these places."""
    broken = reduce(lambda its, edit: edited(its, *edit), edits, function)
    return only(name, story, f"{function.__module__}:{function.__qualname__}", broken)


SERVES = Obligation(
    id="scheduler-progress.all-that-run-are-served-in-order",
    statements=("KV-LIVE-01", "KV-LIVE-02", "KV-LIVE-03"),
    title="However many run, a step asks for blocks of one after the other, from the first on, with the budget that "
    "is left. If one is rejected, the last that runs loses its blocks, unless it runs by itself. So each that still "
    "runs has its next tokens, or no budget is left, or the first runs by itself and is rejected. Those that lost "
    "their blocks wait before all others, in their order.",
    unknowns=UNKNOWNS,
    assumes=lambda u: _is_line(u) & _is_part(u) & _is_place(u) & (u.where0 == RUNS) & (u.where1 <= WAITS),
    claim=lambda u: serve(u).fine,
    witnesses={
        "the last of many loses its blocks": lambda u: (
            ((u.run == 7) & (u.run_now == 7) & (u.place == 2) & (u.at0 == 2) & (u.at1 == 6) & (u.where1 == RUNS))
            and _done(serve(u)) == [[], [Preempt]]
        ),
        "one of many is served": lambda u: (
            (u.place == 3) & (u.run == 7) & (u.run_now == 7) & (u.at0 == 3) & (u.at1 == 5) & (u.left >= 2)
        ),
    },
    mutants=(
        _broken(
            "skips-the-third",
            "The third that runs is passed over.",
            Scheduler._schedule_running,
            (
                "self._compute(Schedule(running[place], budget))",
                "0 if place == 2 else self._compute(Schedule(running[place], budget))",
            ),
        ),
        _broken(
            "stops-after-two",
            "Only two are asked.",
            Scheduler._schedule_running,
            ("        tokens = self", "        if place == 2:\n            break\n        tokens = self"),
        ),
        _broken(
            "serves-in-reverse",
            "The last that runs is asked first.",
            Scheduler._schedule_running,
            ("running[place]", "running[len(running) - 1 - place]"),
        ),
        _broken(
            "each-has-the-whole-budget",
            "Each is asked with the whole budget.",
            Scheduler._schedule_running,
            ("running[place], budget", "running[place], self.limits.budget_tokens"),
        ),
        _broken(
            "budget-is-not-spent",
            "What one computes is not taken off the budget.",
            Scheduler._schedule_running,
            ("budget -= tokens", "budget -= 0"),
        ),
        _broken(
            "rejection-is-forgotten",
            "A rejection counts as none.",
            Scheduler._schedule_running,
            ("refused = True", "refused = False"),
        ),
        _broken(
            "takes-from-none",
            "Only the first that runs takes blocks from others.",
            Scheduler._schedule_running,
            ("if not self._preempts()", "if place > 0"),
        ),
        _broken(
            "the-second-is-preempted",
            "The second that runs loses its blocks.",
            Queues.preempt,
            ("self.running.pop()", "self.running.pop(1)"),
        ),
        _broken(
            "the-only-one-is-preempted", "The only one that runs loses its blocks.", Scheduler._preempts, ("> 1", "> 0")
        ),
        _broken(
            "rejected-counts-as-served",
            "One that is rejected counts as one that computes nothing.",
            Scheduler._compute,
            ("return None", "return 0"),
        ),
    ),
)

ADMITS = Obligation(
    id="scheduler-progress.all-that-wait-are-admitted-in-order",
    statements=("KV-LIVE-01", "KV-LIVE-02", "KV-LIVE-03"),
    title="However many wait, and however many run, a step tries one after the other that waits for no transfer, from "
    "the first on, with all the budget that is left, if it leaves room and one more may run. It stops at the first "
    "that is not admitted. One that is admitted runs after all others, or keeps its place and loads.",
    unknowns=UNKNOWNS,
    assumes=lambda u: _is_line(u) & _hits(u) & (u.left <= u.budget) & (u.left_now <= u.left),
    claim=lambda u: admit(u).fine,
    witnesses={
        "a load is begun, and the next one is tried in vain": lambda u: (
            ((u.turn == 1) & (u.entered0 == 0) & (u.parks0 == 1) & (u.gets0 >= 1) & (u.run == 7) & (u.more == 3))
            and _done(world := admit(u)) == [[Admit], []]
            and world.rejected == TWO
        ),
        "one of many is admitted": lambda u: (
            (u.where0 == LOADS) & (u.where1 == WAITS) & (u.run == 7) & (u.more == 3) & (u.left_now >= 2) & (u.turn == 0)
        ),
    },
    mutants=(
        _broken(
            "the-last-is-tried-first",
            "Those that wait are tried from the last to the first.",
            Scheduler._admit_waiting,
            (
                "in [number for number in self.queues.waiting if self._is_ready(number)]:",
                "in reversed([number for number in self.queues.waiting if self._is_ready(number)]):",
            ),
        ),
        _broken(
            "the-next-is-tried",
            "If one is not admitted, the next one is tried.",
            Scheduler._admit_waiting,
            ("if tokens is None:\n            break", "if tokens is None:\n            continue"),
        ),
        _broken(
            "admits-one",
            "Only one is admitted in a step.",
            Scheduler._admit_waiting,
            ("    entered.append(number)", "    entered.append(number)\n        break"),
        ),
        _broken(
            "leaves-no-room",
            "One is admitted whether it leaves room or not.",
            Scheduler._admit_waiting,
            (" or not self._leaves_room(number)", ""),
        ),
        _broken(
            "more-run-than-may",
            "One is admitted however many run.",
            Scheduler._admit_waiting,
            (" or not self._may_run()", ""),
        ),
        _broken(
            "a-load-is-awaited",
            "What another node offers is awaited within the step.",
            Scheduler._admit_waiting,
            ("terms.parks", "False"),
        ),
        _broken(
            "a-hit-is-taken-off-the-budget",
            "What a hit brings is taken off the budget.",
            Scheduler._compute,
            (" - answer.hit_tokens", ""),
        ),
    ),
)

STEP = Obligation(
    id="scheduler-progress.step-is-dispatched-before-its-answers",
    statements=("KV-LIVE-01", "KV-LIVE-02", "KV-LIVE-03"),
    title="However many run, and however many wait, a step first serves those that run, with its whole budget; if none "
    "was rejected, it admits those that wait, with what is left. Where it matters it is then dispatched, once. Then "
    "each that runs and of which all tokens are computed is answered, once, in order, and ends right after its answer "
    "or not at all in this step. Nothing else is asked for but events, at its end, and no request passes another but "
    "one that loads.",
    unknowns=UNKNOWNS,
    assumes=lambda u: _may_be(u) & (u.where0 <= WAITS) & (u.where1 <= WAITS),
    claim=lambda u: whole_step(u).fine,
    witnesses={
        "one ends, and one after it is answered": lambda u: (
            ((u.turn == 2) & (u.run == 7) & (u.at0 == 2) & (u.at1 == 5) & (u.fences == 1))
            and _done(whole_step(u)) == [[Sample, Finish], [Sample]]
        ),
        "one of many is answered, and ends": lambda u: (
            (u.where0 == RUNS) & (u.run == 7) & (u.at0 == 3) & (u.computed0 == 5) & (u.tokens0 == 4) & (u.turn == 0)
        ),
    },
    mutants=(
        _broken(
            "only-the-first-is-dispatched",
            "Only the first request counts as dispatched.",
            Population.settle,
            ("in self.alive.values()", "in list(self.alive.values())[:1]"),
        ),
        _broken(
            "never-dispatched",
            "Answers are taken of a step that was not dispatched.",
            Scheduler._step,
            ("self._perform(Dispatch())", "pass"),
        ),
        _broken(
            "dispatched-after-its-answers",
            "A step is dispatched after its answers.",
            Scheduler._step,
            ("self._perform(Dispatch())", "pass"),
            ("self._perform(TakeEvents())", "self._perform(Dispatch()); self._perform(TakeEvents())"),
        ),
        _broken(
            "admits-after-a-rejection",
            "Requests are admitted in a step that rejected one.",
            Scheduler._step,
            ("() if budget is None else self._admit_waiting(budget)", "self._admit_waiting(budget or 1)"),
        ),
        _broken(
            "admits-with-the-whole-budget",
            "Those that are admitted have the whole budget.",
            Scheduler._step,
            ("self._admit_waiting(budget)", "self._admit_waiting(self.limits.budget_tokens)"),
        ),
        _broken(
            "half-the-budget",
            "A step has half its budget.",
            Scheduler._step,
            ("self.limits.budget_tokens", "self.limits.budget_tokens // 2"),
        ),
        _broken(
            "two-are-answered",
            "Only the first two are answered.",
            Scheduler._step,
            ("zip(answered,", "zip(answered[:2],"),
        ),
        _broken(
            "answered-too-early",
            "One is answered as soon as some of its tokens are computed.",
            Scheduler._step,
            (".answers_next", ".tokens_computed > 0"),
        ),
        _broken(
            "one-that-ends-stays-in-line",
            "One that ends stays in the line.",
            Scheduler._answer,
            ("self.queues.leave(number)", "pass"),
        ),
        _broken(
            "every-answer-is-the-last", "Each request ends with its answer.", Scheduler._answer, ("reply.ends", "True")
        ),
        _broken(
            "an-end-is-passed-over",
            "A request whose answer ends it continues.",
            Scheduler._answer,
            ("reply.ends or ", ""),
        ),
    ),
)

OBLIGATIONS = (SERVES, ADMITS, STEP)
