"""A block manager that is followed: a scheduler drives it, and it answers the gate what it has answered already."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import evolve

from kvgate.adapters.release_variants import PADDING, choices_of
from kvgate.adapters.releases.description import Release, SchedulerRules
from kvgate.adapters.stock import Stock
from kvreference.answers import Answer, Refused
from kvreference.operations import Admit, Operation
from kvreference.population import Population, Status
from kvreference.settings import Settings
from kvreference.snapshot import Snapshot

if TYPE_CHECKING:
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.request import Request

_CONTAINERS = (dict, list, set, deque)
_QUEUES = "vllm.v1.core.sched.request_queue"


class Followed(Stock):
    """The block manager of a scheduler, as a system under test: it answers what it has answered already.

    Raises:
        ValueError: settings for which it has nothing.
    """

    def __init__(self, settings: Settings, scheduler: Scheduler, description: Release) -> None:
        self.description = description
        refused = self.refusal(settings)
        if refused is not None:
            raise ValueError(refused)
        # Not the parent's: the scheduler has built the manager.
        self.settings = settings
        self.population = Population(settings, choices_of(self).rules)
        self.scheduler = scheduler
        self.manager = scheduler.kv_cache_manager
        self._requests: dict[int, Request] = {}
        self._answer: Answer | None = None
        self._performed = 0
        self.popped: list[Sequence[Any]] = []
        """The blocks that a request is releasing just now, to be freed late."""
        self.kept: dict[int, int] = {}
        """By the number of an operation: how many blocks the scheduler wanted left free for others."""
        self.kept_last = 0
        """The same of the last allocation that was asked for."""
        self.padded: dict[int, int] = {}
        """By the number of an operation: how many drafts stand next to the one token that it computes."""

    @property
    def scheduling(self) -> SchedulerRules:
        """How its scheduler differs from that of vLLM 0.20.2."""
        assert self.description.scheduler is not None, "only a release with a described scheduler is followed"
        return self.description.scheduler

    def apply(self, operation: Operation) -> Answer:
        self._performed += 1
        answer, self._answer = self._answer, None
        if answer is None:
            # Only the gate asks for this.
            return super().apply(operation)
        self.population.settle(operation, answer)
        if isinstance(answer, Refused) and isinstance(operation, Admit):
            self.population[operation.request].drafts = []
        return answer

    def snapshot(self) -> Snapshot:
        late = [blocks for _, blocks in getattr(self.scheduler, "deferred_frees", ())]
        late += self.popped
        freed_late = [[block.block_id for block in blocks if not block.is_null] for blocks in late if blocks]
        return evolve(super().snapshot(), freed_late=freed_late)

    def note_answer(self, answer: Answer) -> None:
        """The next operation was performed, and answered with this."""
        self._answer = answer

    def keeps(self, blocks: int) -> None:
        """The next operation must leave so many blocks free."""
        self.kept_last = blocks
        if blocks:
            self.kept[self._performed] = blocks

    def pads(self, number: int, drafts: int) -> None:
        """With the next operation, so many drafts stand next to the one token that it computes for a request."""
        self.padded[self._performed] = drafts
        self.population[number].drafts = [PADDING] * drafts

    def padded_next(self) -> int:
        """How many drafts stand next to the one token that the next operation computes."""
        return self.padded.get(self._performed, 0)

    def in_line(self, by_priority: bool) -> list[Request]:
        """The waiting requests, in the order in which the scheduler looks at them."""
        queues = [list(getattr(self.scheduler, name)) for name in self.scheduling.queues]
        if by_priority and self.scheduling.joins_queues:
            queues = [[request for queue in queues for request in queue]]
        urgent = [sorted(queue, key=lambda each: (each.priority, each.arrival_time)) for queue in queues]
        return [request for queue in (urgent if by_priority else queues) for request in queue]

    def roots(self) -> Mapping[str, object]:
        # Its configuration is not state, and is large; a connector is not part of it.
        books = {name: value for name, value in vars(self.scheduler).items() if _keeps_books(value)}
        return {"manager": self.manager, **books}

    def enter(self, number: int, request: Request) -> None:
        """The scheduler is about to be given a request."""
        self._requests[number] = request

    def request(self, number: int) -> Request:
        """vLLM's own request."""
        return self._requests[number]

    def requests(self) -> Iterable[tuple[int, Request]]:
        """The requests that have blocks or wait for them, each with its number."""
        return self._requests.items()

    def has(self, number: int, request: Request) -> bool:
        """Whether that is its request of that number."""
        return self._requests.get(number) is request

    def is_over(self, number: int) -> bool:
        """Whether the results of a request are no longer needed."""
        ours = self.population.alive.get(number)
        return ours is None or ours.status is Status.ENDING

    def leave(self, number: int) -> None:
        """A request is over."""
        self._requests.pop(number, None)


def _keeps_books(value: object) -> bool:
    return isinstance(value, _CONTAINERS) or type(value).__module__ == _QUEUES
