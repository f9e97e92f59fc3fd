"""The hunt: is a planted fault found, by what, and how soon?"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from attrs import evolve, frozen

from kvgate.gate.campaign import BlockTrials, Campaign, Lane, Plan, Trials
from kvgate.gate.case_runner import DETECTORS, Bench
from kvgate.gate.generator import PRESETS
from kvgate.gate.verdict import Found
from kvgate.kernel.models import Model
from kvgate_mutants.mutants.mutant import Mutant

MINIMISE_SECONDS = 10.0
"""How long a case that shows a mutant is made smaller, at most."""


@runtime_checkable
class Directed(Protocol):
    """Trials that can be led to where a mutant shows; of a block manager, a mutant names the models."""

    def towards(self, needs: tuple[str, ...]) -> Trials:
        """The same, but where a mutant with these needs (``kvgate_mutants.mutants.mutant.NEEDS``) can show."""
        ...


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
    smallest: Found | None = None
    """The smallest case that shows the same, if it was looked for."""

    @property
    def operations_left(self) -> int | None:
        """How many operations the smallest case has: what was done to the engine, or to the block manager."""
        if self.smallest is None:
            return None
        return len((self.smallest.engine or self.smallest.case).operations)

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


def chase(
    bench: Bench | Trials, models: Sequence[Model], seed: int, operations: int, seconds: float, minimises: bool = False
) -> Kill | None:
    """Run until something is found that no finding explains; None if nothing is, within the limits.

    Making it small may take ``MINIMISE_SECONDS`` more.
    """
    lanes = tuple(Lane(model, preset) for model in models for preset in sorted(PRESETS, reverse=True))
    plan = Plan(lanes, operations, seed=seed, seconds=seconds, kinds_max=1, minimises=False)
    trials = BlockTrials(bench) if isinstance(bench, Bench) else bench
    outcome = Campaign(trials, plan).run()
    if outcome.ended == "interrupted":
        raise KeyboardInterrupt
    if not outcome.found:
        return None
    found = outcome.found[0]
    smallest = trials.smallest(found, time.monotonic() + MINIMISE_SECONDS) if minimises else None
    return Kill(found, sum(tally.operations for tally in outcome.tallies), outcome.seconds, smallest)


def each_alone(bench: Bench) -> dict[str, Bench | Trials]:
    """The bench with each detector alone."""
    return {detector: evolve(bench, detectors=(detector,)) for detector in DETECTORS}


def hunt(
    bench: Bench | Trials,
    mutant: Mutant,
    models: Sequence[Model],
    *,
    seed: int,
    operations: int,
    seconds: float,
    alone: Mapping[str, Bench | Trials] | None = None,
    minimises: bool = False,
) -> Prey:
    """Plant ``mutant`` and run the gate, then the benches that judge with less, ``alone``, for a tenth as long.

    Raises:
        ValueError: If none of ``models`` is one that the mutant shows on.
    """
    alone = alone or {}
    if mutant.shown_by is not None:
        return Prey(mutant, dict.fromkeys(alone) | {"gate": _show(mutant)})
    fitting = [
        model
        for model in models
        if mutant.models is None or not {model.name, model.name.split("+")[0]}.isdisjoint(mutant.models)
    ]
    if not fitting:
        raise ValueError(f"{mutant.name} shows on {', '.join(mutant.models or ())}, and none of the models is one")
    trials = bench.towards(mutant.needs) if isinstance(bench, Directed) else bench
    kills: dict[str, Kill | None] = {}
    with mutant.applied():
        kills["gate"] = chase(trials, fitting, seed, operations, seconds, minimises)
        for name, other in alone.items():
            kills[name] = chase(other, fitting, seed, operations // 10, seconds)
    return Prey(mutant, kills)


def _show(mutant: Mutant) -> Kill | None:
    """What the check of ``mutant`` sees when it is planted."""
    check = mutant.shown_by
    assert check is not None, "only a mutant with a check is shown by it"
    started = time.monotonic()
    with mutant.applied():
        saw = check()
    return None if saw is None else Kill(Shown(check.__name__.replace("_", " "), saw), 0, time.monotonic() - started)
