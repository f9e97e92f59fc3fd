"""The format of recordings: what was written is read, and any damage to a file ends in one message."""

from __future__ import annotations

import errno
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from attrs import evolve

from kvgate.kernel.difference import Difference
from kvgate.kernel.errors import UsageError
from kvgate.shadow import recording as recordings
from kvgate.shadow.calls import (
    After,
    Allocated,
    Arrived,
    Checkpoint,
    Decoded,
    End,
    Freed,
    Grew,
    LookedUp,
    Registered,
    Restart,
    Step,
    Stored,
    records_in,
)
from kvgate.shadow.describe import format_finding
from kvgate.shadow.recheck import recheck_recordings
from kvgate.shadow.recording import Header, Writer, encoded, is_recording, open_recording
from kvgate.shadow.ring import Ring
from kvgate.shadow.rotation import Rotation
from kvgate.shadow.shadow_checker import Finding
from kvreference.geometry import Geometry, Group
from kvreference.settings import Settings

SETTINGS = Settings(Geometry((Group("full", 16),)), blocks=4)
HEADER = Header(SETTINGS, "stock", "0.20.2", "Scheduler", 0, "engine-1")
CHECKPOINT = Checkpoint([0, 0, 0, 0], [1, 2, 3], {}, [], [])
ARRIVED = Arrived(0, 20, 20, True, [b"digest of a grain"])
LIFE: list[list[Stored]] = [
    [CHECKPOINT],
    [ARRIVED, Step(1, 0)],
    [Grew(0, 21), Freed(0, True, After(3, 0, (3, 2, 1)))],
    [End()],
]


def written(path: Path, steps: list[list[Stored]] = LIFE) -> Path:
    """A file with these steps."""
    writer = Writer(path, HEADER)
    for step in steps:
        writer.append(encoded(step))
    writer.close()
    return path


def read(path: Path) -> tuple[list[Stored], str]:
    """All calls of a file, and what it says of its end."""
    recording = open_recording(path)
    return list(recording.records()), recording.ended


def test_what_was_written_is_read(tmp_path: Path) -> None:
    """Goal: nothing is lost on the way. Method: every kind of call there and back."""
    path = written(tmp_path / "a.kvrec")
    assert ([record for step in LIFE for record in step], "") == read(path)
    assert HEADER == open_recording(path).header
    assert [True, False] == [is_recording(path), is_recording(tmp_path)]


TOGETHER = Decoded(
    groups=1,
    lookahead_tokens=1,
    numbers=[4, 5],
    computed=[31, 7],
    slots=[],
    unsure=[],
    appended=[1, 0],
    tokens=[32, 8],
    digests=[(0, [b"a digest"])],
    after=(9, 2, (8,)),
    changing=[(1, [[3]], (1,), [(0, 1, [6])], (8, 3, (7,)))],
)
"""A call of a request that completed a grain, and one that changed the pool."""


def test_calls_that_were_made_together_are_read_one_by_one(tmp_path: Path) -> None:
    """Goal: each call is as it was, with the pool as it then was. Method: two calls in one record."""
    path = tmp_path / "a.kvrec"
    writer = Writer(path, HEADER)
    writer.append(encoded([CHECKPOINT, TOGETHER]))
    writer.close()
    expected: list[Stored] = [
        CHECKPOINT,
        Grew(4, 32, [b"a digest"]),
        Allocated(4, 31, 1, 0, 1, 0, False, False, [[]], False, None, [], After(9, 2, (8,))),
        Allocated(5, 7, 1, 0, 1, 0, False, False, [[3]], False, (1,), [Registered(0, 1, [6])], After(8, 3, (7,))),
    ]
    assert expected == read(path)[0]
    assert len(expected) == records_in([CHECKPOINT, TOGETHER])


@pytest.mark.parametrize(
    "broken",
    [
        {"computed": [31]},
        {"slots": [1]},
        {"tokens": [32, 8, 9]},
        {"digests": [(2, [b"a digest"])]},
        {"digests": [(1, [b"of a request that gained no token"])]},
        {"digests": [(0, [b"a digest"]), (0, [b"another"])]},
        {"changing": [(2, [[3]], None, [], (8, 3, (7,)))]},
        {"changing": [TOGETHER.changing[0], TOGETHER.changing[0]]},
    ],
)
def test_calls_whose_lists_do_not_fit_are_rejected(tmp_path: Path, broken: dict[str, Any]) -> None:
    """Goal: a file from anywhere ends in one message. Method: a list too short, too long, or about a call too many."""
    path = tmp_path / "a.kvrec"
    writer = Writer(path, HEADER)
    writer.append(encoded([msgspec.structs.replace(TOGETHER, **broken)]))
    writer.close()
    with pytest.raises(UsageError, match=r"record 0, at byte \d+: calls that were made together have lists"):
        read(path)


def test_older_versions_hold_no_calls_that_were_made_together(tmp_path: Path) -> None:
    """Goal: a file of version 6 holds what version 6 knew. Method: the same file under both versions."""
    path = tmp_path / "a.kvrec"
    writer = Writer(path, HEADER)
    writer.append(encoded([CHECKPOINT, TOGETHER]))
    writer.close()
    path.write_bytes(recordings.MAGIC[:-1] + b"6" + path.read_bytes()[len(recordings.MAGIC) :])
    with pytest.raises(UsageError, match="'decoded'"):
        read(path)


def test_cut_anywhere_all_but_the_last_record_is_read(tmp_path: Path) -> None:
    """Goal: a killed process leaves what was written. Method: cut a file after each of its bytes."""
    whole = written(tmp_path / "a.kvrec").read_bytes()
    ends = [len(recordings.MAGIC) + 12 + len(msgspec.json.encode(recordings._CONVERTER.unstructure(HEADER)))]
    for step in LIFE:
        ends.append(ends[-1] + 12 + len(encoded(step)))
    assert len(whole) == ends[-1]
    path = tmp_path / "b.kvrec"
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        if length < ends[0]:
            with pytest.raises(UsageError):
                open_recording(path)
            continue
        complete = sum(end <= length for end in ends[1:])
        records, ended = read(path)
        assert [record for step in LIFE[:complete] for record in step] == records
        assert ("not closed" if length in ends else "cut off") in ended


def test_a_changed_byte_is_noticed(tmp_path: Path) -> None:
    """Goal: corrupted data is rejected, except in a last record. Method: change each byte to two other values."""
    whole = written(tmp_path / "a.kvrec").read_bytes()
    all_but_the_last = [record for step in LIFE[:-1] for record in step]
    last = len(whole) - 12 - len(encoded(LIFE[-1]))
    path = tmp_path / "b.kvrec"
    unseen = []
    for position in range(len(whole)):
        for flipped in (0x55, 0x01):
            path.write_bytes(whole[:position] + bytes([whole[position] ^ flipped]) + whole[position + 1 :])
            try:
                records, ended = read(path)
            except UsageError:
                continue
            if position < last or records != all_but_the_last or "cut off" not in ended:
                unseen.append((position, flipped))
    assert [] == unseen


def test_a_corrupted_record_is_named(tmp_path: Path) -> None:
    """Goal: one knows where, and what is still sound. Method: break a record in the middle."""
    path = written(tmp_path / "a.kvrec")
    data = bytearray(path.read_bytes())
    data[data.index(b"digest of a grain")] ^= 1
    path.write_bytes(data)
    with pytest.raises(UsageError, match=r"record 1, at byte \d+: its checksum is wrong.*the 1 records before it"):
        read(path)


@pytest.mark.parametrize("after", ["the magic", "the header"])
def test_ten_gigabytes_are_announced_and_not_read(tmp_path: Path, after: str) -> None:
    """Goal: a length costs no memory. Method: announce ten gigabytes, under a limit of memory that they would break."""
    start = written(tmp_path / "a.kvrec", []).read_bytes() if after == "the header" else recordings.MAGIC
    path = tmp_path / "b.kvrec"
    length = 0xF0000000.to_bytes(4, "little")
    path.write_bytes(start + length + zlib.crc32(length).to_bytes(4, "little") + bytes(100))
    with pytest.raises(UsageError, match=r"announces .* bytes, at most \d+ are read"):
        read(path)


def test_a_record_that_holds_no_calls_is_rejected(tmp_path: Path) -> None:
    """Goal: records are validated. Method: frames with a right checksum that hold something else."""
    for payload in (b"junk", encoded([])[:0] + b"\x91\x91\xa4junk", b"\x91\x92\xa4step\xa1x", b"\x91" * 5000):
        path = tmp_path / f"{zlib.crc32(payload)}.kvrec"
        writer = Writer(path, HEADER)
        writer.append(payload)
        writer.close()
        with pytest.raises(UsageError, match=r"record 0, at byte \d+: "):
            read(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"settings": evolve(SETTINGS, blocks=10**9)}, "at most 2000000 blocks"),
        ({"segment": "one"}, "expected int"),
    ],
)
def test_a_header_is_validated(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    """Goal: a stranger's file cannot make us build what it asks for. Method: headers that ask for too much, or are not
    headers.
    """
    Writer(tmp_path / "a.kvrec", evolve(HEADER, **change)).close()
    with pytest.raises(UsageError, match=message):
        open_recording(tmp_path / "a.kvrec")


def test_other_versions_and_files_are_named(tmp_path: Path) -> None:
    """Goal: a clear message. Method: another version, another file, none, an empty one."""
    path = tmp_path / "a.kvrec"
    for content, message in (
        (b"KVGATER1" + bytes(8), "of version"),
        (b"{}", "no recording"),
        (b"", "no recording"),
        (recordings.MAGIC, "cut off before its header"),
    ):
        path.write_bytes(content)
        with pytest.raises(UsageError, match=message):
            open_recording(path)
    with pytest.raises(UsageError, match="cannot be read"):
        open_recording(tmp_path / "none")


# Rotation and the ring


def test_parts_are_bounded_and_begin_with_a_checkpoint(tmp_path: Path) -> None:
    """Goal: a server that runs for months does not fill the disk. Method: write much more than the limit, and check
    what is left.
    """
    said: list[str] = []
    rotation = Rotation(tmp_path, HEADER, 20_000, said.append)
    rotation.append([Restart(0, "the engine starts"), ARRIVED])
    for _ in range(200):
        rotation.append([*LIFE[1], CHECKPOINT])
        for _ in range(10):
            rotation.append(LIFE[1])
    rotation.close()
    left = sorted(tmp_path.glob("*.kvrec"))
    assert sum(path.stat().st_size for path in left) <= 20_000
    assert 3 < len(left) < len(rotation.written)
    assert [type(CHECKPOINT)] * len(left) == [type(read(path)[0][0]) for path in left]
    assert [] == said


def test_a_part_without_a_checkpoint_ends(tmp_path: Path) -> None:
    """Goal: the limit holds, even if no checkpoint comes. Method: write on without one."""
    said: list[str] = []
    rotation = Rotation(tmp_path, HEADER, 4000, said.append)
    rotation.append(LIFE[0])
    for _ in range(1000):
        rotation.append(LIFE[1])
    assert sum(path.stat().st_size for path in tmp_path.glob("*")) <= 4000
    assert 1 == len(said)
    assert rotation.lost > 1000


def test_the_ring_is_bounded_and_can_be_checked(tmp_path: Path) -> None:
    """Goal: the story of a difference has its beginning. Method: the last two checkpoints, then less room than that."""
    ring = Ring(10**6)
    for _ in range(5):
        ring.append([*LIFE[1], CHECKPOINT])
        ring.append(LIFE[1])
    ring.dump(tmp_path / "a.kvrec", HEADER)
    assert 2 == sum(isinstance(record, Checkpoint) for record in read(tmp_path / "a.kvrec")[0])
    assert CHECKPOINT == read(tmp_path / "a.kvrec")[0][0]
    small = Ring(300)
    small.append([CHECKPOINT])
    for _ in range(50):
        small.append(LIFE[1])
    small.dump(tmp_path / "b.kvrec", HEADER)
    assert not small.is_whole
    assert (tmp_path / "b.kvrec").stat().st_size < 1150
    assert [] == judged_again(tmp_path / "b.kvrec")[0]


# Written in the middle of a life, then checked


def judged_again(path: Path) -> tuple[list[str], int]:
    """The violations in a file or a folder, and how many checkpoints were compared."""
    (rejudged,) = recheck_recordings(path, lambda _text: None)
    return [finding.difference.statement for finding in rejudged.found], rejudged.checker.stats.checkpoints


def lives(number: int) -> list[list[Stored]]:
    """A request that leaves a block cached that serves no other; then a checkpoint of the whole state."""
    block, contents = number + 1, {each + 1: (0, b"%d" % each) for each in range(number + 1)}
    free = [each for each in range(1, 10) if each not in contents]
    tail = tuple(reversed([*free, *contents]))[:2]
    given = LookedUp(number, 0, [[]], False), Allocated(
        number, 0, 16, 0, 0, 0, False, True, [[block]], True, (), [Registered(0, 0, [block])],
        After(8, number + 1, tuple(reversed([*free, *range(1, number + 1)]))[:2]),
    )  # fmt: skip
    return [
        [Arrived(number, 16, 16, True, [b"%d" % number]), Step(number, number), *given],
        [Freed(number, True, After(9, number + 1, tail))],
        [
            Checkpoint(
                [0] * 10,
                [*free, *contents],
                {each: content[1] for each, content in contents.items()},
                [],
                [],
                contents,
            )
        ],
    ]


TEN = evolve(HEADER, settings=Settings(Geometry((Group("full", 16),)), blocks=10))
BEGIN: list[list[Stored]] = [[Restart(0, "the engine starts")], [Checkpoint([0] * 10, list(range(1, 10)), {}, [], [])]]


def test_a_recording_without_its_oldest_part_is_checked(tmp_path: Path) -> None:
    """Goal: each part can be checked without those before it. Method: rotate, delete the oldest, and check the rest."""
    rotation = Rotation(tmp_path, TEN, 6000, fail)
    for step in [*BEGIN, *(step for number in range(4) for step in lives(number))]:
        rotation.append(step)
    rotation.close()
    assert len(rotation.written) >= 3
    assert ([], 4) == judged_again(tmp_path)
    rotation.written[0].unlink()
    statements, compared = judged_again(tmp_path)
    assert [] == statements
    assert compared >= 1
    assert [] == judged_again(rotation.written[-2])[0]


def test_a_dump_after_three_checkpoints_is_checked(tmp_path: Path) -> None:
    """Goal: a difference is seen again, and no other. Method: dump a ring; then with a wrong answer."""
    ring = Ring(10**6)
    for step in [*BEGIN, *(step for number in range(3) for step in lives(number))]:
        ring.append(step)
    ring.dump(tmp_path / "a.kvrec", TEN)
    assert ([], 1) == judged_again(tmp_path / "a.kvrec")
    ring.append([Arrived(9, 16, 16, True, [b"9"]), LookedUp(9, 16, [[3]], False)])
    ring.dump(tmp_path / "b.kvrec", TEN)
    assert (["KV-OP-01"], 1) == judged_again(tmp_path / "b.kvrec")


def test_a_dump_that_is_not_whole_says_so() -> None:
    """Goal: a reader is never sent to a command that shows nothing. Method: a story with and without its beginning."""
    finding = Finding(3, 1, LIFE[1][0], Difference("KV-OP-01", "answer", "1", "2"))
    whole, torn = (format_finding(finding, [], "kvgate replay x.kvrec", is_whole) for is_whole in (True, False))
    assert ("to see it again:" in whole, "to see it again:" in torn) == (True, False)
    assert "KVGATE_SHADOW_RING_BYTES" in torn


def test_a_part_that_cannot_be_deleted_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: recording continues. Method: a folder in which nothing can be deleted; each part is reported once."""

    def refuses(_path: Path, **_others: bool) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    said: list[str] = []
    rotation = Rotation(tmp_path, TEN, 2000, said.append)
    monkeypatch.setattr(Path, "unlink", refuses)
    for step in [*BEGIN, *(step for number in range(6) for step in lives(number))]:
        rotation.append(step)
    rotation.close()
    assert said
    assert all("stays: Permission denied" in line for line in said)
    assert len(rotation.written) == len(list(tmp_path.glob("*.kvrec")))


def fail(text: str) -> None:
    """Fails the test: nothing should be reported."""
    raise AssertionError(text)


def test_more_than_is_read_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: every written record can be read. Method: a record larger than the reader's limit; it is reported once."""
    said: list[str] = []
    rotation = Rotation(tmp_path, HEADER, 2**20, said.append)
    rotation.append(LIFE[0])
    monkeypatch.setattr(recordings, "FRAME_BYTES_MAX", 1000)
    rotation.append([Arrived(0, 20, 20, True, [bytes(16)] * 100)])
    assert [1, 1] == [rotation.lost, len(said)]
    assert "at most 1000 are read" in said[0]
    assert [CHECKPOINT] == read(rotation.written[0])[0]


@pytest.mark.parametrize(
    ("field", "value"),
    [("segment", -1), ("segment", 2**31 + 1), ("first_record", -1), ("first_record", 2**63), ("engine_index", -1),
     ("started_unix_ms", 2**60), ("started_unix_ms", -1), ("engine", "e" * 300), ("scheduler", "s" * 300)],
)  # fmt: skip
def test_a_header_out_of_range_is_rejected(tmp_path: Path, field: str, value: int | str) -> None:
    """Goal: input from outside is bounded. Method: each field beyond its range; and within, as the control."""
    path = tmp_path / "a.kvrec"
    path.write_bytes(recordings.beginning(evolve(HEADER, started_unix_ms=2**48, first_record=2**62)))
    assert 2**48 == open_recording(path).header.started_unix_ms
    path.write_bytes(recordings.beginning(evolve(HEADER, **{field: value})))  # type: ignore[arg-type]  # of any field
    with pytest.raises(UsageError, match=f"a.kvrec: header: {field} "):
        open_recording(path)
