"""The disk limit holds for a folder that engine after engine writes into."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from attrs import evolve

from kvgate.kernel.shadow_switch import Mode
from kvgate.shadow.calls import ENCODER, After, Evicted, Restart
from kvgate.shadow.describe import TEXT_CHARACTERS_MAX
from kvgate.shadow.disk_budget import (
    STALE_ELSEWHERE_SECONDS,
    STALE_SECONDS,
    _has_ended,
    differences_bytes,
    remaining_recordings,
)
from kvgate.shadow.recording import FILE_BYTES_MAX, Writer, encoded
from kvgate.shadow.rotation import Rotation
from kvgate.shadow.sidecar import Order, Sidecar
from kvgate.shadow.status import FILES_MAX, Status, path_of, write

from .test_shadow_recording import CHECKPOINT, HEADER, LIFE, written

STEP_BYTES = 12 + len(encoded(LIFE[1]))
BOUND_BYTES = 20_000
HERE = socket.gethostname()


def left_by(folder: Path, engine: str, state: str | None) -> Path:
    """A recording of another engine, larger than half of the limit, and its status."""
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
    """Goal: a server that is restarted again and again does not fill the disk. Method: two engines that ended, and one
    that runs.
    """
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


OTHER = "20260101T000000-7"


def gone() -> int:
    """The id of a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


def watched(folder: Path, silent_seconds: float, process: int, host: str) -> Path:
    """A recording of an engine that has been silent for so long, by the clock of the folder; this engine has just
    written.
    """
    path = left_by(folder, OTHER, None)
    write(folder, Status(OTHER, Mode.RECORD.value, process, host))
    write(folder, Status(HEADER.engine, Mode.RECORD.value, os.getpid(), HERE))
    # The folder's clock is two hours slow.
    now = time.time() - 7200
    os.utime(path_of(folder, HEADER.engine), (now, now))
    os.utime(path_of(folder, OTHER), (now - silent_seconds, now - silent_seconds))
    return path


def test_an_engine_without_a_status_has_ended(tmp_path: Path) -> None:
    """Goal: an engine need not report its end. Method: a recording without a status."""
    path = left_by(tmp_path, OTHER, None)
    assert {path: path.stat().st_size} == remaining_recordings(tmp_path, HEADER.engine)
    assert {} == remaining_recordings(tmp_path, OTHER)


@pytest.mark.parametrize(
    ("silent_seconds", "runs", "host", "is_over"),
    [
        pytest.param(STALE_SECONDS + 1, False, HERE, True, id="killed"),
        pytest.param(STALE_SECONDS - 1, False, HERE, False, id="just now"),
        pytest.param(STALE_ELSEWHERE_SECONDS + 1, True, HERE, False, id="stopped"),
        pytest.param(STALE_SECONDS + 1, False, "elsewhere", False, id="silent elsewhere"),
        pytest.param(STALE_SECONDS + 1, False, "", False, id="silent somewhere"),
        pytest.param(STALE_ELSEWHERE_SECONDS + 1, True, "elsewhere", True, id="killed elsewhere"),
    ],
)
def test_a_silent_engine_has_ended_if_that_is_sure(
    tmp_path: Path, silent_seconds: float, runs: bool, host: str, is_over: bool
) -> None:
    """Goal: the files of a live engine are never deleted. Method: silence, a process, its host, and a clock
    that is off.
    """
    path = watched(tmp_path, silent_seconds, os.getppid() if runs else gone(), host)
    assert ([path] if is_over else []) == list(remaining_recordings(tmp_path, HEADER.engine))


def test_without_its_own_status_a_shadow_calls_no_engine_silent(tmp_path: Path) -> None:
    """Goal: when in doubt an engine is alive. Method: nothing to compare the time with; a status that is none."""
    watched(tmp_path, STALE_ELSEWHERE_SECONDS + 1, gone(), HERE)
    path_of(tmp_path, HEADER.engine).unlink()
    assert {} == remaining_recordings(tmp_path, HEADER.engine)
    path_of(tmp_path, OTHER).write_text("{}")
    assert {} == remaining_recordings(tmp_path, HEADER.engine)


def test_a_status_that_cannot_be_looked_at_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a folder that does not answer costs no recording. Method: an error other than a missing file."""

    def fails(_path: Path, **_more: object) -> os.stat_result:
        raise OSError(errno.ESTALE, "stale file handle")

    left_by(tmp_path, OTHER, "ended")
    monkeypatch.setattr(Path, "stat", fails)
    assert not _has_ended(tmp_path, OTHER, HEADER.engine)


@pytest.mark.parametrize(
    "name",
    [
        "recording-incident-4711.kvrec",
        "recording-keep.kvrec",
        f"recording-{OTHER}-000000-copy.kvrec",
        f"recording-{OTHER}.kvrec",
    ],
)
def test_what_the_shadow_did_not_write_is_not_deleted(tmp_path: Path, name: str) -> None:
    """Goal: files of others are kept. Method: other names in a full folder."""
    kept = left_by(tmp_path, OTHER, None).rename(tmp_path / name)
    assert {} == remaining_recordings(tmp_path, HEADER.engine)
    record(tmp_path, BOUND_BYTES // 2 // STEP_BYTES)
    assert kept.exists()


def test_unreported_status_is_deleted(tmp_path: Path) -> None:
    """Goal: a folder does not fill with status files. Method: many ended; some left files, one is not a shadow's."""
    engines = [f"202601{day:02d}T000000-7" for day in range(1, 5)]
    for engine in [*engines, *(f"20260201T0000{second:02d}-7" for second in range(FILES_MAX))]:
        write(tmp_path, Status(engine, Mode.CHECK.value, 1, state="ended"))
    write(tmp_path, Status(engines[3], Mode.CHECK.value, 1))
    (tmp_path / f"difference-{engines[1]}-1.txt").write_text("")
    written(tmp_path / f"recording-{engines[2]}-000000.kvrec")
    (tmp_path / "status-0.json").write_text("")
    differing(tmp_path, BOUND_BYTES, 0).begin()
    left = {path.name for path in tmp_path.glob("status-*.json")}
    assert [False, True, True, True] == [path_of(tmp_path, engine).name in left for engine in engines]
    assert "status-0.json" in left
    # Ours is reported, and all but one of the others.
    assert FILES_MAX + 4 == len(left)


def test_parts_can_be_read_however_much_is_allowed(tmp_path: Path) -> None:
    """Goal: no part is larger than what is read. Method: the most that the switch allows."""
    rotation = Rotation(tmp_path, HEADER, 2**44, pytest.fail)
    assert [FILE_BYTES_MAX // 4, FILE_BYTES_MAX] == [rotation.part_bytes, rotation.part_bytes_max]


def differing(folder: Path, bound_bytes: int, times: int, dumps: int = 100) -> Sidecar:
    """A process next to an engine that differs so many times."""
    sidecar = Sidecar(Order(Mode.CHECK.value, str(folder), bound_bytes, 10**6, dumps, HEADER))
    differ(sidecar, times)
    return sidecar


def differ(sidecar: Sidecar, times: int) -> None:
    """The engine differs so many times."""
    for _ in range(times):
        # Three blocks are free.
        broken = Evicted([1], After(2, 0, (3, 2, 1)))
        sidecar.take(ENCODER.encode([Restart(0, "a test"), CHECKPOINT, broken]))


def test_differences_are_bounded_too(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Goal: dumps of differences have a limit. Method: differ often, in one engine and then in another."""
    sidecar = differing(tmp_path, BOUND_BYTES, 2)
    (first, second) = sorted(tmp_path.glob("difference-*.kvrec"))
    assert sidecar.ring.dump_bytes(HEADER) == second.stat().st_size
    bound_bytes = differences_bytes(tmp_path)
    assert [first.stat().st_size + second.stat().st_size, 2] == [bound_bytes, sidecar.status.differences]
    capfd.readouterr()
    another = differing(tmp_path, bound_bytes, 3)
    assert bound_bytes == differences_bytes(tmp_path)
    assert [3, []] == [another.status.differences, another.status.dumps]
    assert 1 == capfd.readouterr().err.count("the disk budget is used up")


def test_stories_are_short_and_written_without_room_and_recordings_where_there_is_some_again(tmp_path: Path) -> None:
    """Goal: want of room passes, and costs no story. Method: differ without room, make some, and differ again."""
    other = tmp_path / "difference-another-1.kvrec"
    other.write_bytes(bytes(BOUND_BYTES))
    sidecar = differing(tmp_path, BOUND_BYTES, 2)
    story = tmp_path / f"difference-{HEADER.engine}-2.txt"
    assert story.read_text().endswith("because the disk budget is used up; see KVGATE_SHADOW_MAX_BYTES\n")
    assert (0o600, True) == (story.stat().st_mode & 0o777, story.stat().st_size <= TEXT_CHARACTERS_MAX)
    assert [] == sidecar.status.dumps
    other.unlink()
    differ(sidecar, 1)
    name = f"difference-{HEADER.engine}-3.kvrec"
    assert [name] == sidecar.status.dumps
    assert f"kvgate replay {name}" in story.with_name(name).with_suffix(".txt").read_text()


def test_a_number_of_differences_is_written(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Goal: an engine that always differs does not fill the disk. Method: more differences than are written."""
    differing(tmp_path, 10**9, 4, dumps=2)
    assert [2, 2] == [len(list(tmp_path.glob(f"difference-*.{suffix}"))) for suffix in ("kvrec", "txt")]
    assert 1 == capfd.readouterr().err.count("This one and more are counted, and not written")


def test_recordings_are_no_differences(tmp_path: Path) -> None:
    """Goal: recordings take no room from differences. Method: a recording in the folder."""
    written(tmp_path / "recording-20260101T000000-7-000000.kvrec")
    assert 0 == differences_bytes(tmp_path)
