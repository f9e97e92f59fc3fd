"""Trace files: writing and reading again.

Goal: what is read is what was written, and a reader sees whether the reference still walks the same way. Method:
every operation with every kind of value goes through a file; digests are compared with those of other states.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import pytest
from attrs import evolve
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvgate.campaign import Lane, draw_case
from kvgate.case import Case
from kvgate.command.replay import where_the_reference_changed
from kvgate.difference import Difference, Divergence
from kvgate.generators import PRESETS, Generator
from kvgate.models import MODELS
from kvgate.trace import FORMAT, VERSION, Digests, Header, Line, Trace, Violated, annotated, read, trace_of, write
from kvreference.attention import Kind
from kvreference.content import Keys, Media
from kvreference.geometry import Geometry, Group
from kvreference.manager import Manager
from kvreference.operations import Admit, Arrive, Finish, Operation, Run
from kvreference.settings import Settings

SETTINGS = Settings(Geometry((Group(Kind.FULL, 4),)), blocks=16)
OPERATIONS: tuple[Operation, ...] = (Arrive(0, (Run(0, 9),)), Admit(0, 64), Finish(0))
CASE = Case(SETTINGS, OPERATIONS, "flash", "tiny", 7)
DIVERGENCE = Divergence(2, Finish(0), "lockstep", Difference("KV-OP-07", "free queue", "1", "2"))

numbers = st.integers(0, 10**30)
counts = st.integers(1, 10**6)
names = st.text(min_size=1)
media = st.lists(st.tuples(names, st.integers(0, 99), st.integers(1, 99)), max_size=3).map(
    lambda items: tuple(Media(name, 200 * index + offset, length) for index, (name, offset, length) in enumerate(items))
)
runs = st.lists(st.builds(Run, numbers, counts), min_size=1, max_size=3).map(tuple)
FIELDS = {
    "request": numbers,
    "prompt": runs,
    "keys": st.builds(Keys, st.none() | names, st.none() | names, media),
    "reads_cache": st.booleans(),
    "tokens": counts,
    "accepted": numbers,
    "token": numbers,
    "drafts": numbers,
    "block": numbers,
}


def operations_of(kind: type[Operation]) -> st.SearchStrategy[Operation]:
    """Any operation of one kind."""
    return st.builds(kind, **{each.name: FIELDS[each.name] for each in kind.__attrs_attrs__})


groups = st.one_of(
    st.builds(Group, st.just(Kind.FULL), st.integers(1, 999), lookahead=st.booleans()),
    st.builds(Group, st.just(Kind.SLIDING_WINDOW), st.integers(1, 999), st.integers(2, 10**9), st.booleans()),
)
settings_of_systems = st.builds(
    Settings,
    geometry=st.lists(groups, min_size=1, max_size=4).map(lambda found: Geometry(tuple(found))),
    blocks=st.integers(2, 2_000_000),
    tokens_max=st.integers(2, 20_000_000),
    chunk_tokens=st.integers(1, 10**9),
    requests_max=st.integers(1, 10**9),
    drafts_max=st.integers(0, 1000),
    caches=st.booleans(),
    full_sequence_must_fit=st.booleans(),
)
headers = st.builds(
    Header,
    format=st.just(FORMAT),
    version=st.just(VERSION),
    settings=settings_of_systems,
    model=st.text(),
    preset=st.text(),
    seed=st.integers(),
    system=st.text(),
    system_version=st.text(),
    detectors=st.sampled_from([("lockstep",), ("check", "leak"), ("lockstep", "check", "ghost", "leak")]),
    violates=st.none() | st.builds(Violated, st.text(), st.text(), st.text()),
)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that every example overwrites."""
    return tmp_path_factory.mktemp("traces") / "trace.jsonl"


@pytest.mark.parametrize("kind", get_args(Operation), ids=lambda kind: kind.__name__)
@settings(max_examples=40, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_every_operation_goes_through_a_file(kind: type[Operation], path: Path, data: st.DataObject) -> None:
    """With the header, the answer in words and the digest."""
    lines = data.draw(st.lists(st.builds(Line, operations_of(kind), st.text(), st.text()), max_size=3).map(tuple))
    trace = Trace(data.draw(headers), lines)
    write(trace, path)
    assert trace == read(path)


def test_a_trace_is_of_lines_that_a_person_can_read(tmp_path: Path) -> None:
    """One JSON object a line, in ASCII, whatever the names; the directory is made."""
    path = tmp_path / "a" / "b.jsonl"
    write(trace_of(evolve(CASE, model="模型"), DIVERGENCE, "stock", "0.20.2", ("lockstep",)), path)
    header, *lines = (json.loads(line) for line in path.read_text(encoding="ascii").splitlines())
    assert ("模型", "KV-OP-07") == (header["model"], header["violates"]["statement"])
    assert ["Arrive", "Admit", "Finish"] == [line["operation"] for line in lines]
    assert "granted, a hit of 0 tokens, new blocks by group: [1..3]" == lines[1]["answer"]


def test_a_trace_replaces_what_was_there(path: Path) -> None:
    """The second of two is all that remains."""
    write(Trace(trace_of(CASE, None, "s", "v", ("lockstep",)).header, ()), path)
    trace = trace_of(CASE, None, "s", "v", ("lockstep",))
    write(trace, path)
    assert trace == read(path)
    assert trace.header.violates is None
    assert OPERATIONS == trace.operations


def test_what_stands_for_no_operation_is_left_out() -> None:
    """What is written is what was performed."""
    lines = list(annotated(SETTINGS, (Finish(0), *OPERATIONS[:2], Finish(9))))
    assert list(OPERATIONS) == [line.operation for line in lines]


def test_a_digest_stands_for_a_state() -> None:
    """Equal for equal states, whatever led there; another after every operation that changes something."""
    case = draw_case(Generator(PRESETS["tiny"], MODELS["swa"].geometry), Lane(MODELS["swa"], "tiny"), "0", 0)
    lines = list(annotated(case.settings, case.operations))
    assert lines == list(annotated(case.settings, case.operations))
    assert len({line.digest for line in lines}) > len(lines) // 3
    empty = Digests().of(Manager(SETTINGS))
    moved = Manager(SETTINGS)
    moved.pool.free.append(moved.pool.free.pop())
    assert empty != Digests().of(moved)


def test_contents_are_part_of_a_digest() -> None:
    """Two requests in the same blocks, with other tokens than each other or with the same."""

    def digest(first: int) -> str:
        twice = (*OPERATIONS, Arrive(1, (Run(first, 9),)), Admit(1, 64))
        return list(annotated(SETTINGS, twice))[-1].digest

    assert digest(500) == digest(700) != digest(0)


def test_a_reference_that_changed_is_noticed() -> None:
    """By what it answers or where it stands; a trace without digests says nothing, and an unchanged one neither."""
    trace = trace_of(CASE, None, "s", "v", ("lockstep",))
    assert where_the_reference_changed(trace) is None
    other = evolve(trace.lines[1], answer="refused", digest="0")
    changed = evolve(trace, lines=(trace.lines[0], other, trace.lines[2]))
    assert (
        "operation 1: then refused; now granted, a hit of 0 tokens, new blocks by group: [1..3]"
        == where_the_reference_changed(changed)
    )
    bare = evolve(trace, lines=tuple(Line(line.operation) for line in trace.lines))
    assert where_the_reference_changed(bare) is None


def test_operations_that_are_not_legal_any_more_are_noticed() -> None:
    """They would be passed over without a word."""
    trace = trace_of(CASE, None, "s", "v", ("lockstep",))
    illegal = evolve(trace, lines=(*trace.lines, trace.lines[-1]))
    assert "1 of its operations are not legal any more" == where_the_reference_changed(illegal)
