"""Runs of an engine as a campaign asks for them: drawn from a seed, judged, and made small where something is found."""

from __future__ import annotations

import math
from collections.abc import Mapping

from attrs import evolve, frozen

from kvgate.findings import explain_engine
from kvgate.gate.campaign import Lane, Trial, in_time, kind_of
from kvgate.gate.level import Level
from kvgate.gate.verdict import Found
from kvgate.kernel.case import Case
from kvgate.kernel.difference import Divergence
from kvgate.kernel.errors import UsageError
from kvgate.levels.scheduler.adapter.subjects import SUBJECTS
from kvgate.levels.scheduler.case import EngineCase
from kvgate.levels.scheduler.detectors import GATE
from kvgate.levels.scheduler.engine import Engine
from kvgate.levels.scheduler.generator import draw_engine_case, fits
from kvgate.levels.scheduler.operations import Serve, Step
from kvgate.levels.scheduler.shrink import shortest


@frozen
class EngineBench:
    """An engine's system under test, and what judges it."""

    subject: str = "stock"
    """What stands under the scheduler, by its name in ``kvgate.levels.scheduler.adapter.subjects``."""
    detectors: tuple[str, ...] = GATE

    def without_oversized(self, case: EngineCase) -> EngineCase:
        """The case without requests that could never run: nobody gets on behind them, which is a finding of its own.

        Where blocks are given up when a step is over, and not when the next one is scheduled, more are held at once.
        """
        late = case.stage.asynchronous and SUBJECTS[self.subject].scheduling.gives_up_late
        settings = case.settings
        held = evolve(settings, chunk_tokens=settings.chunk_tokens * case.stage.in_flight_max) if late else settings
        operations = (Step() if isinstance(each, Serve) and not fits(held, each) else each for each in case.operations)
        return evolve(case, operations=tuple(operations))

    def set_up(self, case: EngineCase) -> Engine:
        """A fresh engine with fresh judges.

        Raises:
            UsageError: it does not support what the case asks for.
        """
        try:
            return Engine(case.settings, case.stage, self.subject, with_reference="lockstep" in self.detectors)
        except UsageError:
            raise
        except ValueError as error:
            raise UsageError(f"the scheduler does not support the settings it was given: {error}") from error


STAGE_OF: Mapping[str, str] = {"asynchronous": "asynchronous", "priority": "by_priority", "transfers": "connector"}
"""What a mutant needs, and what a stage has then."""


@frozen
class EngineRun:
    """What came of one case."""

    engine: Engine
    divergences: tuple[Divergence, ...]
    performed: int
    """How many operations of the case were performed."""


def run_case(bench: EngineBench, case: EngineCase, until: float = math.inf) -> EngineRun:
    """Perform the operations of a case until one diverges, or the time is up, and judge what remains."""
    engine = bench.set_up(case)
    performed = 0
    for performed, operation in enumerate(in_time(case.operations, until), start=1):
        divergence = engine.perform(operation)
        if divergence is not None:
            return EngineRun(engine, (divergence,), performed)
    return EngineRun(engine, tuple(engine.close()), performed)


@frozen
class EngineTrials:
    """Cases of a scheduler on its block manager."""

    bench: EngineBench = EngineBench()
    stage: tuple[str, ...] = ()
    """What every stage has, of what stages are drawn with."""

    def towards(self, needs: tuple[str, ...]) -> EngineTrials:
        """The same, on stages on which a mutant with these needs can show."""
        return evolve(self, stage=tuple(STAGE_OF[need] for need in needs if need in STAGE_OF))

    def trial(self, lane: Lane, seed: str, campaign_seed: int, until: float = math.inf) -> Trial:
        """Run the case that a seed stands for, no longer than ``until``."""
        case = draw_engine_case(lane.model, lane.preset, seed)
        if self.stage:
            stage = evolve(case.stage, **dict.fromkeys(self.stage, True))
            case = draw_engine_case(lane.model, lane.preset, seed, stage)
        case = self.bench.without_oversized(case)
        run = run_case(self.bench, case, until)
        alone = run.engine.lockstep.alone if "lockstep" in self.bench.detectors else 0
        return Trial(len(run.engine.lockstep.performed), tuple(found_in(run, case, campaign_seed)), alone)

    def smallest(self, found: Found, until: float) -> Found:
        """The smallest case found by ``until`` that shows the same defect."""
        assert isinstance(found.engine, EngineCase), "what an engine found has its case"
        wanted = kind_of(found.divergence)

        def again(case: EngineCase) -> Found | None:
            if self.bench.without_oversized(case) != case:
                # A scheduler that takes in what can never run shows another defect than the one that was found.
                return None
            try:
                seen = found_in(run_case(self.bench, case), case, found.case.seed)
            except UsageError:
                return None
            return next((each for each in seen if kind_of(each.divergence) == wanted and each.finding is None), None)

        least = again(shortest(found.engine, lambda case: again(case) is not None, until))
        return found if least is None else evolve(least, times=found.times)


def found_in(run: EngineRun, case: EngineCase, campaign_seed: int) -> list[Found]:
    """What a run found, each with the case up to where it diverged, and what was asked of the block manager there."""
    shown = evolve(case, operations=case.operations[: run.performed])
    lockstep = run.engine.lockstep
    return [
        Found(
            divergence,
            Case(
                case.settings,
                tuple(lockstep.performed[: divergence.step + 1]),
                case.model,
                # As the tallies of this level are called.
                f"{Level.SCHEDULER.value}/{case.preset}",
                campaign_seed,
            ),
            finding=explain_engine(divergence, run.engine),
            engine=shown,
        )
        for divergence in run.divergences
    ]
