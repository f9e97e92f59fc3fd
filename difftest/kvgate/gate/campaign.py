"""A campaign: many seeded cases over models and generator presets, and what they found.

Case by case the lanes take turns, so that a campaign that is cut short has seen a bit of everything. Each case's seed
follows from the campaign's seed, its lane and its index: any case can be drawn again without the others.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from typing import Protocol, TypeVar

from attrs import define, evolve, field, frozen

from kvgate.findings import explain
from kvgate.gate.case_runner import Bench, run
from kvgate.gate.generator import PRESETS, Generator
from kvgate.gate.shrink import minimise
from kvgate.gate.verdict import Found, Tally
from kvgate.kernel.case import Case
from kvgate.kernel.difference import Divergence
from kvgate.kernel.models import Model
from kvgate.kernel.random_source import Seeded
from kvreference.operations import Operation

T = TypeVar("T")

KINDS_MAX = 5
"""How many different defects a campaign collects before it ends."""


@frozen
class Lane:
    """One model with one generator preset."""

    model: Model
    preset: str


@frozen
class Plan:
    """What a campaign runs, and when it stops."""

    lanes: tuple[Lane, ...]
    operations: int
    """How many operations at least, over all lanes."""
    seed: int = 0
    seconds: float | None = None
    """The time budget; None for none."""
    kinds_max: int = KINDS_MAX
    minimises: bool = True
    minimise_seconds: float | None = None
    """How long cases are made smaller, all together; None for as long as it takes, within the time budget."""


@frozen
class Trial:
    """What came of one case."""

    operations: int
    """How many were performed."""
    found: tuple[Found, ...] = ()
    """Each with the case up to where it diverged; with a finding if that explains it."""
    alone: int = 0
    """How many operations the reference did not follow, though it was to."""


class Trials(Protocol):
    """Cases of one level, drawn, run and judged."""

    def trial(self, lane: Lane, seed: str, campaign_seed: int, until: float = math.inf) -> Trial:
        """Run the case that a seed stands for: what of it is begun by ``until``, a time of ``time.monotonic``."""
        ...

    def smallest(self, found: Found, until: float) -> Found:
        """The smallest case found by ``until`` that shows the same defect."""
        ...


@frozen
class Outcome:
    """What a campaign ran and found."""

    tallies: tuple[Tally, ...]
    found: tuple[Found, ...]
    declared: tuple[Found, ...]
    ended: str
    seconds: float


@frozen
class Progress:
    """How far a campaign is."""

    operations: int
    cases: int
    found: int


@define
class BlockTrials:
    """Cases of the block manager alone."""

    bench: Bench
    _generators: dict[Lane, Generator] = field(factory=dict, init=False)

    def trial(self, lane: Lane, seed: str, campaign_seed: int, until: float = math.inf) -> Trial:
        """Run the case that a seed stands for, no longer than ``until``."""
        if lane not in self._generators:
            self._generators[lane] = Generator(PRESETS[lane.preset], lane.model.geometry, lane.model.features)
        case = draw_case(self._generators[lane], lane, seed, campaign_seed)
        lockstep, divergences = run(self.bench, case.settings, in_time(case.operations, until))
        found = (
            Found(
                divergence,
                evolve(case, operations=tuple(lockstep.performed[: divergence.step + 1])),
                finding=explain(divergence, lockstep),
            )
            for divergence in divergences
        )
        return Trial(len(lockstep.performed), tuple(found))

    def smallest(self, found: Found, until: float) -> Found:
        """The smallest case found by ``until`` that shows the same defect."""
        return minimised(self.bench, found.divergence, found.case, until)


class Campaign:
    """Runs a plan: on a bench, or whatever else runs cases."""

    def __init__(self, trials: Bench | Trials, plan: Plan) -> None:
        self.trials: Trials = BlockTrials(trials) if isinstance(trials, Bench) else trials
        self.plan = plan
        self._tallies = {lane: Tally(lane.model.name, lane.preset, 0, 0) for lane in plan.lanes}
        self._found: dict[tuple[str, ...], Found] = {}
        self._declared: dict[str, Found] = {}
        self._until = math.inf
        self._minimise_seconds = math.inf if plan.minimise_seconds is None else plan.minimise_seconds

    def run(self, report: Callable[[Progress], None] = lambda _progress: None) -> Outcome:
        """Run until the plan is fulfilled, the time is up, enough is found, or somebody interrupts."""
        started = time.monotonic()
        self._until = started + (math.inf if self.plan.seconds is None else self.plan.seconds)
        ended = "completed"
        operations = cases = 0
        try:
            for lane, seed in self._turns():
                performed = self._judge(lane, self.trials.trial(lane, seed, self.plan.seed, self._until))
                operations += performed
                cases += 1
                report(Progress(operations, cases, len(self._found)))
                if len(self._found) >= self.plan.kinds_max:
                    ended = "enough found"
                    break
                if operations >= self.plan.operations:
                    break
                if time.monotonic() > self._until:
                    ended = "time budget"
                    break
        except KeyboardInterrupt:
            ended = "interrupted"
        return Outcome(
            tuple(self._tallies.values()),
            tuple(self._found.values()),
            tuple(self._declared.values()),
            ended,
            time.monotonic() - started,
        )

    def _turns(self) -> Iterator[tuple[Lane, str]]:
        for index in count() if self.plan.lanes else ():
            for lane in self.plan.lanes:
                yield lane, f"{self.plan.seed}/{index}"

    def _judge(self, lane: Lane, trial: Trial) -> int:
        """Count what came of one case; returns how many operations it performed."""
        tally = self._tallies[lane]
        cut = any(found.finding is not None and found.divergence.operation is not None for found in trial.found)
        operations = tally.operations + trial.operations
        self._tallies[lane] = evolve(
            tally, cases=tally.cases + 1, operations=operations, cut=tally.cut + cut, alone=tally.alone + trial.alone
        )
        for found in trial.found:
            if found.finding is not None:
                seen = self._declared.get(found.finding) or evolve(found, times=0)
                self._declared[found.finding] = evolve(seen, times=seen.times + 1)
                continue
            kind = kind_of(found.divergence)
            if kind in self._found:
                self._found[kind] = evolve(self._found[kind], times=self._found[kind].times + 1)
                continue
            # Kept before it is minimised: whoever interrupts that has the case as it was.
            self._found[kind] = found
            if self.plan.minimises:
                self._found[kind] = self._smallest(found)
        return trial.operations

    def _smallest(self, found: Found) -> Found:
        """The smallest case in half of the time that is left for it: other defects take time as well."""
        started = time.monotonic()
        until = min(self._until, started + self._minimise_seconds / 2)
        least = self.trials.smallest(found, until)
        ended = time.monotonic()
        self._minimise_seconds -= ended - started
        return evolve(least, out_of_time=ended >= until)


def in_time(operations: Sequence[T], until: float) -> Iterator[T]:
    """What of ``operations`` is begun by ``until``, and the first in any case.

    A case that the time cuts short is a case; of a large model a whole one takes many minutes.
    """
    for number, operation in enumerate(operations):
        if number and time.monotonic() > until:
            return
        yield operation


def draw_case(generator: Generator, lane: Lane, seed: str, campaign_seed: int) -> Case:
    """The case that a seed stands for."""
    draw = Seeded(f"{seed}/{lane.model.name}/{lane.preset}")
    settings = generator.settings(draw)
    operations = tuple(generator.operation(draw) for _ in range(generator.bias.operations))
    return Case(settings, operations, lane.model.name, lane.preset, campaign_seed)


def minimised(bench: Bench, divergence: Divergence, case: Case, until: float = math.inf) -> Found:
    """The smallest case found by ``until`` that shows the same defect, told by what it violates and who saw it."""
    wanted = kind_of(divergence)

    def seen(operations: Iterable[Operation]) -> Divergence | None:
        lockstep, divergences = run(bench, case.settings, operations)
        return next((d for d in divergences if kind_of(d) == wanted and explain(d, lockstep) is None), None)

    operations = minimise(case.operations, lambda candidate: seen(candidate) is not None, until)
    lockstep, divergences = run(bench, case.settings, operations)
    again = next((d for d in divergences if kind_of(d) == wanted), None)
    if again is None:
        # It does not happen again: that is worth knowing, and the case as it was is all there is to show.
        return Found(divergence, case)
    return Found(again, evolve(case, operations=tuple(lockstep.performed[: again.step + 1])))


def kind_of(divergence: Divergence) -> tuple[str, ...]:
    """What makes two divergences the same defect: who saw it, what it violates, and where, numbers aside."""
    detector, statement, subject = divergence.kind
    return detector, statement, re.sub(r"\d+", "#", subject)
