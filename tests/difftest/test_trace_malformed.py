"""Trace files that are not what they should be.

Goal: a file from anywhere either is a trace or ends in one message that names the line. Nothing else is ever raised,
and no limit is exceeded before it is checked. Method: every kind of malformation that has a name; the file that all of
them are made from is the control. ``test_trace_junk`` tries nameless ones by the thousand.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvgate.gate.trace_codec import trace_of, write
from kvgate.kernel import trace_lines
from kvgate.kernel.errors import UsageError
from kvgate.levels.manager import DETECTORS, MANAGER
from kvgate.levels.registry import read
from kvreference.attention import Kind
from kvreference.content import Keys, Media
from kvreference.geometry import Geometry, Group
from kvreference.mamba import StateMode
from kvreference.operations import (
    Admit,
    Arrive,
    Dispatch,
    Evict,
    Finish,
    Operation,
    Run,
    Sample,
    Schedule,
    TakeEvents,
    Transferred,
)
from kvreference.settings import Settings

SETTINGS = Settings(
    Geometry(
        (
            Group(Kind.FULL, 4, lookahead=True),
            Group(Kind.SLIDING_WINDOW, 2, 6),
            Group(Kind.MAMBA, 4, states=StateMode.ALL, draft_states=2),
            Group(Kind.FULL, 4, compress_ratio=2),
        )
    ),
    blocks=30,
    drafts_max=2,
    retention_interval_tokens=4,
    scratch_first=True,
    pin_drop_blocks_min=1,
)
OPERATIONS: tuple[Operation, ...] = (
    Arrive(0, (Run(0, 9), Run(50, 2)), Keys("salt", "adapter", (Media("cat", 1, 2),))),
    Admit(0, 64),
    Dispatch(),
    Sample(0, 0, 70, 2),
    Schedule(0, 3),
    Evict(2),
    Arrive(1, (Run(0, 5),)),
    Admit(1, 64, external_tokens=3, loads=True),
    Dispatch(),
    Finish(0, sends=True),
    Transferred(1, succeeded=False),
    TakeEvents(),
)
CASE = MANAGER.case(SETTINGS, OPERATIONS, model="four groups", preset="tiny", seed=7)
LAST = len(OPERATIONS) + 1
"""The last line of the file."""

Document = dict[str, Any]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that every example overwrites."""
    return tmp_path_factory.mktemp("traces") / "trace.jsonl"


@pytest.fixture(scope="module")
def sound(path: Path) -> bytes:
    """A trace in order."""
    write(trace_of(CASE, None, "reference", "1", DETECTORS), path)
    return path.read_bytes()


def message(path: Path, content: bytes) -> str:
    """The message for ``content``: one line that starts with the path, which is left out here."""
    path.write_bytes(content)
    with pytest.raises(UsageError) as error:
        read(path)
    wording = str(error.value)
    assert wording.startswith(f"{path}: ")
    return wording.removeprefix(f"{path}: ")


def edited(content: bytes, line: int, edit: Callable[[Document], object]) -> bytes:
    """``content`` with one line, counted from 1, changed by ``edit``."""
    lines = content.splitlines()
    document = json.loads(lines[line - 1])
    edit(document)
    lines[line - 1] = json.dumps(document).encode()
    return b"\n".join(lines) + b"\n"


def test_the_file_that_all_are_made_from_is_a_trace(path: Path, sound: bytes) -> None:
    """The control: reading and writing it changes nothing, nor does editing nothing."""
    path.write_bytes(edited(sound, 1, lambda _document: None))
    assert OPERATIONS == read(path).operations


RAW: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda _: b"", "empty; a trace starts with a header"),
    "a newline": (lambda _: b"\n", "line 1: not JSON"),
    "binary": (lambda _: bytes(range(256)) * 4 + b"\n", "line 1: not JSON"),
    "no newline at the end": (lambda sound: sound[:-1], f"line {LAST}: cut off"),
    "cut in the middle": (lambda sound: sound[:-20], f"line {LAST}: cut off"),
    "cut within the header": (lambda sound: sound[:50] + b"\n", "line 1: not JSON"),
    "an empty line": (lambda sound: sound.replace(b"\n", b"\n\n", 1), "line 2: not JSON"),
    "a list": (lambda sound: sound + b"[]\n", f"line {LAST + 1}: not an object"),
    "a number": (lambda sound: sound + b"7\n", f"line {LAST + 1}: not an object"),
    "nested too deeply": (
        lambda sound: sound + b"[" * 100_000 + b"\n",
        f"line {LAST + 1}: not JSON: maximum recursion",
    ),
    "a line of 10 MB": (
        lambda sound: sound + b" " * 10_000_000 + b"\n",
        f"line {LAST + 1}: 10000000 bytes, at most 1048576",
    ),
    "a header of 10 MB": (lambda _: b" " * 10_000_000 + b"\n", "line 1: 10000000 bytes, at most 1048576"),
    "too many lines": (lambda sound: sound + b"\n" * trace_lines.OPERATIONS_MAX, "more than 200000 operations"),
    "not UTF-8": (lambda sound: sound.replace(b"tiny", b"t\xffny"), "line 1: not JSON"),
    "a number without end": (
        lambda sound: sound + b'{"block": ' + b"9" * 10_000 + b"}\n",
        f"line {LAST + 1}: not JSON",
    ),
}


@pytest.mark.parametrize(("spoil", "expected"), RAW.values(), ids=RAW)
def test_a_spoiled_file_is_rejected(spoil: Callable[[bytes], bytes], expected: str, path: Path, sound: bytes) -> None:
    """Text that cannot be a line of JSON."""
    wording = message(path, spoil(sound))
    assert expected == wording[: len(expected)]


def deep(document: Document, *keys: str | int) -> Any:
    """The values deep inside a document."""
    found: Any = document
    for key in keys:
        found = found[key]
    return found


NO_TRACE = 'not the trace of a block manager: "format" has to be "kvgate-trace", and "level" "blocks"'
HEADER: dict[str, tuple[Callable[[Document], object], str]] = {
    "not a trace": (lambda d: d.update(format="kvgate-verdict"), f"line 1: {NO_TRACE}"),
    "no format": (lambda d: d.pop("format"), f"line 1: {NO_TRACE}"),
    "no level": (lambda d: d.pop("level"), "line 1: version 5; this kvgate reads 1 to 5"),
    "an unknown level": (lambda d: d.update(level="kernel"), f"line 1: {NO_TRACE}"),
    "a level before it had one": (lambda d: d.update(version=4), "line 1: version 4; this kvgate reads 1 to 5"),
    "a later version": (lambda d: d.update(version=6), "line 1: version 6; this kvgate reads 1 to 5"),
    "an earlier version": (lambda d: d.update(version=0), "line 1: version 0; this kvgate reads 1 to 5"),
    "version in words": (lambda d: d.update(version="1"), "line 1: version '1'; this kvgate reads 1 to 5"),
    "version with a point": (lambda d: d.update(version=2.0), "line 1: version 2.0; this kvgate reads 1 to 5"),
    "version that is true": (lambda d: d.update(version=True), "line 1: version True; this kvgate reads 1 to 5"),
    "versions": (lambda d: d.update(version=[1, 2]), "line 1: version [1, 2]; this kvgate reads 1 to 5"),
    "no version": (lambda d: d.pop("version"), "line 1: version None"),
    "no settings": (lambda d: d.pop("settings"), "line 1: required field missing"),
    "settings of null": (lambda d: d.update(settings=None), "line 1: "),
    "unknown field": (lambda d: d.update(colour="red"), "line 1: extra fields found (colour)"),
    "unknown setting": (lambda d: d["settings"].update(colour="red"), "line 1: extra fields found (colour)"),
    "seed in words": (lambda d: d.update(seed="7"), "line 1: expected int, got '7'"),
    "one block": (lambda d: d["settings"].update(blocks=1), "line 1: "),
    "blocks in words": (lambda d: d["settings"].update(blocks="30"), "line 1: expected int, got '30'"),
    "a half block": (lambda d: d["settings"].update(blocks=30.5), "line 1: expected int, got 30.5"),
    "negative limit": (lambda d: d["settings"].update(drafts_max=-1), "line 1: "),
    "no groups": (lambda d: d["settings"]["geometry"].update(groups=[]), "line 1: "),
    "unknown kind": (lambda d: deep(d, "settings", "geometry", "groups", 0).update(kind="mamba"), "line 1: "),
    "no window": (lambda d: deep(d, "settings", "geometry", "groups", 1).update(window_tokens=None), "line 1: "),
    "detector by name": (lambda d: d.update(detectors="lockstep"), "line 1: "),
    "no detector": (lambda d: d.update(detectors=[]), 'line 1: "detectors" are one or more of lockstep, '),
    "unknown detector": (lambda d: d.update(detectors=["oracle"]), 'line 1: "detectors" are one or more of lockstep, '),
    "violates nothing": (lambda d: d.update(violates={}), "line 1: required field missing"),
    "too many blocks": (lambda d: d["settings"].update(blocks=2_000_001), "line 1: at most 2000000 blocks"),
    "too long requests": (lambda d: d["settings"].update(tokens_max=20_000_001), "line 1: at most 2000000 blocks"),
    "more drafts than states": (lambda d: d["settings"].update(drafts_max=3), "line 1: 3 drafts in flight need as"),
    "too many drafts": (
        lambda d: (d["settings"].update(drafts_max=10_001), deep(d, "settings", "geometry", "groups").pop(2)),
        "line 1: at most 10000 drafts",
    ),
    "an interval that is not a multiple": (
        lambda d: d["settings"].update(retention_interval_tokens=6),
        "line 1: a retention interval of 6 tokens is not a multiple of the scheduler block size, 4 tokens",
    ),
    "a negative interval": (lambda d: d["settings"].update(retention_interval_tokens=-4), "line 1: "),
    "pins of no blocks": (lambda d: d["settings"].update(pin_drop_blocks_min=0), "line 1: "),
    "scratch in words": (lambda d: d["settings"].update(scratch_first="yes"), "line 1: expected bool, got 'yes'"),
    "unknown mode of states": (
        lambda d: deep(d, "settings", "geometry", "groups", 2).update(states="some"),
        "line 1: 'some' is not a valid StateMode",
    ),
    "a unit that cuts a slot": (
        lambda d: deep(d, "settings", "geometry", "groups", 3).update(unit_tokens=1),
        "line 1: a unit of 1 tokens must divide the block and be whole slots",
    ),
    "too many states for drafts": (
        lambda d: deep(d, "settings", "geometry", "groups", 2).update(draft_states=10_001),
        "line 1: at most 10000 drafts",
    ),
    "too many groups": (
        lambda d: deep(d, "settings", "geometry", "groups").extend(deep(d, "settings", "geometry", "groups")[:2] * 127),
        "line 1: 258 groups, at most 256 are followed",
    ),
    "too long blocks": (
        lambda d: (
            deep(d, "settings").update(retention_interval_tokens=None),
            deep(d, "settings", "geometry", "groups", 0).update(block_size_tokens=20_000_001),
        ),
        "line 1: at most 2000000 blocks",
    ),
}


@pytest.mark.parametrize(("edit", "expected"), HEADER.values(), ids=HEADER)
def test_a_bad_header_is_rejected(edit: Callable[[Document], object], expected: str, path: Path, sound: bytes) -> None:
    """The first line says what the trace is of."""
    wording = message(path, edited(sound, 1, edit))
    assert expected == wording[: len(expected)]


LINES: dict[str, tuple[int, Callable[[Document], object], str]] = {
    "unknown operation": (3, lambda d: d.update(operation="Teleport"), "line 3: unknown operation 'Teleport'"),
    "an operation of no name": (3, lambda d: d.update(operation=["Admit"]), "line 3: unknown operation ['Admit']"),
    "no operation": (3, lambda d: d.pop("operation"), "line 3: unknown operation None"),
    "missing field": (3, lambda d: d.pop("tokens"), "line 3: required field missing"),
    "unknown field": (3, lambda d: d.update(colour="red"), "line 3: extra fields found (colour)"),
    "another operation's field": (LAST, lambda d: d.update(request=0), f"line {LAST}: extra fields found (request)"),
    "number in words": (3, lambda d: d.update(tokens="64"), "line 3: expected int, got '64'"),
    "number with a point": (3, lambda d: d.update(tokens=64.0), "line 3: expected int, got 64.0"),
    "number that is true": (3, lambda d: d.update(tokens=True), "line 3: expected int, got True"),
    "number that is none": (3, lambda d: d.update(tokens=None), "line 3: expected int, got None"),
    "negative number": (3, lambda d: d.update(request=-1), "line 3: "),
    "no tokens": (3, lambda d: d.update(tokens=0), "line 3: "),
    "negative block": (7, lambda d: d.update(block=-1), "line 7: "),
    "empty prompt": (2, lambda d: d.update(prompt=[]), "line 2: a prompt needs at least one token"),
    "prompt in words": (2, lambda d: d.update(prompt="hello"), "line 2: "),
    "run of nothing": (2, lambda d: d["prompt"][0].update(length=0), "line 2: "),
    "truth in words": (2, lambda d: d.update(reads_cache="yes"), "line 2: expected bool, got 'yes'"),
    "empty salt": (2, lambda d: d["keys"].update(salt=""), "line 2: "),
    "salt that is a number": (2, lambda d: d["keys"].update(salt=7), "line 2: expected str, got 7"),
    "negative external tokens": (9, lambda d: d.update(external_tokens=-1), "line 9: "),
    "external tokens that are true": (9, lambda d: d.update(external_tokens=True), "line 9: expected int, got True"),
    "a load in words": (9, lambda d: d.update(loads="later"), "line 9: expected bool, got 'later'"),
    "a success that is a number": (12, lambda d: d.update(succeeded=1), "line 12: expected bool, got 1"),
    "a dispatch of a request": (4, lambda d: d.update(request=0), "line 4: extra fields found (request)"),
    "media out of order": (
        2,
        lambda d: d["keys"].update(media=d["keys"]["media"] * 2),
        "line 2: multimodal items must be in order and must not overlap",
    ),
    "answer that is none": (3, lambda d: d.update(answer=None), "line 3: expected str, got None"),
    "digest that is a number": (3, lambda d: d.update(digest=7), "line 3: expected str, got 7"),
    "too many tokens": (
        2,
        lambda d: d["prompt"][0].update(length=20_000_000),
        "line 2: more than 20000000 prompt tokens in all",
    ),
}


@pytest.mark.parametrize(("number", "edit", "expected"), LINES.values(), ids=LINES)
def test_a_bad_line_is_rejected(
    number: int, edit: Callable[[Document], object], expected: str, path: Path, sound: bytes
) -> None:
    """By its number, and by what is wrong with it; on one line, however much was wrong."""
    wording = message(path, edited(sound, number, edit))
    assert expected == wording[: len(expected)]
    assert "\n" not in wording


def test_tokens_are_counted_over_the_whole_trace(path: Path, sound: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many prompts take as much memory as a long one."""
    header, arrival, *_ = sound.splitlines(keepends=True)
    monkeypatch.setattr(trace_lines, "TOKENS_MAX", 11 * 100)
    path.write_bytes(header + arrival * 100)
    assert 100 == len(read(path).lines)
    assert "line 102: more than 1100 prompt tokens in all" == message(path, header + arrival * 101)


def test_pieces_of_content_are_counted(path: Path, sound: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A prompt in pieces of two tokens is remembered in as many; as many as are kept is the control."""
    monkeypatch.setattr(trace_lines, "GRAINS_MAX", 5)
    header, arrival, *_ = sound.splitlines(keepends=True)
    path.write_bytes(header + arrival)
    assert 1 == len(read(path).lines)
    monkeypatch.setattr(trace_lines, "GRAINS_MAX", 4)
    wording = "line 2: 11 prompt tokens in pieces of 2: at most 4 pieces are kept"
    assert wording == message(path, header + arrival)


def test_comparing_all_blocks_is_bounded(path: Path, sound: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few lines on many blocks take as long as many on a few; as much as is compared is the control."""
    blocks, lines = json.loads(sound.splitlines()[0])["settings"]["blocks"], sound.count(b"\n")
    monkeypatch.setattr(trace_lines, "WORK_MAX", blocks * lines)
    path.write_bytes(sound)
    assert OPERATIONS == read(path).operations
    monkeypatch.setattr(trace_lines, "WORK_MAX", blocks * lines - 1)
    assert f"{lines - 1} operations on {blocks} blocks: all blocks" in message(path, sound)


def test_a_file_is_read_no_further_than_its_limit(path: Path, sound: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exactly as long as the limit is the control."""
    monkeypatch.setattr(trace_lines, "FILE_BYTES_MAX", len(sound))
    path.write_bytes(sound)
    assert OPERATIONS == read(path).operations
    assert f"larger than {len(sound)} bytes" == message(path, sound + b"\n")


def test_a_file_that_does_not_tell_its_size_is_read_no_further_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe reports no size, and continues for as long as its writer writes."""
    monkeypatch.setattr(trace_lines, "FILE_BYTES_MAX", 1000)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    def pour() -> None:
        with pipe.open("wb") as file:
            file.write(b"x" * 5000)

    writer = threading.Thread(target=pour)
    writer.start()
    with pytest.raises(UsageError, match="larger than 1000 bytes"):
        read(pipe)
    writer.join(10)


def test_what_cannot_be_read_is_rejected(tmp_path: Path) -> None:
    """In the words of the operating system."""
    with pytest.raises(UsageError, match=r"absent\.jsonl: cannot be read: No such file or directory"):
        read(tmp_path / "absent.jsonl")
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        read(tmp_path)
    with pytest.raises(UsageError, match="cannot be read: "):
        read(tmp_path / ("x" * 10_000))
