"""An engine without a model: vLLM's scheduler and block manager, a worker that answers what it is told, and judges.

The reference's block manager follows every decision of the real one, and ghost memory acts as the worker: it applies
the block tables of each step and knows what every computed token would have read. The scheduler is its own master; what
is judged of it is that its books are right, and that it brings everybody on.
"""

from __future__ import annotations

from itertools import cycle
from typing import Any, NoReturn

from kvgate.adapters.scheduling.arrivals import STOP, new_request
from kvgate.adapters.scheduling.followed import Interception
from kvgate.adapters.scheduling.names import name_of, number_in
from kvgate.adapters.scheduling.stage import new_scheduler
from kvgate.adapters.scheduling.subjects import SUBJECTS
from kvgate.adapters.scheduling.worker import abort, answer, drafts
from kvgate.difference import Difference, Divergence
from kvgate.lockstep import Lockstep
from kvgate.monitors.ghost import GhostMemory
from kvgate.monitors.leak import LeakMonitor
from kvgate.monitors.monitor import Monitor
from kvgate.scheduling.case import Stage
from kvgate.scheduling.operations import Operation as SchedulerOperation
from kvgate.scheduling.progress import ProgressMonitor
from kvreference.answers import Answer, Done
from kvreference.manager import Manager
from kvreference.operations import Abort, Arrive, Dispatch, Operation, Sample
from kvreference.population import Status
from kvreference.scheduler.operations import Reply, Step, Submit
from kvreference.settings import Settings


class Stop(Exception):  # noqa: N818
    """Something was found: the scheduler is stopped where it stands, for what it does next means nothing."""

    def __init__(self, found: Divergence) -> None:
        super().__init__(found)
        self.found = found


class Engine:
    """One run. After the first divergence nothing more can be performed: the states mean nothing from there on."""

    def __init__(self, settings: Settings, stage: Stage, subject: str = "stock", with_reference: bool = True) -> None:
        self.settings = settings
        self.stage = stage
        self.subject = SUBJECTS[subject]
        self.subject.install()
        with self.subject.while_built(settings):
            self.scheduler: Any = new_scheduler(settings, stage)
        self.followed = self.subject.followed(settings, self.scheduler)
        monitors: list[Monitor] = [GhostMemory(settings), LeakMonitor(settings)]
        self.lockstep = Lockstep(self.followed, Manager(settings) if with_reference else None, monitors)
        self.interception = Interception(self.followed, self._follow)
        self.progress = ProgressMonitor(self.scheduler)
        self.found: Divergence | None = None
        self.steps = 0

    def perform(self, operation: SchedulerOperation) -> Divergence | None:
        """Perform one operation, if it stands for a legal one, and judge it."""
        try:
            if isinstance(operation, Submit):
                self._submit(operation)
            elif isinstance(operation, Step):
                self._step(operation.replies)
            elif isinstance(operation, Abort):
                self._abort(operation)
            self.interception.flush()
        except Stop as stop:
            self.found = stop.found
        return self.found

    def close(self) -> list[Divergence]:
        """Abort every request, take a step, and judge what remains."""
        endings: list[SchedulerOperation] = [Abort(number) for number in self.followed.population.alive]
        for operation in (*endings, Step()):
            if self.perform(operation):
                break
        return [self.found] if self.found else self.lockstep.close()

    def _follow(self, operation: Operation, answered: Answer) -> None:
        """The block manager did something: the reference does it too, and everybody judges."""
        population = self.followed.population
        if population.resolve(operation) != operation:
            self._stop("scheduler", Difference("KV-SYS-02", "the scheduler", "a legal operation", f"{operation}"))
        self.followed.told(answered)
        divergence = self.lockstep.perform(operation)
        if divergence is not None:
            raise Stop(divergence)

    def _stop(self, detector: str, difference: Difference) -> NoReturn:
        raise Stop(Divergence(len(self.lockstep.performed), None, detector, difference))

    # Operations

    def _submit(self, operation: Submit) -> None:
        arrival = self.followed.population.resolve(operation.arrival)
        if not isinstance(arrival, Arrive):
            return
        request = new_request(self.settings, Submit(arrival, operation.answers_max))
        self.followed.enter(arrival.request, request)
        self._follow(arrival, Done())
        self.scheduler.add_request(request)
        self.progress.forget()

    def _abort(self, operation: Abort) -> None:
        legal = self.followed.population.resolve(operation)
        if isinstance(legal, Abort):
            abort(self.scheduler, legal.request)
            self.progress.forget()

    def _step(self, replies: tuple[Reply, ...]) -> None:
        self.steps += 1
        output = self.scheduler.schedule()
        self.interception.flush()
        if self.settings.geometry.fences:
            self._follow(Dispatch(), self.subject.copies(output))
        scheduled = list(output.num_scheduled_tokens)
        sampled = self._answer([number_in(name) for name in scheduled], replies)
        self.scheduler.update_from_output(output, answer(scheduled, sampled))
        self.interception.flush()
        if self.settings.drafts_max:
            population = self.followed.population
            proposed = {number: population[number].drafts for number in sampled if number in population.alive}
            self.scheduler.update_draft_token_ids(drafts(proposed))
        self._check_books()
        stuck = self.progress.observe(len(sampled))
        if stuck is not None:
            self._stop("progress", stuck)

    def _answer(self, scheduled: list[int], replies: tuple[Reply, ...]) -> dict[int, list[int]]:
        """What the model answers to those whose tokens are all computed: the drafts that hold, and a token."""
        population = self.followed.population
        sampled = {}
        ready = [number for number in scheduled if number in population.alive and population[number].answers_next]
        for number, reply in zip(ready, cycle(replies), strict=False):
            request = population[number]
            accepted = min(reply.accepted, request.drafts_in_flight)
            token = STOP if reply.ends else reply.token
            sampled[number] = [*request.drafts[:accepted], token]
            self._follow(Sample(number, accepted, token, min(reply.drafts, self.settings.drafts_max)), Done())
        return sampled

    def _check_books(self) -> None:
        """What the scheduler knows of every request is what the operations say."""
        for number, ours in self.followed.population.alive.items():
            theirs = self.scheduler.requests.get(name_of(number))
            expected = (ours.tokens_computed, len(ours.tokens), ours.status is Status.RUNNING)
            got = theirs and (theirs.num_computed_tokens, theirs.num_tokens, theirs.status.name == "RUNNING")
            if expected != got:
                told = "(tokens computed, tokens, whether it runs)"
                self._stop("scheduler", Difference("KV-SYS-02", f"request {number} {told}", str(expected), str(got)))
