"""Whether a scheduler hangs: a few requests are submitted, and every transfer is over before the next step.

The same program runs on counts, with sizes that are not known, and on the reference itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from attrs import define, field, frozen

from kvreference.geometry import Geometry
from kvreference.operations import Arrive, Run, Transferred
from kvreference.scheduler.limits import Limits
from kvreference.scheduler.operations import Operation, Reply, Step, Submit
from kvreference.scheduler.progress import is_stuck, steps_to_end
from kvreference.scheduler.scheduler import Scheduler
from kvreference.settings import Settings
from kvspec.obligation import Count
from kvspec.progress.counted import counted_scheduler, on_counts

LONGEST_TOKENS = 64
"""Longer than any request that is submitted."""


@frozen
class Shop:
    """The fixed part: the groups, how many requests of which kind, the limits of a step."""

    geometry: Geometry
    loads: tuple[bool, ...]
    """Per request, whether it loads."""
    steps: int
    """How many steps are taken at most."""
    drafts: int = 0
    running_max: int = 2
    chunk_tokens: int = 1
    """What a step computes."""
    sends: bool = False
    """Whether the first request is read by another node after its end, until the last step."""

    def unknowns(self, blocks_max: int, tokens_max: int) -> dict[str, Count]:
        """The unknowns: the pool, and how long each request is, loads and may become."""
        sizes = {"blocks": Count(1, blocks_max)}
        for number, loads in enumerate(self.loads):
            sizes[f"tokens{number}"] = Count(1, tokens_max)
            sizes[f"answers{number}"] = Count(1, tokens_max)
            if loads:
                sizes[f"external{number}"] = Count(1, tokens_max)
        return sizes

    def settings(self, u: Any) -> Settings:
        """The settings. The longest request is longer than any that is submitted."""
        return Settings(
            self.geometry,
            u.blocks + 1,
            LONGEST_TOKENS,
            self.chunk_tokens,
            drafts_max=self.drafts,
            caches=False,
            full_sequence_must_fit=False,
        )

    @property
    def limits(self) -> Limits:
        """A step computes one chunk."""
        return Limits(self.chunk_tokens, self.running_max)

    def submits(self, u: Any) -> Iterator[Submit]:
        """The requests, in order."""
        for number, loads in enumerate(self.loads):
            runs = (Run(number * 100, getattr(u, f"tokens{number}")),)
            external = getattr(u, f"external{number}") if loads else 0
            sends = self.sends and number == 0
            yield Submit(Arrive(number, runs), getattr(u, f"answers{number}"), external, loads, sends)


@define
class Course:
    """How it went."""

    operations: list[Operation] = field(factory=list)
    steps: int = 0
    hangs: bool = False
    """Whether a step advanced no request, with nothing to wait for."""
    set_back: bool = False
    """Whether the first that runs lost what it had computed."""
    left: int = 0
    """How many requests did not end."""
    promised: Any = 0
    """The most steps after which all that were accepted have ended."""


def run(shop: Shop, u: Any, scheduler: Scheduler) -> Course:
    """Submit, and take steps until all requests have ended or one is a hang, up to the limit."""
    course = Course()
    for submit in shop.submits(u):
        _apply(scheduler, course, submit)
    if scheduler.queues.terms:
        course.promised = steps_to_end(scheduler, scheduler.queues.waiting[-1])
    while scheduler.queues.terms and course.steps < shop.steps:
        first = scheduler.queues.running[:1]
        observation = _apply(scheduler, course, Step((Reply(drafts=shop.drafts),)))
        course.steps += 1
        if first and first[0] in scheduler.queues.terms and scheduler.queues.running[:1] != first:
            course.set_back = True
            break
        if is_stuck(scheduler, observation):
            course.hangs = True
            break
        for number in () if shop.sends else scheduler.transfers():
            _apply(scheduler, course, Transferred(number))
    course.left = len(scheduler.queues.terms)
    return course


def _apply(scheduler: Scheduler, course: Course, operation: Operation) -> Any:
    course.operations.append(operation)
    return scheduler.apply(operation)


def on_terms(shop: Shop, u: Any, kind: type[Scheduler] = Scheduler) -> Course:
    """How it goes with a scheduler of some kind over counts."""
    with on_counts(kind):
        return run(shop, u, counted_scheduler(shop.settings(u), shop.limits, kind))


def in_fact(shop: Shop, u: Any, kind: type[Scheduler] = Scheduler) -> Course:
    """How it goes with a scheduler of some kind over the block manager itself."""
    return run(shop, u, kind(shop.settings(u), shop.limits))
