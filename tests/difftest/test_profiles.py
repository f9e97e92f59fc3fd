"""Profiles.

Goal: a profile says how much is run, on which models. Method: read plans, and durations as they are typed.
"""

from __future__ import annotations

import pytest

from kvgate.cli.check import parse_duration
from kvgate.gate.case_runner import Lane
from kvgate.gate.generator import PRESETS
from kvgate.gate.profiles import PROFILES, models_named, plan
from kvgate.kernel.errors import UsageError
from kvgate.kernel.models import GATED, MODELS

DURATIONS = {"90": 90.0, "90s": 90.0, "5m": 300.0, "2h": 7200.0, "0.5s": 0.5, "1.5m": 90.0}


@pytest.mark.parametrize(("text", "seconds"), DURATIONS.items())
def test_a_duration_is_read(text: str, seconds: float) -> None:
    """Seconds, minutes or hours."""
    assert seconds == parse_duration(text)


@pytest.mark.parametrize("text", ["", "0", "0s", "0.0h", "-1s", "s", "5 m", "5d", "1h30m", "1e3", "nan", "inf", "5m\n"])
def test_anything_else_is_rejected(text: str) -> None:
    """With what could have been written."""
    with pytest.raises(UsageError, match="not a time; write, for example, 60s, 5m or 2h"):
        parse_duration(text)


def test_without_names_the_published_models_are_run() -> None:
    """Each with and without a draft layer."""
    names = [model.name for model in models_named(())]
    assert [name for published in GATED for name in (published, f"{published}+eagle")] == names


def test_models_are_run_as_they_are_named() -> None:
    """In their order."""
    assert ["two-windows+eagle", "full"] == [model.name for model in models_named(("two-windows+eagle", "full"))]


@pytest.mark.parametrize("profile", PROFILES)
def test_a_plan_is_every_model_with_every_preset(profile: str) -> None:
    """As many operations as the profile says."""
    models = [MODELS["full"], MODELS["swa"]]
    found = plan(profile, models, seed=7, seconds=1.5, kinds_max=3)
    assert tuple(Lane(model, preset) for model in models for preset in PRESETS) == found.lanes
    assert (PROFILES[profile].operations, PROFILES[profile].shrink_seconds, 7, 1.5, 3, True) == (
        found.operations,
        found.shrink_seconds,
        found.seed,
        found.seconds,
        found.kinds_max,
        found.shrinks,
    )


def test_profiles_grow() -> None:
    """From what is done before every commit to what is done over night."""
    operations = [PROFILES[name].operations for name in ("precommit", "quick", "ci", "deep")]
    assert sorted(operations) == operations
    assert set(PROFILES) == {"precommit", "quick", "ci", "deep"}
