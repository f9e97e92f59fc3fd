"""Runs of single cases at any level: fresh ones generated from a seed, and stored ones again."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from attrs import evolve, frozen

from kvgate.gate.level import Bench, Case
from kvgate.gate.shrink import shrink_case
from kvgate.gate.verdict import Found
from kvgate.kernel.difference import Divergence
from kvgate.kernel.errors import UsageError
from kvgate.kernel.models import Model

T = TypeVar("T")


@frozen
class Lane:
    """One model with one generator preset."""

    model: Model
    preset: str


@frozen
class Trial:
    """What came of one case."""

    operations: int
    """How many were performed."""
    found: tuple[Found, ...] = ()
    """Each with the case up to where it diverged; with a finding if that explains it."""
    alone: int = 0
    """How many operations the reference did not follow, though it was to."""


@frozen
class CaseRun:
    """A case that was run."""

    case: Case
    world: Any
    divergences: tuple[Divergence, ...]
    performed: int
    """How many operations of the case were performed."""

    def found(self, seed: int = 0) -> list[Found]:
        """Each divergence with the case up to where it shows, and what that asked of the block manager there.

        ``seed`` is that of the campaign.
        """
        level = self.case.level
        parts = level.parts(self.world, self.case)
        driver = None
        if level.stage_type is not None:
            driver = evolve(self.case, operations=self.case.operations[: self.performed])
        found = []
        for divergence in self.divergences:
            part = parts[level.part_of(self.world, divergence)]
            asked = level.below.case(
                part.settings,
                part.lockstep.performed[: divergence.step + 1],
                model=self.case.model,
                # As the tallies of this level are called.
                preset=level.label(self.case.preset),
                seed=seed,
            )
            found.append(Found(divergence, asked, finding=level.explain(divergence, self.world), driver=driver))
        return found

    @property
    def operations(self) -> int:
        """How many operations were asked of all block managers."""
        return sum(len(part.lockstep.performed) for part in self.case.level.parts(self.world, self.case))

    @property
    def alone(self) -> int:
        """How many of these the reference did not follow."""
        return sum(part.lockstep.alone for part in self.case.level.parts(self.world, self.case))


def run_case(bench: Bench, case: Case, until: float = math.inf) -> CaseRun:
    """Perform the operations of a case until one diverges, or the time is up, and check what remains."""
    world = bench.build(case)
    performed = 0
    for performed, operation in enumerate(in_time(case.operations, until), start=1):
        divergence = world.perform(operation)
        if divergence is not None:
            return CaseRun(case, world, (divergence,), performed)
    return CaseRun(case, world, tuple(world.close()), performed)


def in_time(operations: Sequence[T], until: float) -> Iterator[T]:
    """The ``operations`` that begin by ``until``, and the first in any case.

    A case that the time cuts short is a case; of a large model a whole one takes many minutes.
    """
    for number, operation in enumerate(operations):
        if number and time.monotonic() > until:
            return
        yield operation


@frozen
class Trials:
    """Cases of one level, generated, run and shrunk."""

    bench: Bench
    needs: tuple[str, ...] = ()
    """What a mutant needs in order to show: cases are generated with it."""

    def towards(self, needs: tuple[str, ...]) -> Trials:
        """The same, on cases on which a mutant with these needs can show."""
        return evolve(self, needs=needs)

    def generate(self, lane: Lane, seed: str, campaign_seed: int) -> Case:
        """The case that a seed stands for."""
        level = self.bench.level
        return level.allowed(self.bench, level.draw(lane.model, lane.preset, seed, campaign_seed, self.needs))

    def trial(self, lane: Lane, seed: str, campaign_seed: int, until: float = math.inf) -> Trial:
        """Run the case that a seed stands for, no longer than ``until``."""
        case = self.generate(lane, seed, campaign_seed)
        run = run_case(self.bench.glancing(), case, until)
        if run.divergences and any(part.lockstep.glances for part in case.level.parts(run.world, case)):
            # A difference that was not looked at may be older than what it led to.
            run = self._in_full(run)
        alone = run.alone if "lockstep" in self.bench.detectors else 0
        return Trial(run.operations, tuple(run.found(campaign_seed)), alone)

    def _in_full(self, run: CaseRun) -> CaseRun:
        """The same run with the whole states compared after each operation; as it was, if that shows nothing."""
        whole = run_case(self.bench, evolve(run.case, operations=run.case.operations[: run.performed]))
        return whole if whole.divergences else run

    def smallest(self, found: Found, until: float = math.inf) -> Found:
        """The smallest case found by ``until`` that shows the same defect, and that no finding explains.

        If it does not happen again, the case as it was is all there is to show.
        """
        wanted, seed = kind_of(found.divergence), found.case.seed
        assert isinstance(seed, int), "a campaign's"

        def again(case: Case) -> Found | None:
            if case.level.allowed(self.bench, case) != case:
                return None
            try:
                seen = run_case(self.bench, case).found(seed)
            except UsageError:
                return None
            return next((each for each in seen if kind_of(each.divergence) == wanted and each.finding is None), None)

        least = again(shrink_case(found.replayable, lambda case: again(case) is not None, until))
        return found if least is None else evolve(least, times=found.times)


def kind_of(divergence: Divergence) -> tuple[str, ...]:
    """What makes two divergences the same defect: who saw it, what it violates, and where, numbers aside."""
    detector, statement, subject = divergence.kind
    return detector, statement, re.sub(r"\d+", "#", subject)
