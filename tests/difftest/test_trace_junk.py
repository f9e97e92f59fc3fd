"""Trace files that are junk.

Goal: any file is rejected in one message, or can be replayed, compared and exported. Method: bytes of any kind, a sound
trace of a system that has everything with a wrong byte, and the same with other values.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvgate.adapters.reference import Reference
from kvgate.cli.replay import where_the_reference_changed
from kvgate.gate.regression_test import regression_test
from kvgate.gate.trace_codec import Trace, trace_of, write
from kvgate.kernel.errors import UsageError
from kvgate.levels.manager import DETECTORS, MANAGER, Bench, run
from kvgate.levels.registry import read
from kvreference.attention import Kind
from kvreference.content import Keys, Media
from kvreference.geometry import Geometry, Group
from kvreference.mamba import StateMode
from kvreference.operations import Admit, Arrive, Dispatch, Finish, Run, Sample, Schedule, TakeEvents, Transferred
from kvreference.settings import Settings

CASE = MANAGER.case(
    Settings(
        Geometry(
            (
                Group(Kind.FULL, 4, lookahead=True),
                Group(Kind.SLIDING_WINDOW, 2, 6),
                Group(Kind.MAMBA, 4, states=StateMode.ALL, draft_states=2),
                Group(Kind.FULL, 8, compress_ratio=2, unit_tokens=4),
            )
        ),
        blocks=40,
        drafts_max=2,
        retention_interval_tokens=4,
        scratch_first=True,
        pin_drop_blocks_min=1,
    ),
    (
        Arrive(0, (Run(0, 9), Run(50, 2)), Keys("salt", "adapter", (Media("cat", 1, 2),))),
        Admit(0, 64),
        Dispatch(),
        Sample(0, 0, 70, 2),
        Schedule(0, 3),
        Arrive(1, (Run(0, 13),)),
        Admit(1, 64, external_tokens=3, loads=True),
        Dispatch(),
        Finish(0, sends=True),
        Transferred(1, succeeded=True),
        TakeEvents(),
    ),
    model="four groups",
    preset="tiny",
    seed=7,
)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that every example overwrites."""
    return tmp_path_factory.mktemp("traces") / "trace.jsonl"


@pytest.fixture(scope="module")
def sound(path: Path) -> bytes:
    """A trace in order."""
    write(trace_of(CASE, None, "reference", "1", DETECTORS), path)
    assert CASE.operations == read(path).operations
    return path.read_bytes()


def attempt(path: Path, content: bytes) -> Trace | None:
    """The trace that ``content`` is, or None if it is rejected; any other exception fails the test."""
    path.write_bytes(content)
    try:
        return read(path)
    except UsageError as error:
        message = str(error)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return None


many = settings(
    max_examples=700, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
)


@many
@given(content=st.binary(max_size=200))
def test_junk_is_rejected(content: bytes, path: Path, sound: bytes) -> None:
    """Bytes of any kind; after a sound header they are rejected as well, unless there are none."""
    assert attempt(path, content) is None
    header = sound.splitlines(keepends=True)[0]
    assert (attempt(path, header + content) is None) == bool(content)


def test_a_file_with_a_wrong_byte_is_read_or_rejected(path: Path, sound: bytes) -> None:
    """As a bad disk or a bad editor leaves it: both outcomes are met often."""
    outcomes: Counter[bool] = Counter()

    @many
    @given(position=st.integers(0, 5000), byte=st.integers(48, 57) | st.integers(0, 255))
    def check(position: int, byte: int) -> None:
        content = bytearray(sound)
        content[position % len(content)] = byte
        outcomes[attempt(path, bytes(content)) is None] += 1

    check()
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


@pytest.mark.ci
def test_a_file_with_other_values_is_rejected_or_can_be_replayed(path: Path, sound: bytes) -> None:
    """Any value in any place: what is let through can be run, compared and written down as a test."""
    outcomes: Counter[bool] = Counter()

    @many
    @given(st.data())
    def check(data: st.DataObject) -> None:
        documents = [json.loads(line) for line in sound.splitlines()]
        for _ in range(data.draw(st.integers(1, 3))):
            number = data.draw(st.integers(0, len(documents) - 1))
            *outer, last = data.draw(st.sampled_from(places(documents[number])))
            holder = documents[number]
            for key in outer:
                holder = holder[key]
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

    check()
    assert min(outcomes[True], outcomes[False]) > 20
