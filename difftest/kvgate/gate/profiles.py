"""How much is run: the profiles of the gate, and what a plan looks like for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import frozen

from kvgate.gate.campaign import Plan
from kvgate.gate.case_runner import Lane
from kvgate.gate.generator import PRESETS
from kvgate.kernel.models import GATED, MODELS, Model, load


@frozen
class Profile:
    """How many operations, over all lanes."""

    operations: int
    shrink_seconds: float = 60
    """How long the cases that show something are made smaller, all together."""


PROFILES: Mapping[str, Profile] = {
    # Before a commit: half a minute, of both levels.
    "precommit": Profile(15_000, shrink_seconds=12),
    # The gate as a test run: under a minute.
    "quick": Profile(40_000, shrink_seconds=60),
    # In front of a merge: some minutes.
    "ci": Profile(1_500_000, shrink_seconds=300),
    # Over night.
    "deep": Profile(20_000_000, shrink_seconds=1800),
}


def models_named(names: Sequence[str]) -> list[Model]:
    """The models called ``names``; without names those of the gate, each with and without a draft layer."""
    if names:
        return [load(name) for name in names]
    return [model for name in GATED for model in (MODELS[name], MODELS[name].with_lookahead())]


def plan(
    profile: str, models: Sequence[Model], *, seed: int = 0, seconds: float | None = None, kinds_max: int = 5
) -> Plan:
    """Every model with every generator preset, as much as the profile says."""
    lanes = tuple(Lane(model, preset) for model in models for preset in PRESETS)
    chosen = PROFILES[profile]
    return Plan(
        lanes,
        chosen.operations,
        seed=seed,
        seconds=seconds,
        kinds_max=kinds_max,
        shrink_seconds=chosen.shrink_seconds,
        profile=profile,
    )
