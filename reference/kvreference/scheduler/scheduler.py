"""The scheduler: first come, first served, and no request is admitted that could keep another from its end.

Its rules, in addition to those of every scheduler with chunked prefill:

- A request is admitted only if it fits into what all locked blocks leave (``kvreference.scheduler.room``). A load locks
  blocks, so it begins only if there is also room for every request admitted so far.
- The first running request is never preempted. It gets its blocks once all later ones freed theirs; if not, only
  transfers of requests that have ended hold them, and it waits.
- In a step in which a request did not get its blocks, no request is admitted.

So in every step the first request makes progress, unless a transfer holds it up (``kvreference.scheduler.progress``).
"""

from __future__ import annotations

from itertools import cycle

from attrs import evolve

from kvreference.answers import Answer, Granted
from kvreference.manager import Manager
from kvreference.operations import Abort, Admit, Dispatch, Finish, Preempt, Sample, Schedule, TakeEvents, Transferred
from kvreference.operations import Operation as BlockOperation
from kvreference.population import Status
from kvreference.scheduler.limits import Limits, Reason
from kvreference.scheduler.observation import Observation
from kvreference.scheduler.operations import Operation, Reply, Step, Submit
from kvreference.scheduler.queues import Queues, Terms
from kvreference.scheduler.room import blocks_parked, blocks_to_run, is_room
from kvreference.settings import Settings


class Scheduler:
    """The reference of the scheduler, over the reference of the block manager.

    Raises:
        ValueError: the settings have steps in flight: each step is answered here before the next one is scheduled.
    """

    def __init__(self, settings: Settings, limits: Limits) -> None:
        if settings.steps_in_flight_max > 1:
            raise ValueError("the reference's scheduler schedules no step before the one before it is answered")
        self.settings = settings
        self.limits = limits
        self.manager = Manager(settings)
        self.queues = Queues()
        self._performed: list[tuple[BlockOperation, Answer]] = []

    def copy(self) -> Scheduler:
        """An independent scheduler in the same state."""
        other = type(self).__new__(type(self))
        other.settings = self.settings
        other.limits = self.limits
        other.manager = self.manager.copy()
        other.queues = self.queues.copy()
        other._performed = []
        return other

    def transfers(self) -> list[int]:
        """The requests of which a transfer is under way."""
        alive = self.manager.population.alive
        return [number for number in alive if alive[number].status in (Status.LOADING, Status.ENDING)]

    def resolve(self, operation: Operation) -> Operation | None:
        """The legal operation that ``operation`` stands for now, or None if there is none."""
        if isinstance(operation, Submit):
            number = max(operation.arrival.request, self.manager.population.arrived)
            return evolve(operation, arrival=evolve(operation.arrival, request=number))
        if isinstance(operation, Step):
            return operation
        legal = self.manager.population.resolve(operation)
        assert legal is None or isinstance(legal, (Abort, Transferred))
        return legal

    def apply(self, operation: Operation) -> Observation:
        """Perform a legal operation (see ``resolve``), in place."""
        self._performed = []
        reason: Reason | None = None
        entered: tuple[int, ...] = ()
        if isinstance(operation, Submit):
            reason = self._submit(operation)
        elif isinstance(operation, Step):
            entered = self._step(operation.replies)
        else:
            self._perform(operation)
            if isinstance(operation, Abort):
                self.queues.leave(operation.request)
        return Observation(tuple(self._performed), entered, reason)

    def _perform(self, operation: BlockOperation) -> Answer:
        assert operation == self.manager.population.resolve(operation), "a scheduler asks for what is legal"
        answer = self.manager.apply(operation)
        self._performed.append((operation, answer))
        return answer

    # Acceptance

    def _submit(self, operation: Submit) -> Reason | None:
        """Accept a request that can be served to its end, or tell why not."""
        limit_tokens = min(operation.prompt_tokens + operation.answers_max, self.settings.tokens_max)
        if operation.prompt_tokens >= self.settings.tokens_max:
            return Reason.PROMPT_TOO_LONG
        if not self._fits_alone(limit_tokens):
            return Reason.NEVER_FITS
        if len(self.manager.population.alive) >= self.settings.requests_max:
            return Reason.TOO_MANY
        self._perform(operation.arrival)
        terms = Terms(limit_tokens, operation.external_tokens, operation.loads, operation.sends)
        self.queues.submit(operation.arrival.request, terms)
        return None

    def _fits_alone(self, limit_tokens: int) -> bool:
        """Whether a request gets to its end if no other request holds a block. Its last token is never computed."""
        return blocks_to_run(self.settings, limit_tokens - 1) <= self.settings.blocks - 1

    # A step

    def _step(self, replies: tuple[Reply, ...]) -> tuple[int, ...]:
        """Give blocks to running requests, admit waiting ones, compute all of it, take the replies; returns those
        admitted."""
        budget = self._schedule_running(self.limits.budget_tokens)
        entered = () if budget is None else self._admit_waiting(budget)
        if self.settings.geometry.fences:
            self._perform(Dispatch())
        answered = [number for number in self.queues.running if self.manager.population[number].answers_next]
        for number, reply in zip(answered, cycle(replies), strict=False):
            self._answer(number, reply)
        self._perform(TakeEvents())
        return entered

    def _schedule_running(self, budget: int) -> int | None:
        """Give running requests blocks for their next tokens; the budget left, or None if one was rejected. A rejected
        request takes blocks from the last running one until it has enough, or frees its own.
        """
        running = self.queues.running
        refused = False
        place = 0
        while place < len(running) and budget > 0:
            tokens = self._compute(Schedule(running[place], budget))
            if tokens is not None:
                budget -= tokens
                place += 1
                continue
            refused = True
            if not self._preempts():
                break
            self._perform(Preempt(self.queues.preempt()))
        return None if refused else budget

    def _preempts(self) -> bool:
        """Whether the last that runs may lose its blocks: not if it is the first as well."""
        return len(self.queues.running) > 1

    def _admit_waiting(self, budget: int) -> tuple[int, ...]:
        """Admit as many as there is room for, in order; returns those that got blocks for the first time."""
        entered = []
        for number in [number for number in self.queues.waiting if self._is_ready(number)]:
            terms = self.queues.terms[number]
            if budget == 0 or not self._may_run() or not self._leaves_room(number):
                break
            tokens = self._compute(Admit(number, budget, terms.external_tokens, terms.parks))
            if tokens is None:
                break
            budget -= tokens
            runs = self.manager.population[number].status is Status.RUNNING
            if self.queues.admit(number, runs):
                entered.append(number)
        return tuple(entered)

    def _compute(self, operation: Admit | Schedule) -> int | None:
        """Ask for blocks; how many tokens are computed in them in this step, or None if they were rejected."""
        request = self.manager.population[operation.request]
        before = request.tokens_computed
        answer = self._perform(operation)
        if not isinstance(answer, Granted):
            return None
        return request.tokens_computed - before - answer.hit_tokens - answer.external_tokens

    def _answer(self, number: int, reply: Reply) -> None:
        """A request takes drafts that hold and one token more, up to its limit; it ends there or as the reply says."""
        request = self.manager.population[number]
        terms = self.queues.terms[number]
        accepted = min(reply.accepted, request.drafts_in_flight, terms.limit_tokens - len(request.tokens) - 1)
        self._perform(Sample(number, accepted, reply.token, min(reply.drafts, self.settings.drafts_max)))
        if reply.ends or len(request.tokens) == terms.limit_tokens:
            self._perform(Finish(number, terms.sends))
            self.queues.leave(number)

    # Which requests may be admitted

    def _is_ready(self, number: int) -> bool:
        """Whether a request that waits, waits for no transfer."""
        return self.manager.population[number].status is Status.WAITING

    def _may_run(self) -> bool:
        """Whether one request more may run."""
        return len(self.queues.running) < self.limits.running_max

    def _leaves_room(self, number: int) -> bool:
        """Whether a request has room and, if it locks blocks, leaves room for all admitted before."""
        terms = self.queues.terms
        parked = blocks_parked(self.manager.tables, self.queues.running)
        admitted = {number}
        if terms[number].parks:
            parked[number] = self._blocks_to_run(len(self.manager.population[number].tokens))
            admitted.update(other for other in terms if terms[other].entered)
        needed = {other: self._blocks_to_run(terms[other].limit_tokens - 1) for other in admitted}
        return is_room(self.settings.blocks - 1, needed, parked)

    def _blocks_to_run(self, tokens: int) -> int:
        return blocks_to_run(self.settings, tokens)


def step(scheduler: Scheduler, operation: Operation) -> tuple[Scheduler, Observation]:
    """The state after a legal operation, and what was done. The given state stays as it is."""
    after = scheduler.copy()
    return after, after.apply(operation)
