"""The switch: what the environment asks for."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvgate.kernel.errors import UsageError
from kvgate.kernel.shadow_switch import Mode, Switch, read
from kvgate.shadow.sampling import Sampling


def test_nothing_is_asked_for() -> None:
    """Goal: off unless it is switched on. Method: no variable, an empty one, and others without it."""
    assert [None, None, None] == [read({}), read({"KVGATE_SHADOW": ""}), read({"KVGATE_SHADOW_DIR": "x"})]


def test_everything_is_asked_for() -> None:
    """Goal: each variable sets its field. Method: all known ones."""
    given = {
        "KVGATE_SHADOW": "check",
        "KVGATE_SHADOW_DIR": "somewhere",
        "KVGATE_SHADOW_MAX_BYTES": "2000000",
        "KVGATE_SHADOW_QUEUE_BYTES": "300000",
        "KVGATE_SHADOW_RING_BYTES": "400000",
        "KVGATE_SHADOW_DUMPS": "2",
        "KVGATE_SHADOW_SAMPLE": "0.25",
        "KVGATE_SHADOW_PERIOD_STEPS": "50",
        "KVGATE_SHADOW_CHECKPOINT_CALLS": "700",
        "KVGATE_SHADOW_STALL_SECONDS": "30",
    }
    assert Switch(Mode.CHECK, Path("somewhere"), 2000000, 300000, 400000, 2, 0.25, 50, 700, stall_seconds=30) == read(
        given
    )


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("", "yes", "give one of record, check, strict"),
        ("_MAX_BYTES", "much", "a number is needed"),
        ("_MAX_BYTES", "5", "max_bytes"),
        ("_SAMPLE", "0", "a share is more than 0"),
        ("_SAMPLE", "nan", "a share is more than 0"),
        ("_PERIOD_STEPS", "1", "period_steps"),
        ("_DUMPS", "-1", "dumps"),
    ],
)
def test_what_is_wrong_is_named(name: str, value: str, message: str) -> None:
    """Goal: one message that says which variable. Method: values that it cannot have."""
    with pytest.raises(UsageError, match=message):
        read({"KVGATE_SHADOW": "record", f"KVGATE_SHADOW{name}": value})


@pytest.mark.parametrize(("share", "expected"), [(1.0, 1000), (0.5, 500), (0.1, 100)])
def test_the_share_of_steps(share: float, expected: int) -> None:
    """Goal: as many steps as were asked for, in whole periods. Method: count them."""
    sampling = Sampling(share, 10)
    wanted = [sampling.is_sampled(step) for step in range(1, 1001)]
    assert expected == sum(wanted)
    assert [True] * 10 == wanted[:10]
    sampling.stop()
    assert not any(map(sampling.is_sampled, range(1, 1001)))
