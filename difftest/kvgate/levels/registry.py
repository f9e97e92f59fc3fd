"""Campaigns at each level: either has its own trials, judges and amounts, and both are told in one verdict."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from attrs import evolve, frozen

from kvgate.adapters.registry import Loaded
from kvgate.gate import case_runner
from kvgate.gate.campaign import BlockTrials, Outcome, Plan, Trials
from kvgate.gate.case_runner import Bench
from kvgate.gate.level import Level
from kvgate.gate.profiles import plan
from kvgate.kernel.errors import UsageError
from kvgate.kernel.models import Model

if TYPE_CHECKING:
    from kvgate.levels.pair.case_runner import PairBench
    from kvgate.levels.scheduler.case_runner import EngineBench

ENGINE_OPERATIONS: Mapping[str, int] = {"precommit": 6_000, "quick": 20_000, "ci": 150_000, "deep": 2_000_000}
"""How many operations of the block manager a scheduler is followed for, over all lanes, by profile."""


def default_level(profile: str, system: Loaded) -> Level:
    """What is run unless somebody asks for something else: what is to be quick looks at a bit of everything."""
    from kvgate.levels.scheduler.adapter.subjects import SUBJECTS

    return Level.BOTH if profile == "precommit" and system.name in SUBJECTS else Level.BLOCKS


_LANES_APART = 3
"""No divisor of the number of presets, so that these take turns."""


@frozen
class Preparation:
    """One campaign to be run."""

    level: Level
    trials: Trials
    plan: Plan
    judges: tuple[str, ...]


def prepare(
    level: Level,
    system: Loaded,
    models: Sequence[Model],
    profile: str,
    *,
    seed: int = 0,
    seconds: float | None = None,
    monitors_only: bool = False,
) -> tuple[Preparation, ...]:
    """The campaigns of a level, which share the time.

    Raises:
        UsageError: no scheduler comes with this system.
    """
    chosen = (Level.BLOCKS, Level.SCHEDULER) if level is Level.BOTH else (level,)
    share = None if seconds is None else seconds / len(chosen)
    planned = plan(profile, models, seed=seed, seconds=share)
    if planned.minimise_seconds is not None:
        planned = evolve(planned, minimise_seconds=planned.minimise_seconds / len(chosen))
    return tuple(_prepared(each, system, planned, profile, monitors_only) for each in chosen)


def _prepared(level: Level, system: Loaded, planned: Plan, profile: str, monitors_only: bool) -> Preparation:
    if level is Level.BLOCKS:
        return _on_blocks(system, planned, monitors_only)
    on_engines = _on_pair if level is Level.PAIR else _on_scheduler
    return on_engines(system, _of_engines(planned, profile), monitors_only)


def _of_engines(planned: Plan, profile: str) -> Plan:
    """As much as the profile says; where that is less than a case a lane, models and presets are seen by turns."""
    step = _LANES_APART if profile == "precommit" and len(planned.lanes) > 4 * _LANES_APART else 1
    return evolve(planned, operations=ENGINE_OPERATIONS[profile], lanes=planned.lanes[::step])


def _on_blocks(system: Loaded, planned: Plan, monitors_only: bool) -> Preparation:
    bench = Bench(system.factory, case_runner.MONITORS if monitors_only else case_runner.GATE)
    return Preparation(Level.BLOCKS, BlockTrials(bench), planned, bench.judges)


def _on_scheduler(system: Loaded, planned: Plan, monitors_only: bool) -> Preparation:
    from kvgate.levels.scheduler.case_runner import EngineTrials
    from kvgate.levels.scheduler.detectors import GATE, MONITORS

    bench = engine_bench(system.name, MONITORS if monitors_only else GATE)
    return Preparation(Level.SCHEDULER, EngineTrials(bench), planned, bench.detectors)


def _on_pair(system: Loaded, planned: Plan, monitors_only: bool) -> Preparation:
    from kvgate.levels.pair.case_runner import PairTrials
    from kvgate.levels.pair.detectors import GATE, MONITORS

    bench = pair_bench(system.name, MONITORS if monitors_only else GATE)
    return Preparation(Level.PAIR, PairTrials(bench), planned, bench.detectors)


def pair_bench(system: str, detectors: tuple[str, ...]) -> PairBench:
    """A bench for two nodes with a system that is loaded.

    Raises:
        UsageError: no scheduler comes with it.
    """
    from kvgate.levels.pair.case_runner import PairBench

    return PairBench(engine_bench(system, detectors, Level.PAIR).subject, detectors)


def engine_bench(system: str, detectors: tuple[str, ...], level: Level = Level.SCHEDULER) -> EngineBench:
    """A bench for the scheduler on a system that is loaded.

    Raises:
        UsageError: no scheduler comes with it.
    """
    from kvgate.levels.scheduler.adapter.subjects import SUBJECTS
    from kvgate.levels.scheduler.case_runner import EngineBench

    if system not in SUBJECTS:
        raise UsageError(
            f"no scheduler comes with the system {system!r}: --level {level.value} is for {', '.join(SUBJECTS)}"
        )
    # The gate provokes failed loads, which vLLM's scheduler tells as errors.
    logging.getLogger("vllm.v1.core.sched.scheduler").setLevel(logging.CRITICAL)
    return EngineBench(system, detectors)


def together(preparations: Sequence[Preparation], outcomes: Sequence[Outcome]) -> tuple[Outcome, tuple[str, ...]]:
    """One outcome of several campaigns, and everybody who judged."""
    tallies = []
    for each, outcome in zip(preparations, outcomes, strict=False):
        mark = "" if each.level is Level.BLOCKS else f"{each.level.value}/"
        tallies += [evolve(tally, preset=f"{mark}{tally.preset}") for tally in outcome.tallies]
    ended = next((outcome.ended for outcome in reversed(outcomes) if outcome.ended != "completed"), "completed")
    whole = Outcome(
        tuple(tallies),
        tuple(found for outcome in outcomes for found in outcome.found),
        tuple(found for outcome in outcomes for found in outcome.declared),
        ended,
        sum(outcome.seconds for outcome in outcomes),
    )
    return whole, tuple(dict.fromkeys(judge for each in preparations for judge in each.judges))
