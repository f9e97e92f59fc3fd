"""The hunt: is a planted fault found, by what, and how soon?"""

from __future__ import annotations

import time
from collections.abc import Sequence

from attrs import evolve, frozen

from kvgate.campaign import Campaign, Lane, Plan
from kvgate.generators import PRESETS
from kvgate.models import Model
from kvgate.mutants.mutant import Mutant
from kvgate.runner import DETECTORS, Bench
from kvgate.verdict import Found


@frozen
class Shown:
    """What a mutant's own check saw."""

    check: str
    saw: str


@frozen
class Kill:
    """How a mutant was found."""

    found: Found | Shown
    operations: int
    """How many operations it took, over all cases."""
    seconds: float

    @property
    def by(self) -> str:
        """The detector, or the check."""
        return self.found.check if isinstance(self.found, Shown) else self.found.divergence.detector

    @property
    def statement(self) -> str | None:
        """The guarantee that was seen violated; None if a check saw something else."""
        return None if isinstance(self.found, Shown) else self.found.divergence.difference.statement


@frozen
class Prey:
    """What became of one mutant."""

    mutant: Mutant
    kills: dict[str, Kill | None]
    """For the whole gate (``gate``), and for each detector that was tried alone: the kill, or None if it survived."""

    @property
    def survived(self) -> bool:
        """Whether the whole gate did not find a mutant that can be found."""
        return self.mutant.equivalent is None and self.kills["gate"] is None


def chase(bench: Bench, models: Sequence[Model], seed: int, operations: int, seconds: float) -> Kill | None:
    """Run until something is found that no finding explains; None if nothing is, within the limits."""
    lanes = tuple(Lane(model, preset) for model in models for preset in sorted(PRESETS, reverse=True))
    plan = Plan(lanes, operations, seed=seed, seconds=seconds, kinds_max=1, minimises=False)
    outcome = Campaign(bench, plan).run()
    if outcome.ended == "interrupted":
        raise KeyboardInterrupt
    if not outcome.found:
        return None
    return Kill(outcome.found[0], sum(tally.operations for tally in outcome.tallies), outcome.seconds)


def hunt(
    bench: Bench,
    mutant: Mutant,
    models: Sequence[Model],
    *,
    seed: int,
    operations: int,
    seconds: float,
    each_detector: bool,
) -> Prey:
    """Plant ``mutant`` and run the gate, then, if asked for, every detector alone."""
    if mutant.shown_by is not None:
        return Prey(mutant, dict.fromkeys(DETECTORS if each_detector else ()) | {"gate": _show(mutant)})
    fitting = [
        model
        for model in models
        if mutant.models is None or not {model.name, model.name.split("+")[0]}.isdisjoint(mutant.models)
    ]
    kills: dict[str, Kill | None] = {}
    with mutant.applied():
        kills["gate"] = chase(bench, fitting or models, seed, operations, seconds)
        if each_detector:
            for detector in DETECTORS:
                alone = evolve(bench, detectors=(detector,))
                kills[detector] = chase(alone, fitting or models, seed, operations // 10, seconds)
    return Prey(mutant, kills)


def _show(mutant: Mutant) -> Kill | None:
    """What the check of ``mutant`` sees when it is planted."""
    check = mutant.shown_by
    assert check is not None, "only a mutant with a check is shown by it"
    started = time.monotonic()
    with mutant.applied():
        saw = check()
    return None if saw is None else Kill(Shown(check.__name__.replace("_", " "), saw), 0, time.monotonic() - started)
