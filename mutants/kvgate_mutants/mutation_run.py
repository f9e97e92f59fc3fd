"""A mutation run: inject a mutant, run the gate, and record which checker kills it and how soon."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence

from attrs import evolve, frozen

from kvgate.adapters.registry import Loaded
from kvgate.gate.campaign import Campaign, Plan, TrialSource
from kvgate.gate.case_runner import Lane, Trial, Trials, kind_of
from kvgate.gate.generator import PRESETS
from kvgate.gate.verdict import Found
from kvgate.kernel.models import Model
from kvgate.levels.manager import DETECTORS, Bench
from kvgate_mutants.mutants.mutant import Mutant

MINIMISE_SECONDS = 10.0
"""The longest that the case which kills a mutant is shrunk."""


@frozen
class Shown:
    """What a mutant's own check reported."""

    check: str
    saw: str


@frozen
class Kill:
    """How a mutant was killed."""

    found: Found | Shown
    operations: int
    """The operations until then, over all cases."""
    seconds: float
    smallest: Found | None = None
    """The smallest case that shows the same, if it was asked for."""

    @property
    def operations_left(self) -> int | None:
        """The operations of the smallest case: those of the engine, or of the block manager."""
        if self.smallest is None:
            return None
        return len(self.smallest.replayable.operations)

    @property
    def by(self) -> str:
        """The detector, or the check."""
        return self.found.check if isinstance(self.found, Shown) else self.found.divergence.detector

    @property
    def statement(self) -> str | None:
        """The violated guarantee; None if the mutant's own check killed it."""
        return None if isinstance(self.found, Shown) else self.found.divergence.difference.statement


@frozen
class MutantResult:
    """The outcome of one mutant."""

    mutant: Mutant
    kills: dict[str, Kill | None]
    """For the whole gate (``gate``), and for each detector run on its own: the kill, or None if it survived."""

    @property
    def survived(self) -> bool:
        """Whether the whole gate missed a mutant that is not equivalent."""
        return self.mutant.equivalent is None and self.kills["gate"] is None


@frozen
class Mutated:
    """Cases on a mutant. What the unmutated system shows on the same case does not count."""

    trials: Trials
    mutant: Mutant

    def trial(self, lane: Lane, seed: str, campaign_seed: int, until: float = math.inf) -> Trial:
        """Run the case that a seed stands for; if it diverges, also without the mutant."""
        with self.mutant.applied():
            trial = self.trials.trial(lane, seed, campaign_seed, until)
        if not trial.found:
            return trial
        unmutated = {kind_of(each.divergence) for each in self.trials.trial(lane, seed, campaign_seed).found}
        return evolve(trial, found=tuple(each for each in trial.found if kind_of(each.divergence) not in unmutated))

    def smallest(self, found: Found, until: float) -> Found:
        """The smallest case found by ``until`` that shows the same defect."""
        with self.mutant.applied():
            return self.trials.smallest(found, until)

    def diagnosed(self, found: Found, until: float) -> Found:
        """The same with what it means, and which functions may have done it."""
        with self.mutant.applied():
            return self.trials.diagnosed(found, until)


def run_until_killed(
    trials: TrialSource,
    models: Sequence[Model],
    seed: int,
    operations: int,
    seconds: float,
    shrinks: bool = False,
    certain: Callable[[Mapping[str, int]], Mapping[str, float]] = lambda _cases: {},
) -> Kill | None:
    """Run until a divergence is found that no known finding explains; None if there is none within the limits.

    A known finding that is ``certain`` to act, and did not, is one as well. Shrinking may take ``MINIMISE_SECONDS``
    more.
    """
    lanes = tuple(Lane(model, preset) for model in models for preset in sorted(PRESETS, reverse=True))
    plan = Plan(lanes, operations, seed=seed, seconds=seconds, kinds_max=1, shrinks=False, certain=certain)
    outcome = Campaign(trials, plan).run()
    if outcome.ended == "interrupted":
        raise KeyboardInterrupt
    performed = sum(tally.operations for tally in outcome.tallies)
    for seldom in outcome.too_seldom:
        return Kill(
            Shown("known findings", f"{seldom.finding} acted in {seldom.acted} of {seldom.cases} cases"),
            performed,
            outcome.seconds,
        )
    if not outcome.found:
        return None
    found = outcome.found[0]
    smallest = trials.smallest(found, time.monotonic() + MINIMISE_SECONDS) if shrinks else None
    return Kill(found, performed, outcome.seconds, smallest)


def each_alone(system: Loaded) -> dict[str, Trials]:
    """Cases of a block manager with one detector at a time."""
    return {detector: Trials(Bench(system.factory, (detector,))) for detector in DETECTORS}


def run_mutant(
    trials: Trials,
    mutant: Mutant,
    models: Sequence[Model],
    *,
    seed: int,
    operations: int,
    seconds: float,
    alone: Mapping[str, Trials] | None = None,
    shrinks: bool = False,
) -> MutantResult:
    """Inject ``mutant`` and run the gate, then each bench with fewer detectors, ``alone``, for a tenth as long.

    Raises:
        ValueError: the mutant cannot show on any of ``models``.
    """
    alone = alone or {}
    if mutant.shown_by is not None:
        return MutantResult(mutant, dict.fromkeys(alone) | {"gate": _show(mutant)})
    fitting = models_that_show(mutant, models)
    mutated = Mutated(trials.towards(mutant.needs), mutant)
    kills = {"gate": run_until_killed(mutated, fitting, seed, operations, seconds, shrinks)}
    for name, other in alone.items():
        kills[name] = run_until_killed(Mutated(other, mutant), fitting, seed, operations // 10, seconds)
    return MutantResult(mutant, kills)


def models_that_show(mutant: Mutant, models: Sequence[Model]) -> list[Model]:
    """Those of ``models`` on which a mutant can show.

    Raises:
        ValueError: no model shows it.
    """
    fitting = [
        model
        for model in models
        if mutant.models is None or not {model.name, model.name.split("+")[0]}.isdisjoint(mutant.models)
    ]
    if not fitting:
        raise ValueError(f"{mutant.name} shows on {', '.join(mutant.models or ())}, and none of the models is one")
    return fitting


def _show(mutant: Mutant) -> Kill | None:
    """What the check of ``mutant`` reports when it is injected."""
    check = mutant.shown_by
    assert check is not None, "only a mutant with a check is shown by it"
    started = time.monotonic()
    with mutant.applied():
        saw = check()
    return None if saw is None else Kill(Shown(check.__name__.replace("_", " "), saw), 0, time.monotonic() - started)
