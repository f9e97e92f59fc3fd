"""The shadows of a server, by the counters that it exports.

Goal: only what a shadow saw of this run counts, and one that did not follow all of it does not pass. Method: counters
by hand, and the live checks as a process of their own on a server that pretends.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import kvgate
from kvgate.live.sample import Sample
from kvgate.live.shadow_metrics import Engine, Followed, Shadow, Shadows, followed

from .pretended import Pretended, listening

pytest.importorskip("httpx")
pytest.importorskip("prometheus_client")

OLD, MINE, OTHER = Engine("old", "check"), Engine("mine", "check"), Engine("other", "record")
STOOD = Shadow(checked=40, differences=3, lost=5, calls=60)


def samples_of(shadows: Shadows) -> tuple[Sample, ...]:
    """The samples of these counters."""
    return tuple(
        Sample(f"kvgate_shadow_{name}_total", {"engine": engine.name, "mode": engine.mode}, value)
        for engine, shadow in shadows.items()
        for name, value in (
            ("calls", shadow.calls),
            ("judged", shadow.checked),
            ("differences", shadow.differences),
            ("lost", shadow.lost),
        )
    )


def after(monkeypatch: pytest.MonkeyPatch, *readings: Shadows, before: Shadows, seconds: float = 60.0) -> Followed:
    """The verdict after these readings, of which the last repeats without end."""
    monkeypatch.setattr("time.sleep", lambda _seconds: None)

    def read() -> Iterator[Shadows]:
        yield from readings
        while True:
            yield readings[-1]

    reading = read()
    return followed(lambda: samples_of(next(reading)), before, seconds)


def test_a_shadow_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its verdict is the one after its last check."""
    seen = after(monkeypatch, *({MINE: Shadow(judged, calls=9)} for judged in (0, 5, 9, 9)), before={})
    assert (Shadow(9, calls=9), True, None) == (seen.shadow, seen.has_settled, seen.complaint)


def test_what_was_before_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither what another engine left in the folder, nor what this one saw of others' requests."""
    before = {OLD: STOOD, MINE: STOOD}
    seen = after(monkeypatch, {OLD: STOOD, MINE: Shadow(50, 3, 5, 70)}, before=before)
    assert (Shadow(10, calls=10), None) == (seen.shadow, seen.complaint)


@pytest.mark.parametrize(
    ("counted", "message"),
    [
        (Shadow(50, 4, 5, 70), "saw 1 differences"),
        (Shadow(50, 3, 6, 71), "did not follow all of it: 10 calls checked, 0 differences, 1 calls lost"),
        (Shadow(40, 3, 5, 70), "has not caught up"),
        (STOOD, "did not change while the server was driven"),
    ],
    ids=["differs", "lost", "not checked", "dead"],
)
def test_what_is_complained_about(counted: Shadow, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A difference of this run, a lost call, calls that are not checked, and counters that do not advance."""
    seen = after(monkeypatch, {MINE: counted}, before={MINE: STOOD}, seconds=0.1)
    assert message in str(seen.complaint)


def test_one_that_still_checks_has_not_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """It lags, and may still see a difference."""
    seen = after(monkeypatch, *({MINE: Shadow(n, calls=n)} for n in range(1, 10**5)), before={}, seconds=0.05)
    assert not seen.has_settled
    assert "has not caught up" in str(seen.complaint)


def test_one_that_records_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """It checks nothing, and the report says so; an old shadow in mode check does not hide it."""
    seen = after(monkeypatch, {OLD: STOOD, OTHER: Shadow(calls=7)}, before={OLD: STOOD})
    assert (True, True) == (seen.only_records, seen.were_met)
    assert not after(monkeypatch, {}, before={}).were_met


def live(pretended: Pretended) -> tuple[int, str]:
    """The exit code and the output of one exercise, the state at rest and the shadow's verdict."""
    folder = Path(kvgate.__file__).parents[1]
    with listening(pretended) as url:
        wanted = "near-twins or at_rest or shadow"
        command = ["-m", "pytest", "test_live.py", "--live", url, "-k", wanted, "-q", "-rs", "-p", "no:cacheprovider"]
        ended = subprocess.run(
            [sys.executable, *command], cwd=folder, capture_output=True, text=True, check=False, timeout=120
        )
    return ended.returncode, ended.stdout


ENDED = {("old", "check"): {"calls": 60, "judged": 40, "differences": 3, "lost": 5}}


@pytest.mark.ci
@pytest.mark.parametrize(
    ("pretended", "code", "message"),
    [
        (Pretended(shadows=dict(ENDED), follows=("mine", "check")), 0, "shadow: 24 calls checked, 0 differences"),
        (Pretended(follows=("mine", "check"), follows_until=24), 1, "did not check one more request"),
        (Pretended(follows=("mine", "record")), 0, "the shadow is in mode record"),
        (Pretended(tells_metrics=False), 0, "not checked: the server reports no vllm:num_requests_running"),
    ],
    ids=["sound next to an ended one", "dead at the end", "recording", "no metrics"],
)
def test_the_live_checks(pretended: Pretended, code: int, message: str) -> None:
    """As ``pytest difftest/ --live`` runs them."""
    ended, output = live(pretended)
    assert (code, True) == (ended, message in output), output
