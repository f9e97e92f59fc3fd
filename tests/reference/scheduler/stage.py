"""The stage of these tests: small schedulers, and what must hold around everything they do."""

from __future__ import annotations

from typing import Any

from kvreference.geometry import Geometry, Group
from kvreference.operations import Abort, Admit, Arrive, Preempt, Run, Sample, Schedule
from kvreference.population import Status
from kvreference.scheduler.limits import Limits
from kvreference.scheduler.observation import Observation
from kvreference.scheduler.operations import Operation, Step, Submit
from kvreference.scheduler.progress import steps_to_answer, steps_to_be_let_in, steps_to_end
from kvreference.scheduler.room import blocks_at_peak, blocks_parked, is_room
from kvreference.scheduler.scheduler import Scheduler
from kvreference.settings import Settings
from kvreference.snapshot import check

FULL = Group("full", 2)
WINDOW = Group("sliding_window", 2, 4)

Waits = dict[int, tuple[int, int, int]]
"""Per request in line that waits for no transfer: steps until it is let in, is answered, and ends."""


def scheduler_of(
    *groups: Group, blocks: int = 64, limits: Limits | None = None, kind: type[Scheduler] = Scheduler, **rest: Any
) -> Scheduler:
    """A scheduler that can do all at once, unless told otherwise."""
    return kind(Settings(Geometry(groups), blocks, **rest), limits or Limits())


def submit(number: int, tokens: int, first: int = 0, **terms: Any) -> Submit:
    """A request with a prompt of one run."""
    return Submit(Arrive(number, (Run(first, tokens),)), **terms)


def perform(scheduler: Scheduler, *operations: Operation) -> Observation:
    """Apply each operation, which must be legal as it stands, judge what it did; the last observation."""
    observation = Observation()
    for operation in operations:
        assert operation == scheduler.resolve(operation)
        before = waits(scheduler)
        observation = scheduler.apply(operation)
        assert [] == wrongs(scheduler, before, operation, observation)
    return observation


def waits(scheduler: Scheduler) -> Waits:
    """How long everybody in line waits at most."""
    return {
        number: (
            steps_to_be_let_in(scheduler, number),
            steps_to_answer(scheduler, number),
            steps_to_end(scheduler, number),
        )
        for number in (*scheduler.queues.running, *scheduler.queues.waiting)
        if scheduler.manager.population[number].status is not Status.LOADING
    }


def wrongs(scheduler: Scheduler, before: Waits, operation: Operation, observation: Observation) -> list[str]:
    """What is wrong after an operation: with the blocks, the books, the promises of room and of progress."""
    return [
        *(str(violation) for violation in check(scheduler.manager.snapshot())),
        *books_wrong(scheduler),
        *room_wrong(scheduler),
        *progress_wrong(scheduler, before, operation, observation),
    ]


def books_wrong(scheduler: Scheduler) -> list[str]:
    """Where the queues and the population disagree."""
    queues, alive = scheduler.queues, scheduler.manager.population.alive
    wrong = []
    if queues.running != [number for number in queues.running if alive[number].status is Status.RUNNING]:
        wrong.append("somebody in the running queue does not run")
    if any(alive[number].status not in (Status.WAITING, Status.LOADING) for number in queues.waiting):
        wrong.append("somebody in the waiting queue does not wait")
    in_line = {number for number, request in alive.items() if request.status is not Status.ENDING}
    if not in_line == set(queues.terms) == {*queues.running, *queues.waiting}:
        wrong.append("the queues, the terms and the requests alive are not the same requests")
    return wrong


def room_wrong(scheduler: Scheduler) -> list[str]:
    """Whether a request holds more than was said, or one that was let in has no room to get to its end."""
    wrong = []
    settings, terms = scheduler.settings, scheduler.queues.terms
    parked = blocks_parked(scheduler.manager.tables, scheduler.queues.running)
    unended = {number: blocks for number, blocks in parked.items() if number in terms}
    needed = {n: blocks_at_peak(settings, terms[n].limit_tokens - 1) for n in terms if terms[n].entered}
    if not is_room(settings.blocks - 1, needed, unended):
        wrong.append(f"{needed} do not fit beside {unended}")
    for number, held in blocks_parked(scheduler.manager.tables, ()).items():
        if number in terms and held > needed[number]:
            wrong.append(f"request {number} holds {held} blocks, and was to hold {needed[number]} at most")
    return wrong


def progress_wrong(scheduler: Scheduler, before: Waits, operation: Operation, observation: Observation) -> list[str]:
    """Who has to wait for longer than was said before the operation."""
    wrong = []
    if isinstance(operation, Step) and before and not observation.advanced and not transfers(scheduler):
        wrong.append("nobody gets blocks, and nobody waits for a transfer")
    less = int(isinstance(operation, Step) and observation.advanced)
    let_in, answered = observation.requests(Admit), observation.requests(Sample)
    for number, (steps_let_in, steps_answer, steps_end) in waits(scheduler).items():
        if number not in before:
            continue
        was_let_in, was_answer, was_end = before[number]
        if number in scheduler.queues.waiting and number not in observation.requests(Preempt) and steps_let_in > was_let_in - less:
            wrong.append(f"request {number} was to be let in within {was_let_in} steps, and now within {steps_let_in}")
        if number not in answered and steps_answer > was_answer - less:
            wrong.append(f"request {number} was to be answered within {was_answer} steps, and now {steps_answer}")
        if steps_end > was_end - less:
            wrong.append(f"request {number} was to end within {was_end} steps, and now within {steps_end}")
    return wrong


def transfers(scheduler: Scheduler) -> list[int]:
    """The requests of which a transfer is under way."""
    waiting_for = (Status.LOADING, Status.ENDING)
    return [number for number, request in scheduler.manager.population.alive.items() if request.status in waiting_for]
