"""The comparison of states: tables, reference counts, the free queue, and what is cached.

Goal: whatever differs between two states is reported under the guarantee that it breaks. Method: the state of a small
reference, and the same state with one planted change; the state without the change is the control.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import pytest
from attrs import evolve

from kvgate.comparison import MAP_READ_EVERY, Comparison
from kvgate.difference import Difference
from kvreference.operations import (
    Abort,
    Admit,
    Evict,
    Finish,
    LookUp,
    Operation,
    Preempt,
    ReleaseSkipped,
    Reset,
    Schedule,
)
from kvreference.snapshot import Snapshot

ENTRIES: Mapping[Hashable, tuple[int, ...]] = {"first": (1, 6), "second": (4,)}

STATE = Snapshot(
    tables={0: [[1, 2], [0, 4]], 1: [[5], [6]]},
    references=[9, 1, 1, 0, 1, 1, 1, 0, 0],
    free=[7, 3, 8],
    blocks_free=3,
    contents=[None, "first", None, None, "second", None, "first", None, None],
    read_entries=lambda: ENTRIES,
)
"""Two requests with two groups each; the second group's first block was released. The null block counts anything."""
FRESH = evolve(STATE, tables={0: [[1, 2], [4]], 1: [[5], [6]]})
"""The same, and nothing was released yet."""

HASHES: dict[Hashable, int | None] = {"first": 11, "second": 12, None: None}


def hashed(snapshot: Snapshot) -> Snapshot:
    """The same state of a system that identifies content by numbers."""
    entries = {HASHES[content]: blocks for content, blocks in snapshot.entries.items()}
    return evolve(snapshot, contents=[HASHES[content] for content in snapshot.contents], read_entries=lambda: entries)


def compare(operation: Operation, theirs: Snapshot, ours: Snapshot = STATE) -> Difference | None:
    return Comparison().of_states(operation, ours, theirs)


@pytest.mark.parametrize("operation", [Admit(0, 1), Finish(2), ReleaseSkipped(0), Evict(3), Reset()], ids=str)
@pytest.mark.parametrize("ours", [STATE, FRESH], ids=["released", "fresh"])
def test_the_same_state_is_no_difference(operation: Operation, ours: Snapshot) -> None:
    """The control of all that follows, after whatever operation, with identities of its own."""
    assert compare(operation, hashed(ours), ours) is None


OTHER_BLOCK = {0: [[1, 2], [0, 3]], 1: [[5], [6]]}
RELEASED_MORE = {0: [[0, 2], [0, 4]], 1: [[5], [6]]}
TABLES: dict[str, tuple[str, Operation, dict[int, list[list[int]]], tuple[str, str, str]]] = {
    "released too much": ("KV-OP-06", ReleaseSkipped(0), RELEASED_MORE, ("group 0", "[1, 2]", "[0, 2]")),
    "released, then allocated": ("KV-OP-06", Schedule(0, 1), RELEASED_MORE, ("group 0", "[1, 2]", "[0, 2]")),
    "other blocks scheduled": ("KV-OP-05", Schedule(0, 1), OTHER_BLOCK, ("group 1", "[0, 4]", "[0, 3]")),
    "other blocks admitted": ("KV-OP-05", Admit(0, 1), OTHER_BLOCK, ("group 1", "[0, 4]", "[0, 3]")),
    "ended": ("KV-OP-07", Finish(2), OTHER_BLOCK, ("group 1", "[0, 4]", "[0, 3]")),
    "preempted": ("KV-OP-07", Preempt(2), OTHER_BLOCK, ("group 1", "[0, 4]", "[0, 3]")),
}


@pytest.mark.parametrize(("statement", "operation", "tables", "told"), TABLES.values(), ids=TABLES)
def test_a_table_that_differs_is_named(
    statement: str, operation: Operation, tables: dict[int, list[list[int]]], told: tuple[str, str, str]
) -> None:
    """By its request and group, under the guarantee of the operation."""
    group, ours, theirs = told
    expected = Difference(statement, f"table of request 0, {group}", ours, theirs)
    assert expected == compare(operation, evolve(STATE, tables=tables))


def test_tables_that_are_gone_are_named() -> None:
    """The first request that has them on one side alone."""
    theirs = evolve(STATE, tables={0: STATE.tables[0], 2: [[7], [8]]})
    assert Difference("KV-OP-07", "tables of request 1", "[[5], [6]]", "()") == compare(Abort(3), theirs)


COUNTS = {
    "one holder more": ([9, 1, 2, 0, 1, 1, 1, 0, 0], "2", "1", "2"),
    "one holder fewer": ([9, 1, 1, 0, 0, 1, 1, 0, 0], "4", "1", "0"),
    "a block fewer": ([9, 1, 1, 0, 1, 1, 1, 0], "8", "0", "nothing"),
    "a block more": ([9, 1, 1, 0, 1, 1, 1, 0, 0, 0], "9", "nothing", "0"),
}


@pytest.mark.parametrize(("references", "block", "ours", "theirs"), COUNTS.values(), ids=COUNTS)
def test_a_count_that_differs_is_named(references: list[int], block: str, ours: str, theirs: str) -> None:
    """The first block whose holders are counted otherwise."""
    expected = Difference("KV-INV-01", f"references of block {block}", ours, theirs)
    assert expected == compare(LookUp(0), evolve(STATE, references=references))


def test_holders_of_the_null_block_are_not_counted() -> None:
    """Nobody maintains its count."""
    assert compare(LookUp(0), hashed(evolve(STATE, references=[0, *STATE.references[1:]]))) is None


QUEUES: dict[str, tuple[str, Operation, Snapshot]] = {
    "scheduled after a release": ("KV-OP-06", Schedule(0, 1), STATE),
    "released": ("KV-OP-06", ReleaseSkipped(0), STATE),
    "scheduled": ("KV-OP-05", Schedule(0, 1), FRESH),
    "admitted": ("KV-OP-05", Admit(0, 1), FRESH),
    "evicted": ("KV-OP-10", Evict(3), STATE),
    "ended": ("KV-OP-07", Finish(2), STATE),
}


@pytest.mark.parametrize(("statement", "operation", "ours"), QUEUES.values(), ids=QUEUES)
def test_a_free_queue_in_another_order_is_found(statement: str, operation: Operation, ours: Snapshot) -> None:
    """The first position that differs, under the guarantee of the operation."""
    expected = Difference(statement, "free queue at position 1", "3", "8")
    assert expected == compare(operation, evolve(ours, free=[7, 8, 3]), ours)


def test_a_free_queue_of_another_length_is_found() -> None:
    """At the end of the shorter one."""
    expected = Difference("KV-OP-07", "free queue at position 2", "8", "nothing")
    assert expected == compare(Finish(2), evolve(STATE, free=[7, 3]))


def test_another_number_of_free_blocks_is_found() -> None:
    """What is said, apart from what is queued."""
    expected = Difference("KV-INV-03", "blocks free", "3", "4")
    assert expected == compare(LookUp(0), evolve(STATE, blocks_free=4))


def contents(**changed: Any) -> Snapshot:
    """The hashed state, with the contents of some blocks changed: ``b1=None`` is block 1 without content."""
    state = hashed(STATE)
    found = [changed.get(f"b{block}", content) for block, content in enumerate(state.contents)]
    return evolve(state, contents=found)


CONTENTS: dict[str, tuple[Operation, Snapshot, Difference]] = {
    "not cached": (
        Schedule(0, 1),
        contents(b1=None),
        Difference("KV-OP-08", "content of block 1", "first", "not cached"),
    ),
    "cached still": (
        Evict(7),
        contents(b7=17),
        Difference("KV-OP-10", "content of block 7", "not cached", "cached"),
    ),
    "cached after a reset": (
        Reset(),
        contents(b7=17),
        Difference("KV-OP-11", "content of block 7", "not cached", "cached"),
    ),
    "one identity for two contents": (
        Schedule(0, 1),
        contents(b4=11),
        Difference("KV-OP-09", "content of block 4", "second", "the identity of first"),
    ),
    "two identities for one content": (
        Schedule(0, 1),
        contents(b6=16),
        Difference("KV-OP-09", "content of block 6", "first", "another identity than before"),
    ),
}


@pytest.mark.parametrize(("operation", "theirs", "expected"), CONTENTS.values(), ids=CONTENTS)
def test_a_content_that_differs_is_named(operation: Operation, theirs: Snapshot, expected: Difference) -> None:
    """By its block, under the guarantee that it breaks."""
    assert expected == compare(operation, theirs)


LISTED: dict[str, tuple[dict[int, Sequence[int]], Difference]] = {
    "another block serves first": (
        {11: (6, 1), 12: (4,)},
        Difference("KV-INV-05", "blocks listed for first", "(1, 6)", "(6, 1)"),
    ),
    "a block is not listed": (
        {11: (1,), 12: (4,)},
        Difference("KV-INV-05", "blocks listed for first", "(1, 6)", "(1,)"),
    ),
    "a content is not listed": (
        {11: (1, 6)},
        Difference("KV-INV-05", "blocks listed for second", "(4,)", "()"),
    ),
    "a content too many": (
        {11: (1, 6), 12: (4,), 13: (5,)},
        Difference("KV-INV-05", "contents in the cached map", "2", "one more, for blocks (5,)"),
    ),
}


@pytest.mark.parametrize(("listed", "expected"), LISTED.values(), ids=LISTED)
def test_a_cached_map_that_differs_is_found(listed: dict[int, Sequence[int]], expected: Difference) -> None:
    """The map is compared apart from what the blocks say that they hold."""
    assert expected == compare(LookUp(0), evolve(hashed(STATE), read_entries=lambda: listed))


def test_a_map_that_goes_wrong_while_no_block_changes_is_found_before_long() -> None:
    """The map is read only now and then where no content changes; a map that stays right is the control."""
    listed: dict[int, Sequence[int]] = {11: (1, 6), 12: (4,)}
    reads = Counter[str]()

    def read_entries() -> Mapping[int, Sequence[int]]:
        reads["map"] += 1
        return listed

    theirs = evolve(hashed(STATE), read_entries=read_entries)
    comparison = Comparison()
    assert not any(comparison.of_states(LookUp(0), STATE, theirs) for _ in range(4 * MAP_READ_EVERY))
    assert reads["map"] <= 5
    del listed[12]
    assert any(comparison.of_states(LookUp(0), STATE, theirs) for _ in range(MAP_READ_EVERY))


def test_any_kind_of_sequence_will_do() -> None:
    """The protocol asks for sequences: a system may answer with tuples, and list blocks in lists."""
    state = hashed(STATE)
    entries = {content: list(blocks) for content, blocks in state.entries.items()}
    theirs = Snapshot(
        tables={number: tuple(map(tuple, tables)) for number, tables in state.tables.items()},
        references=tuple(state.references),
        free=tuple(state.free),
        blocks_free=state.blocks_free,
        contents=tuple(state.contents),
        read_entries=lambda: entries,
    )
    comparison = Comparison()
    assert [None] * 40 == [comparison.of_states(LookUp(0), STATE, theirs) for _ in range(40)]


def test_a_state_that_a_system_changes_in_place_is_still_compared() -> None:
    """What was seen before is remembered by value: the next operation may change what a system returned."""
    comparison = Comparison()
    live = list(hashed(STATE).contents)
    theirs = evolve(hashed(STATE), contents=live)
    assert comparison.of_states(LookUp(0), STATE, theirs) is None
    live[4] = None
    found = comparison.of_states(LookUp(0), STATE, theirs)
    assert Difference("KV-OP-08", "content of block 4", "second", "not cached") == found
