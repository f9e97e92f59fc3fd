"""One of two nodes: an engine with everything that checks an engine, whose transfers are with the other node."""

from __future__ import annotations

from typing import ClassVar

from attrs import evolve

from kvgate.adapters.work_meter import WorkMeter
from kvgate.kernel.difference import Divergence
from kvgate.levels.pair.operations import Node
from kvgate.levels.scheduler.engine import Engine
from kvgate.levels.scheduler.operations import Operation, Stage
from kvgate.levels.scheduler.progress import Standing
from kvgate.monitors.slot_memory import LinkedMemory, WorkerMemory
from kvgate.monitors.work import WorkMonitor
from kvreference.population import Status
from kvreference.scheduler.operations import Step, Submit
from kvreference.settings import Settings


class NodeEngine(Engine):
    """The engine of one node."""

    memory_type: ClassVar[type[WorkerMemory]] = LinkedMemory
    # It would be found again, as a hang of both nodes.
    passes_known_hangs: ClassVar[bool] = False

    def __init__(self, node: Node, settings: Settings, stage: Stage, subject: str, with_reference: bool) -> None:
        self.node = node
        self.ends: list[tuple[int, bool]] = []
        """The requests that ended and were not looked at yet, each with whether its blocks stay held."""
        self.stood: Standing | None = None
        """The state when a step last scheduled no request, if nothing has happened since."""
        self.still = False
        """Whether a step scheduled no request and changed nothing, and nothing has happened since."""
        super().__init__(settings, evolve(stage, connector=True), subject, with_reference)
        meters = [each.meter for each in self.lockstep.monitors if isinstance(each, WorkMonitor)]
        self._meters = [meter for meter in meters if isinstance(meter, WorkMeter)]

    def _ended(self, number: int, is_read: bool) -> None:
        super()._ended(number, is_read)
        self.ends.append((number, is_read))

    def perform(self, operation: Operation) -> Divergence | None:
        """Perform one operation, if it stands for a legal one, and check it."""
        for meter in self._meters:
            meter.resume()
        found = super().perform(operation)
        for meter in self._meters:
            meter.pause()
        if not isinstance(operation, Step):
            self.moved()
            return found
        idle = not self.scheduled and not any(sent.scheduled for sent in self.in_flight)
        standing = self.progress.standing() if idle else None
        self.still, self.stood = idle and standing == self.stood, standing
        return found

    def moved(self) -> None:
        """Something happened, from outside or on the other node."""
        self.stood, self.still = None, False

    def submit(self, submit: Submit) -> tuple[int | None, Divergence | None]:
        """Submit a request, if as many are not alive as may be: its number here, and what was found."""
        population = self.followed.population
        number = max(submit.arrival.request, population.arrived)
        found = self.perform(evolve(submit, arrival=evolve(submit.arrival, request=number)))
        return (number if population.arrived > number else None), found

    def is_open(self, number: int) -> bool:
        """Whether a request has not ended."""
        request = self.followed.population.alive.get(number)
        return request is not None and request.status is not Status.ENDING

    @property
    def rests(self) -> bool:
        """Whether there is nothing for its scheduler to do."""
        return not self.scheduler.has_unfinished_requests()

    @property
    def has_place(self) -> bool:
        """Whether it takes one more request."""
        return len(self.followed.population.alive) < self.settings.requests_max
