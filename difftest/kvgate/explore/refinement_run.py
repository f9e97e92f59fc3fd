"""Refinement by the reference: is what it does to its blocks what the proofs are about, and what it has to do?

A manager is followed by the transition system of ``kvspec.pool`` on random operations over all mechanisms, and on every
edge of the tiny models. What is compared, and what is not, is in ``kvspec.refinement``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from itertools import cycle
from typing import Any

from attrs import frozen

from kvgate.adapters.reference import Reference
from kvgate.explore.ahead_world import AheadWorld
from kvgate.explore.exploration import Exploration, Limits, Sighting
from kvgate.explore.invariants import Checks
from kvgate.explore.manager_world import ManagerWorld
from kvgate.explore.scheduler_world import SchedulerWorld, TinyScheduler
from kvgate.explore.search import Search
from kvgate.explore.tiny_models import Tiny
from kvgate.explore.world import Explorable, World
from kvgate.gate.case_runner import Lane
from kvgate.gate.generator import PRESETS, Generator
from kvgate.kernel.models import Model
from kvgate.levels.manager import draw_case
from kvreference.answers import Answer
from kvreference.choices import Choices
from kvreference.manager import OWN, Manager
from kvreference.operations import Operation
from kvreference.scheduler.limits import Limits as StepLimits
from kvreference.scheduler.scheduler import Scheduler
from kvreference.settings import Settings
from kvreference.snapshot import Violation
from kvspec.refinement.follower import Follower, everywhere, wrong
from kvspec.refinement.step import Drift

Tally = Counter[str]
"""How often each transition happened."""


class DriftError(Exception):
    """The reference and the model part."""


class Followed(Reference):
    """A manager that is followed."""

    def __init__(self, settings: Settings, tally: Tally | None = None, choices: Choices = OWN) -> None:
        super().__init__(settings, choices)
        self.follower = Follower(self, tally)

    def copy(self) -> Followed:
        other = super().copy()
        other.follower = self.follower.copy()
        return other

    def apply(self, operation: Operation) -> Answer:
        """Perform a legal operation, and compare.

        Raises:
            DriftError: the model does something else.
        """
        answer = super().apply(operation)
        drift = self.follower.observe(self, operation, answer)
        if drift is not None:
            raise DriftError(str(drift))
        return answer

    def returned(self, requests: Collection[int]) -> None:
        """The oldest step in flight is over; compare.

        Raises:
            DriftError: the model does something else.
        """
        super().returned(requests)
        drift = self.follower.step_over(self, requests)
        if drift is not None:
            raise DriftError(str(drift))

    def drifts(self) -> list[Drift]:
        """Where an invariant of the model does not hold, anywhere."""
        state = self.follower.now.state
        return list(wrong(None, state, everywhere(state)))


Factory = Callable[[Settings, Tally], Followed]


@frozen
class Driven:
    """What was driven, and what was found."""

    operations: int
    cases: int
    wrong: tuple[str, ...]
    """At most one: the first ends the run."""


def drive(
    models: Sequence[Model],
    operations: int,
    tally: Tally,
    seed: int = 0,
    report: Callable[[int], None] = lambda _operations: None,
    factory: Factory = Followed,
) -> Driven:
    """Drive followed managers on ``models`` in turn until at least ``operations`` operations were performed."""
    lanes = [Lane(model, preset) for model in models for preset in PRESETS]
    generators = [(lane, Generator(PRESETS[lane.preset], lane.model.geometry, lane.model.features)) for lane in lanes]
    performed = cases = 0
    for index, (lane, generator) in enumerate(cycle(generators)):
        case = draw_case(generator, lane, f"{seed}/{index // len(generators)}", seed)
        manager = factory(case.settings, tally)
        cases += 1
        for operation in case.operations:
            resolved = manager.population.resolve(operation)
            if resolved is None:
                continue
            performed += 1
            try:
                manager.apply(resolved)
            except Exception as error:
                message = f"{case.model}, {lane.preset}, step {performed}: {type(error).__name__}: {error}"
                return Driven(performed, cases, (message,))
        found = [f"{case.model}, {lane.preset}, at the end of a case: {drift}" for drift in manager.drifts()]
        report(performed)
        if found or performed >= operations:
            return Driven(performed, cases, tuple(found[:1]))
    raise AssertionError("no model to drive")


class _FollowedScheduler(Scheduler):
    """A scheduler over a followed manager."""

    def __init__(self, settings: Settings, limits: StepLimits, tally: Tally) -> None:
        super().__init__(settings, limits)
        self.manager = Followed(settings, tally)


class _FollowedSchedulerWorld(SchedulerWorld):
    """Its world, in which the model's invariants are checked as well."""

    def violations_in(self, state: Scheduler) -> Sequence[Violation]:
        return _violations(state.manager)


def _violations(manager: Manager) -> Sequence[Violation]:
    assert isinstance(manager, Followed)
    return [Violation(drift.where, str(drift)) for drift in manager.drifts()]


def world_of(tiny: Explorable, tally: Tally) -> World[Any, Any]:
    """The world of a tiny model in which every edge is followed, and nothing else is checked."""
    if isinstance(tiny, TinyScheduler):
        return _FollowedSchedulerWorld(
            tiny.name, tiny.shallow, lambda settings, limits: _FollowedScheduler(settings, limits, tally)
        )
    assert isinstance(tiny, Tiny)
    checks = Checks(_violations, watches_memory=False, of_steps=())
    kind = AheadWorld if tiny.shallow.settings.steps_in_flight_max > 1 else ManagerWorld
    return kind(tiny.name, tiny.shallow, lambda settings: Followed(settings, tally), checks)


def explore(
    tiny: Explorable,
    limits: Limits,
    tally: Tally,
    report: Callable[[Sighting], None] = lambda _sighting: None,
) -> Exploration[Any]:
    """Follow every edge of a tiny model."""
    return Search(world_of(tiny, tally), limits, report).run()
