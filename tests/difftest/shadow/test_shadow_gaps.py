"""Gaps in recordings of vLLM's own block manager: they are named, with their calls, and are never differences."""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from attrs import define, evolve

from kvgate.kernel.shadow_switch import Mode
from kvgate.report.recordings import report_of
from kvgate.shadow import recheck, recording
from kvgate.shadow.adapter import sinks
from kvgate.shadow.adapter.geometry import settings_of, system_of
from kvgate.shadow.adapter.observer import Observer
from kvgate.shadow.calls import ENCODER, Allocated, Checkpoint, Raw, Stored
from kvgate.shadow.recheck import Recheck, recheck_recordings
from kvgate.shadow.recording import Header, open_recording
from kvgate.shadow.sidecar import Order, Sidecar
from kvgate.shadow.sink_protocol import Passive

from .live import Server

ENGINE = "20261128T120000-7"
PART_BYTES = 22_000


@define
class Within(Passive):
    """A sink that hands everything to a sidecar in this process, as a socket would."""

    sidecar: Sidecar
    lost: int = 0
    is_immediate: bool = False

    def ready(self) -> bool:
        return True

    def send(self, records: Sequence[Raw]) -> None:
        self.sidecar.take(ENCODER.encode(records))


def recorded(
    folder: Path, engine: str = ENGINE, seed: int = 0, budget_parts: int = 8
) -> tuple[Server, Observer, Sidecar]:
    """An engine whose block manager is vLLM's own, recorded into a folder in parts of a few kilobytes."""
    server = Server("gpt-oss-hybrid", blocks=100, seed=seed)
    header = Header(settings_of(server.scheduler), system_of(server.scheduler), "0.20.2", "Scheduler", 0, engine)
    sidecar = Sidecar(Order(Mode.RECORD.value, str(folder), budget_parts * PART_BYTES, 2**20, 8, header))
    sidecar.begin()
    observer = Observer(server.scheduler, Within(sidecar), fail, checkpoint_calls=200, share_of_time=0)
    return server, observer, sidecar


def fail(error: BaseException) -> None:
    """The shadow itself is to have no fault."""
    raise error


def life(folder: Path, engine: str = ENGINE, seed: int = 0, budget_parts: int = 8) -> list[Path]:
    """A recording of several parts that is whole."""
    server, observer, sidecar = recorded(folder, engine, seed, budget_parts)
    server.serve(220)
    observer.end()
    sidecar.close()
    assert sidecar.rotation is not None
    assert 2 <= len(sidecar.rotation.written) < 8
    return sidecar.rotation.written


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with such a recording, to be copied."""
    folder = tmp_path_factory.mktemp("whole")
    life(folder)
    return folder


@pytest.fixture
def parts(whole: Path, tmp_path: Path) -> list[Path]:
    """A recording that a test may damage."""
    names = sorted(whole.glob("*.kvrec"))
    for each in names:
        (tmp_path / each.name).write_bytes(each.read_bytes())
    return [tmp_path / each.name for each in names]


def checked(folder: Path) -> Recheck:
    """The only engine of a folder, checked again: nothing differs."""
    (found,) = recheck_recordings(folder, lambda _text: None)
    assert [] == found.found
    return found


def records_in(path: Path) -> int:
    """How many records a part has."""
    return sum(1 for _ in open_recording(path).records())


def test_parts_that_follow_each_other_have_no_gap(parts: list[Path]) -> None:
    """Goal: the control. Method: a whole recording; no part is reported as not closed, and all states are compared."""
    found = checked(parts[0].parent)
    assert ([], [], 0) == (found.gaps, found.endings, found.checker.stats.lost)
    assert len(parts) <= found.checker.stats.checkpoints


def test_a_missing_part_is_a_gap(parts: list[Path]) -> None:
    """Goal: named with its calls, and checked on. Method: delete a part in the middle, then the first one, too."""
    lost = records_in(parts[2])
    parts[2].unlink()
    found = checked(parts[0].parent)
    assert [f"gap of {lost:,} calls before {parts[3].name}"] == found.gaps
    assert ([], lost) == (found.endings, found.checker.stats.lost)
    parts[0].unlink()
    assert [f"not here: the 1 part before {parts[1].name}", *found.gaps] == checked(parts[0].parent).gaps


@pytest.mark.parametrize("share", [0.9, 0.5, 0.0])
def test_a_truncated_part_is_a_gap(parts: list[Path], share: float) -> None:
    """Goal: the calls missing after the cut are counted. Method: cut a part at its end, in the middle, or empty it."""
    before = records_in(parts[1])
    os.truncate(parts[1], int(parts[1].stat().st_size * share))
    left = records_in(parts[1]) if share else 0
    assert left < before
    found = checked(parts[0].parent)
    assert [f"gap of {before - left:,} calls before {parts[2].name}"] == found.gaps
    (ending,) = found.endings
    assert parts[1].name in ending
    assert ("cut off" if share else "it ends after 0 bytes") in ending
    assert before - left == found.checker.stats.lost


@contextmanager
def full_disk() -> Iterator[None]:
    """No file may grow: the system refuses a write as a full disk does, with another number."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_is_a_gap(tmp_path: Path) -> None:
    """Goal: named with the calls that the writer counted. Method: nothing can be written for a while, twice."""
    server, observer, sidecar = recorded(tmp_path)
    for _ in range(2):
        server.serve(60)
        with full_disk():
            server.serve(60)
    server.serve(100)
    observer.end()
    sidecar.close()
    assert sidecar.rotation is not None
    found = checked(tmp_path)
    assert 2 == len(found.gaps)
    assert all(gap.startswith("gap of ") for gap in found.gaps)
    assert sidecar.rotation.lost == found.checker.stats.lost > 400
    assert [] == found.endings


def test_older_recordings_are_read_and_checked_part_by_part(parts: list[Path]) -> None:
    """Goal: existing recordings are read; a gap that their parts do not show is not a difference. Method: the format
    before this one, without a part in the middle.
    """
    for part in parts:
        as_before(part)
    found = checked(parts[0].parent)
    assert ([recheck._UNNUMBERED], []) == (found.gaps, found.endings)
    parts[2].unlink()
    assert [recheck._UNNUMBERED] == checked(parts[0].parent).gaps


def test_recordings_of_version_3_are_read_and_checked(parts: list[Path]) -> None:
    """Goal: recordings of version 3 are checked as they were. Method: its records, without the fields that are new."""
    before = checked(parts[0].parent)
    for part in parts:
        opened = open_recording(part)
        records = [ENCODER.encode([without_new_fields(record)]) for record in opened.records()]
        beginning = recording.MAGIC[:-1] + b"3" + recording.beginning(opened.header)[len(recording.MAGIC) :]
        part.write_bytes(beginning + b"".join(map(recording.framed, records)))
    found = checked(parts[0].parent)
    assert (0, [], []) == (found.differences, found.gaps, found.endings)
    assert before.checker is not None
    assert found.checker is not None
    assert before.checker.stats.judged == found.checker.stats.judged > 0


def without_new_fields(record: Stored) -> list[Any]:
    """A record as version 3 stored it."""
    plain: list[Any] = msgspec.msgpack.decode(ENCODER.encode(record))
    if isinstance(record, Allocated):
        return plain[: 1 + Allocated.__struct_fields__.index("must_fit")]
    if isinstance(record, Checkpoint):
        place = 1 + Checkpoint.__struct_fields__.index("standing")
        plain[place] = [each[:-1] for each in plain[place]]
    return plain


def as_before(part: Path) -> None:
    """Write a part as version 2 did."""
    opened = open_recording(part)
    header = opened.header
    frames = [recording.framed(recording.encoded([record])) for record in opened.records()]
    document = recording._CONVERTER.unstructure(evolve(header, first_record=None))
    del document["first_record"], document["started_unix_ms"]
    beginning = recording.MAGIC[:-1] + b"2" + recording.framed(json.dumps(document).encode())
    part.write_bytes(beginning + b"".join(frames))


def test_two_engines_in_one_folder_are_checked_apart(tmp_path: Path) -> None:
    """Goal: neither is a gap of the other. Method: two engines; of one a part is missing; the clock was set back
    between them, so that the second one has the earlier name and older files."""
    first = life(tmp_path, budget_parts=16)
    second = life(tmp_path, "20261128T110000-7", seed=1, budget_parts=16)
    for part in second:
        os.utime(part, (0, 0))
    lost = records_in(first[1])
    first[1].unlink()
    found = {each.header.engine: each for each in recheck_recordings(tmp_path, lambda _text: None)}
    assert {ENGINE: 0, "20261128T110000-7": 0} == {name: each.differences for name, each in found.items()}
    assert [f"gap of {lost:,} calls before {first[2].name}"] == found[ENGINE].gaps
    assert ([], []) == (found["20261128T110000-7"].gaps, found["20261128T110000-7"].endings)


@pytest.mark.ci
def test_two_engines_never_have_one_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a second engine of that second and number, of another container or after the clock was set back, writes to
    files of its own. Method: a clock that stands still."""
    monkeypatch.setattr("kvgate.shadow.adapter.sinks.time.strftime", lambda *_of: "20261128T120000")
    names = [sinks.new_name(tmp_path) for _ in range(3)]
    assert 3 == len(set(names))
    for number, name in enumerate(names):
        life(tmp_path, name, seed=number, budget_parts=24)
    assert sorted(names) == sorted(each.header.engine for each in recheck_recordings(tmp_path, lambda _text: None))


def test_a_report_names_gaps_and_ends_with_zero(parts: list[Path]) -> None:
    """Goal: the output of `kvgate replay`, and its exit code. Method: its report of a folder that lacks a part."""
    lost = records_in(parts[2])
    parts[2].unlink()
    report = report_of([checked(parts[0].parent)])
    (section,) = report.tested
    assert (0, (f"gap of {lost:,} calls before {parts[3].name}",)) == (report.exit_code, section.notes)
