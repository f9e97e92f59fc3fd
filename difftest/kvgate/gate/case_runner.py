"""Runs of single cases at any level: fresh ones generated from a seed, and stored ones again."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeAlias, TypeVar, cast

from attrs import evolve, frozen

from kvgate.adapters.working_tree import Changes
from kvgate.gate.diagnosis import Diagnosis, of_lockstep, of_statement
from kvgate.gate.fault import faults_of
from kvgate.gate.level import Bench, Case, Operation, Part
from kvgate.gate.shrink import shrink, shrink_case
from kvgate.gate.suspects import Recorder, suspects_among
from kvgate.gate.verdict import Found
from kvgate.kernel.difference import Divergence
from kvgate.kernel.errors import UsageError
from kvgate.kernel.models import Model

T = TypeVar("T")
Arc: TypeAlias = tuple[str, int, int]
"""A file, and two of its lines of which one ran after the other."""
AFTERMATH_SECONDS = 2.0
"""How long is looked for the shortest way to what follows from a divergence."""


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
    """What is new, each with the case up to where it diverged."""
    known: tuple[Found, ...] = ()
    """What findings did, each once for a finding."""
    alone: int = 0
    """How many operations the reference did not follow, though it was to."""
    cut: bool = False
    """Whether a known finding ended it before its time."""
    digest: str = ""
    """Of all operations and answers, as in ``Lockstep.digest``."""
    ran: frozenset[Arc] = frozenset()
    """What ran of a patch, if that is measured."""


@frozen
class CaseRun:
    """A case that was run."""

    case: Case
    world: Any
    divergences: tuple[Divergence, ...]
    performed: int
    """How many operations of the case were performed."""
    ended_early: bool = False
    """Whether operations were left after one that diverged."""

    def found(self, seed: int = 0) -> list[Found]:
        """Each divergence with the case up to where it shows, and what that asked of the block manager there.

        ``seed`` is that of the campaign.
        """
        level = self.case.level
        with faults_of("looking for the finding that explains a divergence", lambda: self.case):
            parts = level.parts(self.world, self.case)
            return [
                self._found(each, parts[level.part_of(self.world, each)], seed, level.explain(each, self.world))
                for each in self.divergences
            ]

    def known(self, seed: int = 0) -> list[Found]:
        """The same for each known finding that acted, where it acted first: it ended nothing."""
        found = []
        for part in self.case.level.parts(self.world, self.case):
            lockstep = part.lockstep
            for acted in lockstep.known.first.values():
                at = min(acted.step, len(lockstep.performed) - 1)
                each = self._found(acted.divergence(at, lockstep.performed[at]), part, seed, acted.finding)
                found.append(evolve(each, times=lockstep.known.times[acted.finding]))
        return found

    def _found(self, divergence: Divergence, part: Part, seed: int, finding: str | None) -> Found:
        level = self.case.level
        driver = None
        if level.stage_type is not None:
            driver = evolve(self.case, operations=self.case.operations[: self.performed])
        asked = level.below.case(
            part.settings,
            part.lockstep.performed[: divergence.step + 1],
            model=self.case.model,
            # As the tallies of this level are called.
            preset=level.label(self.case.preset),
            seed=seed,
        )
        return Found(divergence, asked, finding=finding, driver=driver)

    @property
    def operations(self) -> int:
        """How many operations were asked of all block managers."""
        return sum(len(part.lockstep.performed) for part in self.case.level.parts(self.world, self.case))

    @property
    def alone(self) -> int:
        """How many of these the reference did not follow."""
        return sum(part.lockstep.alone for part in self.case.level.parts(self.world, self.case))


def run_case(bench: Bench, case: Case, until: float = math.inf) -> CaseRun:
    """Perform the operations of a case until one diverges, or the time is up, and check what remains.

    Raises:
        GateFaultError: the gate failed, with the case up to there.
    """
    performed = 0
    with faults_of(
        f"running a case of {case.model}/{case.name}, seed {case.seed}",
        lambda: evolve(case, operations=case.operations[:performed]),
    ):
        world = bench.build(case)
        for performed, operation in enumerate(in_time(case.operations, until), start=1):
            divergence = world.perform(operation)
            if divergence is not None:
                return CaseRun(case, world, (divergence,), performed, performed < len(case.operations))
        return CaseRun(case, world, tuple(world.close()), performed)


def in_time(operations: Sequence[T], until: float) -> Iterator[T]:
    """The ``operations`` that begin by ``until``, and the first in any case.

    A case that the time cuts short is a case; of a large model a whole one takes many minutes.
    """
    for number, operation in enumerate(operations):
        if number and time.monotonic() > until:
            return
        yield operation


class Measure(Protocol):
    """Measures which lines of a patch run."""

    def measured(self) -> AbstractContextManager[None]:
        """What runs meanwhile is measured."""
        ...

    def take(self) -> frozenset[Arc]:
        """What ran since the last call: a file, and two of its lines of which one ran after the other."""
        ...


@frozen
class Trials:
    """Cases of one level, generated, run and shrunk."""

    bench: Bench
    needs: tuple[str, ...] = ()
    """What a mutant needs in order to show: cases are generated with it."""
    changes: Changes | None = None
    """What was changed in the system's own files, if that is known."""
    measure: Measure | None = None
    """What measures a patch."""

    def towards(self, needs: tuple[str, ...]) -> Trials:
        """The same, on cases on which a mutant with these needs can show."""
        return evolve(self, needs=needs)

    def generate(self, lane: Lane, seed: str, campaign_seed: int) -> Case:
        """The case that a seed stands for."""
        level = self.bench.level
        with faults_of(f"generating a case of {lane.model.name}/{level.label(lane.preset)}, seed {seed}"):
            return level.allowed(self.bench, level.draw(lane.model, lane.preset, seed, campaign_seed, self.needs))

    def trial(self, lane: Lane, seed: str, campaign_seed: int, until: float = math.inf) -> Trial:
        """Run the case that a seed stands for, no longer than ``until``."""
        return self.run(self.generate(lane, seed, campaign_seed), campaign_seed, until)

    def run(self, case: Case, campaign_seed: int, until: float = math.inf) -> Trial:
        """Run a case, no longer than ``until``."""
        if self.measure is None:
            return self._run(case, campaign_seed, until)
        with self.measure.measured():
            trial = self._run(case, campaign_seed, until)
        return evolve(trial, ran=self.measure.take())

    def _run(self, case: Case, campaign_seed: int, until: float) -> Trial:
        run = run_case(self.bench.glancing(), case, until)
        found = run.found(campaign_seed)
        glances = any(part.lockstep.glances for part in case.level.parts(run.world, case))
        if glances and any(each.finding is None for each in found):
            # A difference that was not looked at may be older than what it led to.
            whole = self._in_full(run)
            earlier = whole.found(campaign_seed)
            # What a finding explains there does not explain what is new.
            if any(each.finding is None for each in earlier):
                run, found = whole, earlier
        alone = run.alone if "lockstep" in self.bench.detectors else 0
        rest = case.operations[run.performed :]
        new = tuple(evolve(each, rest=rest) for each in found if each.finding is None)
        known = [each for each in found if each.finding is not None]
        cut = run.ended_early and bool(known)
        digest = " ".join(part.lockstep.digest for part in run.case.level.parts(run.world, run.case))
        return Trial(run.operations, new, (*known, *run.known(campaign_seed)), alone, cut, digest)

    def _in_full(self, run: CaseRun) -> CaseRun:
        """The same run with the whole states compared after each operation."""
        return run_case(self.bench, evolve(run.case, operations=run.case.operations[: run.performed]))

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

        with faults_of("making a case smaller", lambda: found.replayable):
            least = again(shrink_case(found.replayable, lambda case: again(case) is not None, until))
        return found if least is None else evolve(least, times=found.times, rest=found.rest, diagnosis=found.diagnosis)

    def diagnosed(self, found: Found, until: float = math.inf) -> Found:
        """The same with what it means, and which functions may have caused it: its case runs again, past the
        divergence."""
        case = found.replayable
        with faults_of("looking for what a divergence means", lambda: case):
            among = suspects_among(self.changes)
            recorder, world = Recorder(among), self.bench.build(case)
            divergence = None
            with recorder.recording():
                for recorder.operation, operation in enumerate(case.operations):
                    divergence = world.perform(operation)
                    if divergence is not None:
                        break
                else:
                    recorder.operation += 1
                    world.close()
            part = case.level.parts(world, case)[case.level.part_of(world, divergence or found.divergence)]
            diagnosis = Diagnosis(
                of_lockstep(found.divergence, part.lockstep),
                tuple(dict.fromkeys(among[code] for code in recorder.ranked())),
            )
            worst = min(self._aftermath(found, until), key=lambda each: of_statement(each[0]).rank, default=None)
            if worst is not None and of_statement(worst[0]).rank <= diagnosis.anomaly.rank:
                follows, then = worst
                diagnosis = evolve(diagnosis, anomaly=of_statement(follows), follows=follows, then=then)
        return evolve(found, diagnosis=diagnosis)

    def _aftermath(self, found: Found, until: float) -> Iterator[tuple[Divergence, tuple[Operation, ...]]]:
        """What monitors report if the case continues without the reference, each with the operations that lead
        there."""
        case, level = found.replayable, found.replayable.level
        for detectors in level.aftermath or (level.monitors,):
            bench: Any = evolve(cast("Any", self.bench), detectors=detectors)

            def reported(rest: Sequence[Operation], bench: Bench = bench) -> Divergence | None:
                run = run_case(bench, evolve(case, operations=(*case.operations, *rest)), until)
                return next((each.divergence for each in run.found() if each.finding is None), None)

            seen = reported(found.rest)
            if seen is None:
                continue
            kind = seen.detector, seen.difference.statement

            def again(rest: Sequence[Operation], kind: tuple[str, str] = kind, reported: Any = reported) -> bool:
                each = reported(rest)
                return each is not None and (each.detector, each.difference.statement) == kind

            rest = shrink(found.rest, again, lambda _operation: (), min(until, time.monotonic() + AFTERMATH_SECONDS))
            yield reported(rest) or seen, tuple(rest)


def kind_of(divergence: Divergence) -> tuple[str, ...]:
    """What makes two divergences the same defect: who saw it, what it violates, and where, numbers aside."""
    detector, statement, subject = divergence.kind
    return detector, statement, re.sub(r"\d+", "#", subject)
