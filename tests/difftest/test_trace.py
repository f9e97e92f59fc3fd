"""Trace files: writing and reading again.

Goal: what is read is what was written, and a reader sees whether the reference still behaves the same. Method: every
operation with every kind of value goes through a file; digests are compared with those of other states.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import pytest
from attrs import evolve, fields
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvgate.cli.replay import where_the_reference_changed
from kvgate.gate.case_runner import Lane
from kvgate.gate.generator import PRESETS, Generator
from kvgate.gate.trace_codec import (
    Digests,
    Header,
    Line,
    Trace,
    Violated,
    annotated,
    render,
    trace_of,
    write,
)
from kvgate.kernel.difference import Difference, Divergence
from kvgate.kernel.models import MODELS
from kvgate.levels.manager import MANAGER, draw_case
from kvgate.levels.registry import read
from kvreference.attention import Kind
from kvreference.block_pool import Pinned
from kvreference.content import Keys, Media
from kvreference.geometry import Geometry, Group
from kvreference.mamba import StateMode
from kvreference.manager import Manager
from kvreference.operations import Admit, Arrive, Dispatch, Finish, Operation, Run
from kvreference.settings import Settings
from kvreference.snapshot import Snapshot

SETTINGS = Settings(Geometry((Group(Kind.FULL, 4),)), blocks=16)
OPERATIONS: tuple[Operation, ...] = (Arrive(0, (Run(0, 9),)), Admit(0, 64), Finish(0))
CASE = MANAGER.case(SETTINGS, OPERATIONS, model="flash", preset="tiny", seed=7)
DIVERGENCE = Divergence(2, Finish(0), "lockstep", Difference("KV-OP-07", "free queue", "1", "2"))

numbers = st.integers(0, 10**30)
counts = st.integers(1, 10**6)
names = st.text(min_size=1)
media = st.lists(st.tuples(names, st.integers(0, 99), st.integers(1, 99)), max_size=3).map(
    lambda items: tuple(Media(name, 200 * index + offset, length) for index, (name, offset, length) in enumerate(items))
)
runs = st.lists(st.builds(Run, numbers, st.integers(1, 10**5)), min_size=1, max_size=3).map(tuple)
FIELDS = {
    "request": numbers,
    "prompt": runs,
    "media": media,
    "keys": st.builds(Keys, st.none() | names, st.none() | names, media),
    "reads_cache": st.booleans(),
    "tokens": counts,
    "accepted": numbers,
    "token": numbers,
    "drafts": numbers,
    "beyond": numbers,
    "block": numbers,
    "external_tokens": numbers,
    "loads": st.booleans(),
    "sends": st.booleans(),
    "succeeded": st.booleans(),
}


def operations_of(kind: type[Operation]) -> st.SearchStrategy[Operation]:
    """Any operation of one kind."""
    return st.builds(kind, **{each.name: FIELDS[each.name] for each in kind.__attrs_attrs__})


def compressed(ratio: int, units: int, unit: int, lookahead: bool, whole_slots: bool) -> Group:
    """A group with whole slots and whole units of them, of which hits may or may not use one."""
    size = ratio * units * unit
    unit_tokens = ratio * unit if units % 2 else None
    return Group(Kind.FULL, size, None, lookahead, ratio, unit_tokens, whole_slots=whole_slots)


groups = st.one_of(
    st.builds(Group, st.just(Kind.FULL), st.integers(1, 999), lookahead=st.booleans()),
    st.builds(compressed, st.integers(1, 9), st.integers(1, 9), st.integers(1, 9), st.booleans(), st.booleans()),
    st.builds(
        Group,
        st.sampled_from([Kind.SLIDING_WINDOW, Kind.CHUNKED_LOCAL]),
        st.integers(1, 999),
        st.integers(2, 10**9),
        st.booleans(),
    ),
    st.builds(
        Group,
        st.just(Kind.MAMBA),
        st.integers(20, 999),
        states=st.sampled_from(StateMode),
        draft_states=st.integers(0, 9),
    ),
)


@st.composite
def settings_of_systems(draw: st.DrawFn) -> Settings:
    """Settings of any system, as far as they can be together."""
    drawn = draw(st.lists(groups, min_size=1, max_size=4))
    # All groups that keep states at block ends have blocks of one size.
    sizes = [group.block_size_tokens for group in drawn if group.attention.stops_at_block_ends]
    fitting = (g for g in drawn if not g.attention.stops_at_block_ends or g.block_size_tokens == sizes[0])
    geometry = Geometry(tuple(fitting), draw(st.integers(0, 1)))
    caches = draw(st.booleans()) and all(group.attention.serves_hits for group in geometry.groups)
    is_sparse = any(group.is_sparse for group in geometry.groups)
    states = [group.draft_states for group in geometry.groups if group.keeps_states]
    intervals = st.integers(0, 1000).map(lambda number: number * geometry.alignment_tokens)
    return Settings(
        geometry=geometry,
        blocks=draw(st.integers(2, 2_000_000)),
        tokens_max=draw(st.integers(2, 20_000_000)),
        chunk_tokens=draw(st.integers(1, 10**9)),
        requests_max=draw(st.integers(1, 10**9)),
        drafts_max=draw(st.integers(0, min(states, default=1000))),
        caches=caches,
        tells_events=draw(st.booleans()),
        full_sequence_must_fit=draw(st.booleans()),
        retention_interval_tokens=draw(st.none() | intervals) if is_sparse else None,
        scratch_first=draw(st.booleans()),
        pin_drop_blocks_min=draw(st.none() | st.integers(1, 10**9)),
        partial_hit_tokens_min=draw(st.integers(0, 10**9)),
        draft_model=draw(st.booleans()),
        keeps_junctions=draw(st.booleans()),
        steps_in_flight_max=draw(st.integers(1, 4)),
        loads_out_of_turn=draw(st.booleans()),
    )


headers = st.builds(
    Header,
    settings=settings_of_systems(),
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
    """With the header, the answer as text and the digest."""
    lines = data.draw(st.lists(st.builds(Line, operations_of(kind), st.text(), st.text()), max_size=3).map(tuple))
    trace = Trace(MANAGER, data.draw(headers), lines)
    write(trace, path)
    assert trace == read(path)


def test_every_setting_and_every_field_of_an_operation_goes_through_a_file() -> None:
    """One that is added needs a strategy above; and what is written is of the latest version."""
    drawn: set[str] = set()

    @settings(max_examples=200, derandomize=True, database=None, deadline=None)
    @given(settings_of_systems())
    def note(found: Settings) -> None:
        default = Settings(found.geometry, blocks=2, caches=False)
        drawn.update(each.name for each in fields(Settings) if getattr(found, each.name) != getattr(default, each.name))
        drawn.update(["hashed_ahead_tokens"] if found.geometry.hashed_ahead_tokens else [])
        for group in found.geometry.groups:
            plain = Group(Kind.FULL, 1)
            drawn.update(each.name for each in fields(Group) if getattr(group, each.name) != getattr(plain, each.name))

    note()
    every = {each.name for each in (*fields(Settings), *fields(Group), *fields(Geometry))} - {"geometry", "groups"}
    assert every == drawn
    assert {each.name for kind in get_args(Operation) for each in fields(kind)} == set(FIELDS)
    written = json.loads(render(trace_of(CASE, None, "s", "v", ("lockstep",))).partition("\n")[0])
    assert ("kvgate-trace", 5, "blocks") == (written["format"], written["version"], written["level"])


VERSION_1 = """\
{"format": "kvgate-trace", "version": 1, "settings": {"geometry": {"groups": [{"kind": "full", "block_size_tokens": 4, \
"window_tokens": null, "lookahead": false}]}, "blocks": 16, "tokens_max": 1024, "chunk_tokens": 64, "requests_max": 8, \
"drafts_max": 0, "caches": true, "tells_events": true, "full_sequence_must_fit": true}, "model": "flash", \
"preset": "tiny", "seed": 7, "system": "stock", "system_version": "0.20.2", "detectors": ["lockstep"], "violates": null}
{"operation": "Arrive", "request": 0, "prompt": [{"first": 0, "length": 9}], "keys": {"salt": null, "lora": null, \
"media": []}, "reads_cache": true, "answer": "done", "digest": "b462d32093a4438b"}
{"operation": "Admit", "request": 0, "tokens": 64, \
"answer": "granted, a hit of 0 tokens, new blocks by group: [1..3]", "digest": "e3b89de58c94ee16"}
{"operation": "Finish", "request": 0, "answer": "done", "digest": "6e04fc9e6a39949c"}
"""
"""A trace as it was written before there were other settings, transfers and dispatches, word for word."""


def test_a_trace_of_the_first_version_means_what_it_meant(tmp_path: Path) -> None:
    """Missing keys have their defaults; the reference answers as it did, and is in the same state."""
    path = tmp_path / "trace.jsonl"
    path.write_text(VERSION_1, encoding="utf-8")
    trace = read(path)
    assert (SETTINGS, OPERATIONS) == (trace.header.settings, trace.operations)
    assert where_the_reference_changed(trace) is None
    write(trace, path)
    assert trace == read(path)


def test_a_trace_is_of_lines_that_a_person_can_read(tmp_path: Path) -> None:
    """One JSON object a line, in ASCII, with any names; the directory is made."""
    path = tmp_path / "a" / "b.jsonl"
    write(trace_of(evolve(CASE, model="模型"), DIVERGENCE, "stock", "0.20.2", ("lockstep",)), path)
    header, *lines = (json.loads(line) for line in path.read_text(encoding="ascii").splitlines())
    assert ("模型", "KV-OP-07") == (header["model"], header["violates"]["statement"])
    assert ["Arrive", "Admit", "Finish"] == [line["operation"] for line in lines]
    assert "granted, a hit of 0 tokens, new blocks by group: [1..3]" == lines[1]["answer"]


def test_a_trace_replaces_what_was_there(path: Path) -> None:
    """The second of two is all that remains."""
    write(Trace(MANAGER, trace_of(CASE, None, "s", "v", ("lockstep",)).header, ()), path)
    trace = trace_of(CASE, None, "s", "v", ("lockstep",))
    write(trace, path)
    assert trace == read(path)
    assert trace.header.violates is None
    assert OPERATIONS == trace.operations


def test_what_stands_for_no_operation_is_left_out() -> None:
    """The file has what was performed."""
    lines = list(annotated(SETTINGS, (Finish(0), *OPERATIONS[:2], Finish(9))))
    assert list(OPERATIONS) == [line.operation for line in lines]


def test_a_digest_stands_for_a_state() -> None:
    """Equal for equal states, however they were reached; another after every operation that changes something."""
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


TIERS = evolve(
    SETTINGS,
    geometry=Geometry((Group(Kind.FULL, 16, compress_ratio=4, unit_tokens=4), Group(Kind.SLIDING_WINDOW, 4, 6))),
    pin_drop_blocks_min=1,
)


def test_what_is_pinned_begun_and_copied_is_part_of_a_digest() -> None:
    """Each alone; a manager in the same state is the control."""
    manager = Manager(TIERS)
    for operation in (Arrive(0, (Run(0, 11),)), Admit(0, 64), Dispatch(), Arrive(1, (Run(0, 12),)), Admit(1, 64)):
        assert operation == manager.population.resolve(operation)
        manager.apply(operation)
    state = manager.snapshot()
    assert (1, 2) == (len(state.copies), len(state.begun))
    others = [
        evolve(state, copies=()),
        evolve(state, copies=tuple(evolve(copy, tokens=4) for copy in state.copies)),
        evolve(state, begun=frozenset()),
        evolve(state, begun=frozenset(list(state.begun)[:1])),
        evolve(state, pinned=Pinned(frozenset({2}))),
        evolve(state, pinned=Pinned(frozenset({2, 3}), (3,))),
        evolve(state, pinned=Pinned(frozenset({2, 3}), (3, 2))),
    ]

    class Shows(Manager):
        """Shows a state that is not its own."""

        def __init__(self, shown: Snapshot) -> None:
            super().__init__(TIERS)
            self.shown = shown

        def snapshot(self) -> Snapshot:
            return self.shown

    digests = Digests()
    assert digests.of(manager) == digests.of(Shows(state))
    assert len(others) + 1 == len({digests.of(Shows(each)) for each in (state, *others)})


def test_a_reference_that_changed_is_noticed() -> None:
    """By its answer or its state; a trace without digests says nothing, and neither does an unchanged reference."""
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
    """They would be silently skipped."""
    trace = trace_of(CASE, None, "s", "v", ("lockstep",))
    illegal = evolve(trace, lines=(*trace.lines, trace.lines[-1]))
    assert "1 of its operations are not legal any more" == where_the_reference_changed(illegal)
