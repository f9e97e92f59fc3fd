"""The levels by name, and what is run at which of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from attrs import evolve, frozen

from kvgate.adapters.registry import Loaded
from kvgate.findings import rates
from kvgate.gate import trace_codec
from kvgate.gate.campaign import Outcome, Plan
from kvgate.gate.case_runner import Trials
from kvgate.gate.level import Level, LevelChoice
from kvgate.gate.profiles import models_named, plan
from kvgate.gate.trace_codec import Trace
from kvgate.kernel.models import Model
from kvgate.kernel.text import counted
from kvgate.levels.manager import MANAGER
from kvgate.levels.pair.level import PAIR
from kvgate.levels.scheduler.level import SCHEDULER
from kvgate.levels.tiers.level import TIERS
from kvgate.levels.worker.level import WORKER

LEVELS: Mapping[str, Level] = {level.name: level for level in (MANAGER, SCHEDULER, PAIR, WORKER, TIERS)}

UNBOUNDED_NAMED = 4
_ALWAYS = "Mechanisms that no model of this run has (--model and its suffixes)."


def not_tested(choice: LevelChoice, system: str) -> tuple[str, ...]:
    """What a run of ``system`` leaves out: where several levels are run, what the last of them leaves out."""
    return (*levels_of(choice)[-1].leaves_out(system), _ALWAYS)


def unbounded(preparations: Sequence[Preparation]) -> tuple[str, ...]:
    """Where known findings may act in any number of cases, since it was never counted there."""
    lanes = sorted({(each.level.name, lane.model.name) for each in preparations for lane in each.plan.lanes})
    most = {each.level.name: each.plan.most for each in preparations}
    models = [f"{model} ({level})" for level, model in lanes if most[level](model, "", 1) is None]
    named = ", ".join(models[:UNBOUNDED_NAMED]) + (" and others" if len(models) > UNBOUNDED_NAMED else "")
    sentence = f"How often known findings act, on {len(models)} of {counted(len(lanes), 'model')}: {named}."
    return (sentence,) if models else ()


def levels_of(choice: LevelChoice) -> tuple[Level, ...]:
    """The levels that are run, one after the other."""
    return (MANAGER, SCHEDULER) if choice is LevelChoice.BOTH else (LEVELS[choice.value],)


def default_level(profile: str, system: Loaded) -> LevelChoice:
    """The level that is run if none is asked for: a quick run covers a bit of everything."""
    from kvgate.levels.scheduler.adapter.subjects import SUBJECTS

    return LevelChoice.BOTH if profile == "precommit" and system.name in SUBJECTS else LevelChoice.BLOCKS


def default_models(system: Loaded, profile: str) -> list[Model]:
    """The models that are run if none is asked for: a long run has more of them."""
    return models_named(system.models + (system.further if profile in ("ci", "deep") else ()))


def read(path: Path) -> Trace:
    """Read a trace of any level.

    Raises:
        UsageError: no such file, too large, or not a trace of a version that is understood; says which line and why.
    """
    return trace_codec.read(path, trace_codec.level_of(path, LEVELS.values()) or MANAGER)


@frozen
class Preparation:
    """One campaign to be run."""

    trials: Trials
    plan: Plan

    @property
    def level(self) -> Level:
        """The level at which it is run."""
        return self.trials.bench.level


def prepare(
    choice: LevelChoice,
    system: Loaded,
    models: Sequence[Model],
    profile: str,
    *,
    seed: int = 0,
    seconds: float | None = None,
    monitors_only: bool = False,
) -> tuple[Preparation, ...]:
    """The campaigns at the chosen levels, which share the time.

    Raises:
        UsageError: no scheduler comes with this system.
    """
    levels = levels_of(choice)
    whole = plan(profile, models, seed=seed, seconds=None if seconds is None else seconds / len(levels))
    if whole.shrink_seconds is not None:
        whole = evolve(whole, shrink_seconds=whole.shrink_seconds / len(levels))
    prepared = []
    for level in levels:
        # If no model can be run, the level says why.
        lanes = tuple(lane for lane in whole.lanes if level.takes(lane.model)) or whole.lanes
        # Where there is less than a case for each lane, models and presets take turns.
        apart = level.lanes_apart(profile, len(lanes))
        lanes = lanes[::apart]
        bench = level.bench(system, level.monitors if monitors_only else level.gate)
        of_level = evolve(
            whole, lanes=lanes, operations=level.operations_of(profile), level=level.name, most=most_of(system, level)
        )
        if not monitors_only:
            # Without a reference no delta acts.
            of_level = evolve(of_level, certain=certain_of(system, level))
            if apart == 1:
                # They were counted with all presets of each model.
                of_level = evolve(of_level, least=least_of(system, level))
        prepared.append(Preparation(Trials(bench), of_level))
    return tuple(prepared)


def most_of(system: Loaded, level: Level) -> Callable[[str, str, int], int | None]:
    """In how many cases a finding of ``system`` may act, where it was counted."""
    stored = _rates_of(system)
    if stored is None:
        return lambda _model, _finding, _cases: None
    return lambda model, finding, cases: stored.most(model, level.name, finding, cases)


def certain_of(system: Loaded, level: Level) -> Callable[[Mapping[str, int]], Mapping[str, float]]:
    """The findings of ``system`` that must act in a run, where it was counted."""
    stored = _rates_of(system)
    return lambda cases: {} if stored is None else stored.certain(level.name, cases)


def least_of(system: Loaded, level: Level) -> Callable[[str, int], Mapping[str, rates.AtLeast]]:
    """In how many cases of a model the findings of ``system`` must act, where it was counted."""
    stored = _rates_of(system)
    return lambda model, cases: {} if stored is None else stored.least(model, level.name, cases)


def _rates_of(system: Loaded) -> rates.Rates | None:
    named = (system.name, system.version)
    return next((each for each in rates.counted() if (each.system, each.version) == named), None)


def checkers_of(preparations: Sequence[Preparation]) -> tuple[str, ...]:
    """All that checks, each once."""
    return tuple(dict.fromkeys(check for each in preparations for check in each.trials.bench.checkers))


def together(preparations: Sequence[Preparation], outcomes: Sequence[Outcome]) -> Outcome:
    """One outcome of several campaigns."""
    tallies = [
        evolve(tally, preset=each.level.label(tally.preset))
        for each, outcome in zip(preparations, outcomes, strict=False)
        for tally in outcome.tallies
    ]
    return Outcome(
        tuple(tallies),
        tuple(found for outcome in outcomes for found in outcome.found),
        tuple(found for outcome in outcomes for found in outcome.declared),
        next((outcome.ended for outcome in reversed(outcomes) if outcome.ended != "completed"), "completed"),
        sum(outcome.seconds for outcome in outcomes),
        tuple(each for outcome in outcomes for each in outcome.too_seldom),
        frozenset(each for outcome in outcomes for each in outcome.ran),
    )
