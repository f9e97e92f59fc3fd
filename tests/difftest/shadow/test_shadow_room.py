"""The bound of what lies on disk holds for a folder that engine after engine writes into."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from attrs import evolve

from kvgate.shadow.beside import Beside, Order
from kvgate.shadow.calls import ENCODER, After, Evicted, Restart
from kvgate.shadow.recording import Writer, encoded
from kvgate.shadow.room import STALE_SECONDS, differences_bytes, left_behind
from kvgate.shadow.rotation import Rotation
from kvgate.shadow.status import Status, path_of, write
from kvgate.shadow.switch import Mode

from .test_shadow_recording import CHECKPOINT, HEADER, LIFE, written

STEP_BYTES = 12 + len(encoded(LIFE[1]))
BOUND_BYTES = 20_000


def left_by(folder: Path, engine: str, state: str | None) -> Path:
    """A recording of another engine, larger than half of what there is room for, and its status."""
    writer = Writer(folder / f"recording-{engine}-000003.kvrec", evolve(HEADER, engine=engine))
    writer.append(encoded([CHECKPOINT]))
    for _ in range(BOUND_BYTES // 2 // STEP_BYTES):
        writer.append(encoded(LIFE[1]))
    writer.close()
    if state is not None:
        write(folder, Status(engine, Mode.RECORD.value, 1, state=state))
    return writer.path


def record(folder: Path, steps: int) -> Rotation:
    """An engine that records so many steps."""
    rotation = Rotation(folder, HEADER, BOUND_BYTES, pytest.fail)
    rotation.append([CHECKPOINT])
    for _ in range(steps):
        rotation.append(LIFE[1])
    rotation.close()
    return rotation


def test_what_ended_engines_left_counts_and_goes_first(tmp_path: Path) -> None:
    """Goal: a server that is started again and again fills no disk. Method: two that ended, and one that goes on."""
    first, second = left_by(tmp_path, "20260101T000000-7", "ended"), left_by(tmp_path, "20260102T000000-8", "ended")
    rotation = record(tmp_path, 3)
    assert [False, True] == [first.exists(), second.exists()]
    assert sum(path.stat().st_size for path in tmp_path.glob("*.kvrec")) <= BOUND_BYTES
    assert rotation.written[0].exists()


def test_what_engines_that_serve_write_is_theirs(tmp_path: Path) -> None:
    """Goal: engines side by side do not take each other's room. Method: the same, but the others are watching."""
    paths = [left_by(tmp_path, f"2026010{day}T000000-7", "watching") for day in (1, 2)]
    record(tmp_path, 3)
    assert [True, True] == [path.exists() for path in paths]


@pytest.mark.parametrize(
    "how", [pytest.param("stale", id="last words are old"), pytest.param("none", id="no last words")]
)
def test_who_was_killed_has_ended(tmp_path: Path, how: str) -> None:
    """Goal: nobody needs to have said that they end. Method: a status that nobody writes any more; none at all."""
    engine = "20260101T000000-7"
    path = left_by(tmp_path, engine, "watching" if how == "stale" else None)
    if how == "stale":
        assert {} == left_behind(tmp_path, HEADER.engine)
        then = time.time() - STALE_SECONDS - 1
        os.utime(path_of(tmp_path, engine), (then, then))
    assert {path: path.stat().st_size} == left_behind(tmp_path, HEADER.engine)
    assert {} == left_behind(tmp_path, engine)


def differing(folder: Path, bound_bytes: int, times: int) -> Beside:
    """A process beside an engine that differs so many times."""
    beside = Beside(Order(Mode.CHECK.value, str(folder), bound_bytes, 10**6, 100, HEADER))
    for _ in range(times):
        # Three blocks are free.
        broken = Evicted([1], After(2, 0, (3, 2, 1)))
        beside.take(ENCODER.encode([Restart(0, "a test"), CHECKPOINT, broken]))
    return beside


def test_differences_are_bounded_too(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Goal: what tells differences has room for some. Method: differ often, in one engine and then in another."""
    beside = differing(tmp_path, BOUND_BYTES, 2)
    (first, second) = sorted(tmp_path.glob("difference-*.kvrec"))
    assert beside.ring.dump_bytes(HEADER) == second.stat().st_size
    bound_bytes = differences_bytes(tmp_path)
    assert [first.stat().st_size + second.stat().st_size, 2] == [bound_bytes, beside.status.differences]
    capfd.readouterr()
    another = differing(tmp_path, bound_bytes, 3)
    assert bound_bytes == differences_bytes(tmp_path)
    assert [3, []] == [another.status.differences, another.status.dumps]
    assert 1 == capfd.readouterr().err.count("This one and more are counted, and not written")


def test_recordings_are_no_differences(tmp_path: Path) -> None:
    """Goal: what is recorded takes no room from differences. Method: a recording in the folder."""
    written(tmp_path / "recording-20260101T000000-7-000000.kvrec")
    assert 0 == differences_bytes(tmp_path)
