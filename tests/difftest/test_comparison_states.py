"""The comparison of states: tables, reference counts, the free queue, and what is cached.

Goal: any difference between two states is reported under the guarantee that it breaks. Method: the state of a small
reference, and the same state with one injected change; the state without the change is the control.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import pytest
from attrs import evolve

from kvgate.kernel.comparison import MAP_READ_EVERY, Comparison
from kvgate.kernel.difference import Difference
from kvreference.answers import Copy
from kvreference.block_pool import Pinned
from kvreference.operations import (
    Abort,
    Admit,
    Dispatch,
    Evict,
    Finish,
    LookUp,
    Operation,
    Preempt,
    ReleaseSkipped,
    Reset,
    Schedule,
    Transferred,
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
def test_the_same_state_is_not_a_difference(operation: Operation, ours: Snapshot) -> None:
    """The control of all that follows, after any operation, with identities of its own."""
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
    "other blocks for another node": ("KV-OP-24", Admit(0, 1, 8), OTHER_BLOCK, ("group 1", "[0, 4]", "[0, 3]")),
    "read by another node": ("KV-OP-25", Finish(0, True), RELEASED_MORE, ("group 0", "[1, 2]", "[0, 2]")),
    "loads while it is aborted": ("KV-OP-25", Abort(0), RELEASED_MORE, ("group 0", "[1, 2]", "[0, 2]")),
    "a transfer is over": ("KV-OP-25", Transferred(2), OTHER_BLOCK, ("group 1", "[0, 4]", "[0, 3]")),
}


@pytest.mark.parametrize(("statement", "operation", "tables", "difference"), TABLES.values(), ids=TABLES)
def test_a_table_that_differs_is_named(
    statement: str, operation: Operation, tables: dict[int, list[list[int]]], difference: tuple[str, str, str]
) -> None:
    """By its request and group, under the guarantee of the operation."""
    group, ours, theirs = difference
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
    """The first block whose number of holders differs."""
    expected = Difference("KV-INV-01", f"references of block {block}", ours, theirs)
    assert expected == compare(LookUp(0), evolve(STATE, references=references))


def test_holders_of_the_null_block_are_not_counted() -> None:
    """Its count is not maintained."""
    assert compare(LookUp(0), hashed(evolve(STATE, references=[0, *STATE.references[1:]]))) is None


QUEUES: dict[str, tuple[str, Operation, Snapshot]] = {
    "scheduled after a release": ("KV-OP-06", Schedule(0, 1), STATE),
    "released": ("KV-OP-06", ReleaseSkipped(0), STATE),
    "scheduled": ("KV-OP-05", Schedule(0, 1), FRESH),
    "admitted": ("KV-OP-05", Admit(0, 1), FRESH),
    "evicted": ("KV-OP-10", Evict(3), STATE),
    "ended": ("KV-OP-07", Finish(2), STATE),
    "ended, scratch first": ("KV-OP-17", Finish(2), evolve(STATE, scratch_first=True)),
    "scheduled, scratch first": ("KV-OP-17", Schedule(0, 1), evolve(STATE, scratch_first=True)),
    "evicted, scratch first": ("KV-OP-10", Evict(3), evolve(STATE, scratch_first=True)),
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
    """The reported number, apart from the queue."""
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
    "not cached when it arrived": (
        Transferred(0),
        contents(b1=None),
        Difference("KV-OP-24", "content of block 1", "first", "not cached"),
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


def test_with_a_retention_interval_another_guarantee_says_what_is_cached() -> None:
    """Both for blocks that are due and for those that are not; a block that was allocated and is still cached is
    another matter.
    """
    too_few = Difference("KV-OP-15", "content of block 1", "first", "not cached")
    too_many = Difference("KV-OP-15", "content of block 7", "not cached", "cached")
    assert too_few == Comparison(retains=True).of_states(Schedule(0, 1), STATE, contents(b1=None))
    assert too_many == Comparison(retains=True).of_states(Schedule(0, 1), STATE, contents(b7=17))
    comparison = Comparison(retains=True)
    assert comparison.of_states(LookUp(0), STATE, hashed(STATE)) is None
    taken = evolve(STATE, contents=[None if block == 4 else each for block, each in enumerate(STATE.contents)])
    stale = Difference("KV-OP-10", "content of block 4", "not cached", "cached")
    assert stale == comparison.of_states(Schedule(0, 1), taken, hashed(STATE))


# Parts that few systems have: pending copies, boundaries inside blocks, a pinned tier

COPY = Copy(group=1, source=4, destination=6, tokens=2)
TIERED = evolve(
    STATE, copies=(COPY,), begun=frozenset({4, 6}), pinned=Pinned(frozenset({2, 3, 7}), (7, 3)), free=[8], blocks_free=1
)
"""The same with a copy that is not dispatched, two blocks inside which boundaries are known, and three pinned."""


@pytest.mark.parametrize("operation", [Admit(0, 1, 8), Dispatch(), Transferred(2), Evict(3), Reset()], ids=str)
def test_the_same_tiers_are_no_difference(operation: Operation) -> None:
    """The control of what follows, with any collections."""
    queue: Any = [7, 3]
    copies: Any = [COPY]
    theirs = evolve(hashed(TIERED), begun=[6, 4], pinned=Pinned(frozenset([7, 3, 2]), queue), copies=copies)
    assert compare(operation, theirs, TIERED) is None


COPIED = {
    "another source": ((evolve(COPY, source=5),), str(COPY), str(evolve(COPY, source=5))),
    "fewer tokens": ((evolve(COPY, tokens=1),), str(COPY), str(evolve(COPY, tokens=1))),
    "forgotten": ((), str(COPY), "nothing"),
}


@pytest.mark.parametrize(("copies", "ours", "theirs"), COPIED.values(), ids=COPIED)
def test_a_pending_copy_that_differs_is_named(copies: tuple[Copy, ...], ours: str, theirs: str) -> None:
    """The first that is not the same."""
    expected = Difference("KV-OP-19", "pending copy 0", ours, theirs)
    assert expected == compare(Admit(0, 1), evolve(TIERED, copies=copies), TIERED)


def test_a_copy_that_is_still_pending_is_named() -> None:
    """On their side alone, after it should have been dispatched."""
    expected = Difference("KV-OP-19", "pending copy 0", "nothing", str(COPY))
    assert expected == compare(Dispatch(), TIERED, evolve(TIERED, copies=()))


@pytest.mark.parametrize(
    ("begun", "block", "difference"), [({6}, 4, ("begun", "not begun")), ({1, 4, 6}, 1, ("not begun", "begun"))]
)
def test_a_boundary_inside_a_block_that_differs_is_named(
    begun: set[int], block: int, difference: tuple[str, str]
) -> None:
    """The first block that is begun on one side alone."""
    expected = Difference("KV-OP-18", f"boundaries inside block {block}", *difference)
    assert expected == compare(Schedule(0, 1), evolve(hashed(TIERED), begun=frozenset(begun)), TIERED)


PINNED: dict[str, tuple[str, Operation, Pinned, tuple[str, str, str]]] = {
    "pinned too much": (
        "KV-OP-21",
        Finish(2),
        Pinned(frozenset({1, 2, 3, 7}), (7, 3)),
        ("pin of block 1", "not pinned", "pinned"),
    ),
    "a pin that a hit ended": (
        "KV-OP-22",
        Admit(0, 1),
        Pinned(frozenset({3, 7}), (7, 3)),
        ("pin of block 2", "pinned", "not pinned"),
    ),
    "a pin that went without need": (
        "KV-OP-22",
        Finish(2),
        Pinned(frozenset({2, 7}), (7,)),
        ("pin of block 3", "pinned", "not pinned"),
    ),
    "demoted without need": (
        "KV-OP-23",
        Admit(0, 1),
        Pinned(frozenset({2, 7}), (7,)),
        ("pin of block 3", "pinned", "not pinned"),
    ),
    "in another order": (
        "KV-OP-23",
        Finish(2),
        Pinned(frozenset({2, 3, 7}), (3, 7)),
        ("pinned queue at position 0", "7", "3"),
    ),
    "not queued": (
        "KV-INV-07",
        Finish(2),
        Pinned(frozenset({2, 3, 7}), (7,)),
        ("pinned queue at position 1", "3", "nothing"),
    ),
}


@pytest.mark.parametrize(("statement", "operation", "pinned", "difference"), PINNED.values(), ids=PINNED)
def test_a_pin_that_differs_is_named(
    statement: str, operation: Operation, pinned: Pinned, difference: tuple[str, str, str]
) -> None:
    """By its block, under the guarantee of how pins begin, stay or end; all three were pinned before."""
    comparison = Comparison()
    assert comparison.of_states(LookUp(0), TIERED, hashed(TIERED)) is None
    expected = Difference(statement, *difference)
    assert expected == comparison.of_states(operation, TIERED, evolve(hashed(TIERED), pinned=pinned))


def test_a_pin_that_is_missing_from_the_start_is_named() -> None:
    """A block that was not pinned before should have been pinned now."""
    expected = Difference("KV-OP-21", "pin of block 2", "pinned", "not pinned")
    assert expected == compare(Finish(2), evolve(hashed(TIERED), pinned=Pinned()), TIERED)


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
    """Earlier states are remembered by value: the next operation may change the objects that a system returned."""
    comparison = Comparison()
    live = list(hashed(STATE).contents)
    theirs = evolve(hashed(STATE), contents=live)
    assert comparison.of_states(LookUp(0), STATE, theirs) is None
    live[4] = None
    found = comparison.of_states(LookUp(0), STATE, theirs)
    assert Difference("KV-OP-08", "content of block 4", "second", "not cached") == found


def test_what_is_freed_late_is_compared() -> None:
    """Which requests' blocks, in which order, and of how many requests."""
    ours = evolve(STATE, freed_late=[[1, 2], [3]])
    comparison = Comparison()
    assert comparison.of_states(Reset(), ours, evolve(STATE, freed_late=((1, 2), (3,)))) is None
    for other in ([[1, 2]], [[2, 1], [3]], [[3], [1, 2]], []):
        found = Comparison().of_states(Reset(), ours, evolve(STATE, freed_late=other))
        assert found is not None
        assert "KV-OP-07" == found.statement
