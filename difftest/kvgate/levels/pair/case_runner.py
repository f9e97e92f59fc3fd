"""Runs of two nodes as a campaign asks for them: drawn from a seed, judged, and made small where something is found."""

from __future__ import annotations

import math

from attrs import evolve, frozen

from kvgate.findings import explain_pair
from kvgate.gate.campaign import Lane, Trial, in_time, kind_of
from kvgate.gate.level import Level
from kvgate.gate.verdict import Found
from kvgate.kernel.case import Case
from kvgate.kernel.difference import Divergence
from kvgate.kernel.errors import UsageError
from kvgate.levels.pair.case import PairCase
from kvgate.levels.pair.detectors import GATE
from kvgate.levels.pair.generator import draw_pair_case, fits
from kvgate.levels.pair.operations import Ask
from kvgate.levels.pair.pair import Pair
from kvgate.levels.pair.shrink import shortest


@frozen
class PairBench:
    """Two nodes' system under test, and what judges them."""

    subject: str = "stock"
    """What stands under both schedulers, by its name in ``kvgate.levels.scheduler.adapter.subjects``."""
    detectors: tuple[str, ...] = GATE

    def set_up(self, case: PairCase) -> Pair:
        """Two fresh nodes with fresh judges.

        Raises:
            UsageError: they do not support what the case asks for.
        """
        try:
            return Pair(case.settings, case.stage, self.subject, with_reference="lockstep" in self.detectors)
        except UsageError:
            raise
        except ValueError as error:
            raise UsageError(f"the schedulers do not support the settings they were given: {error}") from error


@frozen
class PairRun:
    """What came of one case."""

    pair: Pair
    divergences: tuple[Divergence, ...]
    performed: int
    """How many operations of the case were performed."""

    @property
    def operations(self) -> int:
        """How many operations both block managers were asked for."""
        return sum(len(engine.lockstep.performed) for engine in (self.pair.prefill, self.pair.decode))

    @property
    def alone(self) -> int:
        """How many of these the reference did not follow."""
        return sum(engine.lockstep.alone for engine in (self.pair.prefill, self.pair.decode))


def run_case(bench: PairBench, case: PairCase, until: float = math.inf) -> PairRun:
    """Perform the operations of a case until one diverges, or the time is up, and judge what remains."""
    pair = bench.set_up(case)
    performed = 0
    for performed, operation in enumerate(in_time(case.operations, until), start=1):
        divergence = pair.perform(operation)
        if divergence is not None:
            return PairRun(pair, (divergence,), performed)
    return PairRun(pair, tuple(pair.close()), performed)


@frozen
class PairTrials:
    """Cases of two nodes."""

    bench: PairBench = PairBench()

    def trial(self, lane: Lane, seed: str, campaign_seed: int, until: float = math.inf) -> Trial:
        """Run the case that a seed stands for, no longer than ``until``."""
        case = draw_pair_case(lane.model, lane.preset, seed)
        run = run_case(self.bench, case, until)
        alone = run.alone if "lockstep" in self.bench.detectors else 0
        return Trial(run.operations, tuple(found_in(run, case, campaign_seed)), alone)

    def smallest(self, found: Found, until: float) -> Found:
        """The smallest case found by ``until`` that shows the same defect."""
        case = found.engine
        assert isinstance(case, PairCase), "what two nodes found has their case"
        wanted = kind_of(found.divergence)

        def again(case: PairCase) -> Found | None:
            if not all(fits(case.settings, case.stage, each) for each in case.operations if isinstance(each, Ask)):
                # A scheduler that takes in what can never run shows another defect than the one that was found.
                return None
            try:
                seen = found_in(run_case(self.bench, case), case, found.case.seed)
            except UsageError:
                return None
            return next((each for each in seen if kind_of(each.divergence) == wanted and each.finding is None), None)

        least = again(shortest(case, lambda case: again(case) is not None, until))
        return found if least is None else evolve(least, times=found.times)


def found_in(run: PairRun, case: PairCase, campaign_seed: int) -> list[Found]:
    """What a run found, each with the case up to where it diverged, and what was asked of the node's block manager."""
    shown = evolve(case, operations=case.operations[: run.performed])
    found = []
    for divergence in run.divergences:
        seen = next(each for each in run.pair.seen if each.told == divergence)
        lockstep = seen.engine.lockstep
        found.append(
            Found(
                divergence,
                Case(
                    seen.engine.settings,
                    tuple(lockstep.performed[: divergence.step + 1]),
                    case.model,
                    # As the tallies of this level are called.
                    f"{Level.PAIR.value}/{case.preset}",
                    campaign_seed,
                ),
                finding=explain_pair(divergence, run.pair),
                engine=shown,
            )
        )
    return found
