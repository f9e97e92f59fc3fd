"""The scheduler over counts beside the one over blocks, step by step: what is proved of one is so of the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvreference.answers import Answer
from kvreference.operations import Dispatch, TakeEvents
from kvreference.operations import Operation as BlockOperation
from kvreference.scheduler.limits import Limits
from kvreference.scheduler.observation import Observation
from kvreference.scheduler.operations import Operation
from kvreference.scheduler.scheduler import Scheduler
from kvreference.settings import Settings
from kvspec.progress.counted import counted_scheduler, on_counts
from kvspec.progress.stand_ins import length_of


class Beside:
    """Two schedulers that are asked the same."""

    def __init__(self, settings: Settings, limits: Limits, kind: type[Scheduler] = Scheduler) -> None:
        if settings.caches or any(g.copies or g.attention.stops_at_block_ends for g in settings.geometry.groups):
            raise ValueError("nothing is counted with caching, copies, or states that are kept at block ends only")
        self.reference = kind(settings, limits)
        with on_counts():
            self.counted = counted_scheduler(settings, limits)

    def apply(self, operation: Operation) -> list[str]:
        """Perform a legal operation on both; how their answers and their states differ."""
        told = self.reference.apply(operation)
        with on_counts():
            counted = self.counted.apply(operation)
        found = [f"{what}: {one} over blocks, {other} over counts" for what, one, other in _answers(told, counted)]
        return found + list(self.differences())

    def differences(self) -> Iterator[str]:
        """How the states differ: the queues, the books, who holds how much, what is free."""
        one, other = _state(self.reference), _state(self.counted)
        for what in one:
            if one[what] != other[what]:
                yield f"{what}: {one[what]} over blocks, {other[what]} over counts"


def _answers(told: Observation, counted: Observation) -> Iterator[tuple[str, object, object]]:
    pairs = ("asked", _asked(told), _asked(counted)), ("entered", told.entered, counted.entered)
    for what, one, other in (*pairs, ("refused", told.reason, counted.reason)):
        if one != other:
            yield what, one, other


def _asked(told: Observation) -> list[tuple[BlockOperation, str, Any, Any]]:
    """What was asked of the block manager, and what it answered, without the blocks themselves."""
    return [
        (asked, *_answer(answer)) for asked, answer in told.performed if not isinstance(asked, (Dispatch, TakeEvents))
    ]


def _answer(answer: Answer) -> tuple[str, Any, Any]:
    return type(answer).__name__, getattr(answer, "external_tokens", None), getattr(answer, "loads", None)


def _state(scheduler: Scheduler) -> dict[str, object]:
    alive = scheduler.manager.population.alive
    return {
        "running": list(scheduler.queues.running),
        "waiting": list(scheduler.queues.waiting),
        "terms": dict(scheduler.queues.terms),
        "free blocks": length_of(scheduler.manager.pool.free),
        "requests": {
            n: (r.status.name, length_of(r.tokens), len(r.drafts), r.tokens_computed, r.drafts_in_flight)
            for n, r in alive.items()
        },
        "blocks held": {n: [length_of(t.live()) for t in tables] for n, tables in scheduler.manager.tables.items()},
    }
