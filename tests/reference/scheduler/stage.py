"""The stage of these tests: small schedulers, and what must hold around everything they do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import frozen

from kvreference.geometry import Geometry, Group
from kvreference.operations import Arrive, Preempt, Run, Sample
from kvreference.population import Status
from kvreference.scheduler.limits import Limits
from kvreference.scheduler.observation import Observation
from kvreference.scheduler.operations import Operation, Step, Submit
from kvreference.scheduler.progress import is_held_up, is_stuck, steps_to_admission, steps_to_answer, steps_to_end
from kvreference.scheduler.room import blocks_parked, blocks_to_run, is_room
from kvreference.scheduler.scheduler import Scheduler
from kvreference.settings import Settings
from kvreference.snapshot import check

FULL = Group("full", 2)
WINDOW = Group("sliding_window", 2, 4)
DRAFTING = Group("full", 2, lookahead=True)


def scheduler_of(
    *groups: Group, blocks: int = 64, limits: Limits | None = None, kind: type[Scheduler] = Scheduler, **rest: Any
) -> Scheduler:
    """A scheduler that by default can do all at once."""
    return kind(Settings(Geometry(groups), blocks, **rest), limits or Limits())


def submit(number: int, tokens: int, first: int = 0, **terms: Any) -> Submit:
    """A request with a prompt of one run."""
    return Submit(Arrive(number, (Run(first, tokens),)), **terms)


def load(number: int, tokens: int, external_tokens: int, first: int = 0, **terms: Any) -> Submit:
    """The same, of which another node offers a part, to be loaded while it waits."""
    return submit(number, tokens, first, external_tokens=external_tokens, loads=True, **terms)


def perform(scheduler: Scheduler, *operations: Operation) -> Observation:
    """Apply each operation, which must be legal, and check what it did; the last observation.

    Only the last may be a rejected request.
    """
    observation = Observation()
    for operation in operations:
        assert observation.reason is None
        assert operation == scheduler.resolve(operation)
        before = outlook(scheduler)
        observation = scheduler.apply(operation)
        assert [] == wrongs(scheduler, before, operation, observation)
    return observation


def line(scheduler: Scheduler) -> tuple[list[int], list[int]]:
    """The running requests, and the waiting ones."""
    return list(scheduler.queues.running), list(scheduler.queues.waiting)


def tokens_computed(scheduler: Scheduler) -> list[int]:
    """Of those that run and those that wait, in line."""
    return [
        scheduler.manager.population[number].tokens_computed
        for number in (*scheduler.queues.running, *scheduler.queues.waiting)
    ]


@frozen
class Outlook:
    """The promises, and the transfers that are waited for."""

    waits: Mapping[int, Mapping[str, int]]
    """Per queued request that waits for no transfer, the most steps until it is admitted, is answered, and ends."""
    transfers: frozenset[int]
    """The requests of which a transfer is under way."""


def outlook(scheduler: Scheduler) -> Outlook:
    """The current promises."""
    transfers = frozenset(scheduler.transfers())
    waits = {
        number: {
            "admitted": steps_to_admission(scheduler, number),
            "answered": steps_to_answer(scheduler, number),
            "ended": steps_to_end(scheduler, number),
        }
        for number in scheduler.queues.terms
        if number not in transfers
    }
    return Outlook(waits, transfers)


def wrongs(scheduler: Scheduler, before: Outlook, operation: Operation, observation: Observation) -> list[str]:
    """The violations after an operation: of the blocks, of the bookkeeping, of the promises."""
    return [
        *(str(violation) for violation in check(scheduler.manager.snapshot())),
        *_books_wrong(scheduler),
        *_room_wrong(scheduler),
        *hangs(scheduler, before, operation, observation),
        *_promises_broken(scheduler, before, operation, observation),
    ]


def _books_wrong(scheduler: Scheduler) -> list[str]:
    """Where the queues and the population disagree."""
    queues, alive = scheduler.queues, scheduler.manager.population.alive
    in_line = [*queues.running, *queues.waiting]
    expected = {number for number, request in alive.items() if request.status is not Status.ENDING}
    wrong = []
    if not expected == set(queues.terms) == set(in_line) or len(in_line) != len(expected):
        wrong.append(f"{sorted(expected)} are not over, {in_line} in line, {sorted(queues.terms)} have terms")
    if any((alive[number].status is Status.RUNNING) != (number in queues.running) for number in expected):
        wrong.append("the running requests are not those of the running queue")
    return wrong


def _room_wrong(scheduler: Scheduler) -> list[str]:
    """Requests that hold more than their bound, and whether an admitted one can no longer reach its end."""
    settings, terms = scheduler.settings, scheduler.queues.terms
    needed = {n: blocks_to_run(settings, terms[n].limit_tokens - 1) for n in terms if terms[n].entered}
    held = {n: blocks for n, blocks in blocks_parked(scheduler.manager.tables, ()).items() if n in terms}
    parked = {n: blocks for n, blocks in held.items() if n not in scheduler.queues.running}
    wrong = [f"request {n} holds {held[n]} blocks, not {needed[n]} at most" for n in held if held[n] > needed[n]]
    if not is_room(settings.blocks - 1, needed, parked):
        wrong.append(f"{needed} do not fit next to {parked}")
    return wrong


def hangs(scheduler: Scheduler, before: Outlook, operation: Operation, observation: Observation) -> list[str]:
    """Whether a step did nothing without having to wait for something."""
    if not isinstance(operation, Step):
        return []
    if is_stuck(scheduler, observation):
        return ["no request makes progress, and no transfer is under way"]
    begun = set(scheduler.transfers()) - before.transfers
    if is_held_up(scheduler, observation) and begun:
        return [f"the transfers of {sorted(begun)} were begun while everybody waited for one"]
    return []


def _promises_broken(
    scheduler: Scheduler, before: Outlook, operation: Operation, observation: Observation
) -> list[str]:
    """The requests that wait for longer than promised: a step takes one off every bound, unless it is held up."""
    passed = int(isinstance(operation, Step) and observation.advanced)
    preempted, answered = observation.requests(Preempt), observation.requests(Sample)
    wrong = []
    for number, now in outlook(scheduler).waits.items():
        kept = {
            "admitted": number in scheduler.queues.running or number in preempted,
            "answered": number in answered,
            "ended": False,
        }
        wrong += [
            f"request {number} was to be {what} within {steps} steps, and now within {now[what]}"
            for what, steps in before.waits.get(number, {}).items()
            if not kept[what] and now[what] > steps - passed
        ]
    return wrong
