"""Trace files that are not what they should be.

Goal: a file from anywhere either is a trace or ends in one message that names the line; nothing else is ever raised,
and no limit is passed before it is checked. Method: every way to be malformed that has a name, and thousands that have
none; the file that all of them are made from is the control.
"""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvgate import trace as traces
from kvgate.adapters.reference import Reference
from kvgate.case import Case
from kvgate.command.replay import where_the_reference_changed
from kvgate.errors import UsageError
from kvgate.regression_test import regression_test
from kvgate.runner import DETECTORS, Bench, run
from kvgate.trace import read, trace_of, write
from kvreference.attention import Kind
from kvreference.content import Keys, Media
from kvreference.geometry import Geometry, Group
from kvreference.operations import Admit, Arrive, Evict, Finish, Operation, Run, Sample, Schedule, TakeEvents
from kvreference.settings import Settings

SETTINGS = Settings(
    Geometry((Group(Kind.FULL, 4, lookahead=True), Group(Kind.SLIDING_WINDOW, 2, 6))), blocks=30, drafts_max=2
)
OPERATIONS: tuple[Operation, ...] = (
    Arrive(0, (Run(0, 9), Run(50, 2)), Keys("salt", "adapter", (Media("cat", 1, 2),))),
    Admit(0, 64),
    Sample(0, 0, 70, 2),
    Schedule(0, 3),
    Evict(2),
    Finish(0),
    TakeEvents(),
)
CASE = Case(SETTINGS, OPERATIONS, "two groups", "tiny", 7)

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
    """What reading ``content`` ends in: one line that starts with the path, which is left out here."""
    path.write_bytes(content)
    with pytest.raises(UsageError) as error:
        read(path)
    told = str(error.value)
    assert told.startswith(f"{path}: ")
    return told.removeprefix(f"{path}: ")


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
    "no newline at the end": (lambda sound: sound[:-1], "line 8: cut off"),
    "cut in the middle": (lambda sound: sound[:-20], "line 8: cut off"),
    "cut within the header": (lambda sound: sound[:50] + b"\n", "line 1: not JSON"),
    "an empty line": (lambda sound: sound.replace(b"\n", b"\n\n", 1), "line 2: not JSON"),
    "a list": (lambda sound: sound + b"[]\n", "line 9: not an object"),
    "a number": (lambda sound: sound + b"7\n", "line 9: not an object"),
    "nested too deeply": (lambda sound: sound + b"[" * 100_000 + b"\n", "line 9: not JSON: maximum recursion"),
    "a line of 10 MB": (lambda sound: sound + b" " * 10_000_000 + b"\n", "line 9: 10000000 bytes, at most 1048576"),
    "a header of 10 MB": (lambda _: b" " * 10_000_000 + b"\n", "line 1: 10000000 bytes, at most 1048576"),
    "too many lines": (lambda sound: sound + b"\n" * traces.OPERATIONS_MAX, "more than 200000 operations"),
    "not UTF-8": (lambda sound: sound.replace(b"tiny", b"t\xffny"), "line 1: not JSON"),
    "a number without end": (lambda sound: sound + b'{"block": ' + b"9" * 10_000 + b"}\n", "line 9: not JSON"),
}


@pytest.mark.parametrize(("spoil", "expected"), RAW.values(), ids=RAW)
def test_a_spoiled_file_is_refused(spoil: Callable[[bytes], bytes], expected: str, path: Path, sound: bytes) -> None:
    """What cannot be a line of JSON."""
    told = message(path, spoil(sound))
    assert expected == told[: len(expected)]


def deep(document: Document, *keys: str | int) -> Any:
    """What lies deep inside a document."""
    found: Any = document
    for key in keys:
        found = found[key]
    return found


HEADER: dict[str, tuple[Callable[[Document], object], str]] = {
    "not a trace": (lambda d: d.update(format="kvgate-verdict"), 'line 1: not a trace: "format" is not "kvgate-trace"'),
    "no format": (lambda d: d.pop("format"), 'line 1: not a trace: "format" is not "kvgate-trace"'),
    "another version": (lambda d: d.update(version=2), "line 1: version 2; this kvgate reads 1"),
    "version in words": (lambda d: d.update(version="1"), "line 1: version '1'; this kvgate reads 1"),
    "version that is true": (lambda d: d.update(version=True), "line 1: expected int, got True"),
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
    "too many drafts": (lambda d: d["settings"].update(drafts_max=20_000_001), "line 1: at most 2000000 blocks"),
    "too long blocks": (
        lambda d: deep(d, "settings", "geometry", "groups", 0).update(block_size_tokens=20_000_001),
        "line 1: at most 2000000 blocks",
    ),
}


@pytest.mark.parametrize(("edit", "expected"), HEADER.values(), ids=HEADER)
def test_a_bad_header_is_refused(edit: Callable[[Document], object], expected: str, path: Path, sound: bytes) -> None:
    """The first line says what the trace is of."""
    told = message(path, edited(sound, 1, edit))
    assert expected == told[: len(expected)]


LINES: dict[str, tuple[int, Callable[[Document], object], str]] = {
    "unknown operation": (3, lambda d: d.update(operation="Teleport"), "line 3: unknown operation 'Teleport'"),
    "an operation of no name": (3, lambda d: d.update(operation=["Admit"]), "line 3: unknown operation ['Admit']"),
    "no operation": (3, lambda d: d.pop("operation"), "line 3: unknown operation None"),
    "missing field": (3, lambda d: d.pop("tokens"), "line 3: required field missing"),
    "unknown field": (3, lambda d: d.update(colour="red"), "line 3: extra fields found (colour)"),
    "another operation's field": (8, lambda d: d.update(request=0), "line 8: extra fields found (request)"),
    "number in words": (3, lambda d: d.update(tokens="64"), "line 3: expected int, got '64'"),
    "number with a point": (3, lambda d: d.update(tokens=64.0), "line 3: expected int, got 64.0"),
    "number that is true": (3, lambda d: d.update(tokens=True), "line 3: expected int, got True"),
    "number that is none": (3, lambda d: d.update(tokens=None), "line 3: expected int, got None"),
    "negative number": (3, lambda d: d.update(request=-1), "line 3: "),
    "no tokens": (3, lambda d: d.update(tokens=0), "line 3: "),
    "negative block": (6, lambda d: d.update(block=-1), "line 6: "),
    "empty prompt": (2, lambda d: d.update(prompt=[]), "line 2: a prompt needs at least one token"),
    "prompt in words": (2, lambda d: d.update(prompt="hello"), "line 2: "),
    "run of nothing": (2, lambda d: d["prompt"][0].update(length=0), "line 2: "),
    "truth in words": (2, lambda d: d.update(reads_cache="yes"), "line 2: expected bool, got 'yes'"),
    "empty salt": (2, lambda d: d["keys"].update(salt=""), "line 2: "),
    "salt that is a number": (2, lambda d: d["keys"].update(salt=7), "line 2: expected str, got 7"),
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
def test_a_bad_line_is_refused(
    number: int, edit: Callable[[Document], object], expected: str, path: Path, sound: bytes
) -> None:
    """By its number, and by what is wrong with it; on one line, however much was wrong."""
    told = message(path, edited(sound, number, edit))
    assert expected == told[: len(expected)]
    assert "\n" not in told


def test_tokens_are_counted_over_the_whole_trace(path: Path, sound: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many prompts take as much memory as a long one."""
    header, arrival, *_ = sound.splitlines(keepends=True)
    monkeypatch.setattr(traces, "TOKENS_MAX", 11 * 100)
    path.write_bytes(header + arrival * 100)
    assert 100 == len(read(path).lines)
    assert "line 102: more than 1100 prompt tokens in all" == message(path, header + arrival * 101)


def test_a_file_is_read_no_further_than_its_limit(path: Path, sound: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exactly as long as the limit is the control."""
    monkeypatch.setattr(traces, "FILE_BYTES_MAX", len(sound))
    path.write_bytes(sound)
    assert OPERATIONS == read(path).operations
    assert f"larger than {len(sound)} bytes" == message(path, sound + b"\n")


def test_a_file_that_does_not_tell_its_size_is_read_no_further_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe says that it holds nothing, and goes on for as long as somebody writes."""
    monkeypatch.setattr(traces, "FILE_BYTES_MAX", 1000)
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


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    """In the words of the operating system."""
    with pytest.raises(UsageError, match=r"absent\.jsonl: cannot be read: No such file or directory"):
        read(tmp_path / "absent.jsonl")
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        read(tmp_path)
    with pytest.raises(UsageError, match="cannot be read: "):
        read(tmp_path / ("x" * 10_000))


def attempt(path: Path, content: bytes) -> traces.Trace | None:
    """The trace that ``content`` is, or None if it is refused; whatever else is raised fails the test."""
    path.write_bytes(content)
    try:
        return read(path)
    except UsageError as error:
        told = str(error)
    assert told.startswith(f"{path}: ")
    assert "\n" not in told
    return None


many = settings(
    max_examples=700, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
)


@many
@given(content=st.binary(max_size=200))
def test_junk_is_refused(content: bytes, path: Path, sound: bytes) -> None:
    """Bytes of any kind; behind a sound header they are refused as well, unless there are none."""
    assert attempt(path, content) is None
    header = sound.splitlines(keepends=True)[0]
    assert (attempt(path, header + content) is None) == bool(content)


def test_a_file_with_wrong_bytes_is_read_or_refused(path: Path, sound: bytes) -> None:
    """As a bad disk or a bad editor leaves it: both happen often."""
    outcomes: Counter[bool] = Counter()

    @many
    @given(st.lists(st.tuples(st.integers(0, 5000), st.integers(48, 57) | st.integers(0, 255)), min_size=1, max_size=2))
    def judge(edits: list[tuple[int, int]]) -> None:
        content = bytearray(sound)
        for position, byte in edits:
            content[position % len(content)] = byte
        outcomes[attempt(path, bytes(content)) is None] += 1

    judge()
    assert min(outcomes[True], outcomes[False]) > 20


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 60)
    | st.floats(-9, 9)
    | st.text(max_size=3)
    | st.sampled_from(DETECTORS),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


def places(document: Any, place: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Where something stands in a document."""
    found = [place] if place else []
    if isinstance(document, (dict, list)):
        for key in document if isinstance(document, dict) else range(len(document)):
            found += places(document[key], (*place, key))
    return found


def test_a_file_with_other_values_is_refused_or_can_be_replayed(path: Path, sound: bytes) -> None:
    """Any value in any place: what is let through can be run, compared and written down as a test."""
    outcomes: Counter[bool] = Counter()

    @many
    @given(st.data())
    def judge(data: st.DataObject) -> None:
        documents = [json.loads(line) for line in sound.splitlines()]
        for _ in range(data.draw(st.integers(1, 3))):
            number = data.draw(st.integers(0, len(documents) - 1))
            *outer, last = data.draw(st.sampled_from(places(documents[number])))
            holder = deep(documents[number], *outer)
            # Mostly a number for a number, or hardly anything would be let through.
            exact = type(holder[last]) is int and data.draw(st.integers(0, 9)) > 0
            holder[last] = data.draw(st.integers(0, 60) if exact else values)
        trace = attempt(path, b"".join(json.dumps(document).encode() + b"\n" for document in documents))
        outcomes[trace is None] += 1
        if trace is not None:
            where_the_reference_changed(trace)
            _, divergences = run(Bench(Reference, trace.header.detectors), trace.header.settings, trace.operations)
            assert [] == divergences
            compile(regression_test(trace, trace.header.system), "test", "exec")

    judge()
    assert min(outcomes[True], outcomes[False]) > 20
