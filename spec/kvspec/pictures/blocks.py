"""Pictures of blocks: who holds them, in which queue they wait, what they hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvreference.snapshot import Snapshot
from kvspec.pictures.drawing import Cell, Picture, Row


def shared_tables(found: Mapping[str, Any]) -> Picture:
    """Two tables that name the same blocks, what is free, and how often each block is counted."""
    state: Snapshot = found["state"]
    tables = [tables[0] for tables in state.tables.values()]
    rows = [
        Row(f"Request {number}: its block table", [Cell(block, _shared(state, block)) for block in blocks])
        for number, blocks in enumerate(tables)
    ]
    rows.append(Row("Free queue, front first", [Cell(block, "free") for block in state.free]))
    counted = [
        Cell(count, _shared(state, block) if count else "free") for block, count in enumerate(state.references) if block
    ]
    rows.append(Row("References of the blocks 1 to 7", counted))
    return Picture(
        "Two requests share a prefix",
        "Both block tables begin with the same two blocks, which count two references each.",
        rows,
        {"hit": "held by both: counts 2", "held": "held by one", "free": "held by nobody"},
    )


def _shared(state: Snapshot, block: int) -> str:
    return "hit" if state.references[block] > 1 else "held"


def two_queues(found: Mapping[str, Any]) -> Picture:
    """The free queue after each of three requests, plain and with scratch first."""
    rows = []
    for name, states, hit in (
        ("Plain", found["plain"], found["plain_hit"]),
        ("Scratch first", found["ordered"], found["ordered_hit"]),
    ):
        for when, state in zip(("the first has ended", "the second has ended", "the third runs"), states, strict=True):
            rows.append(Row(f"{name}: {when}", _queue(state)))
        last = rows.pop()
        rows.append(Row(f"{last.label}; the first prompt hits {hit.tokens} tokens", last.cells))
    return Picture(
        "The free queue, front at the left",
        "In the plain queue scratch stands among cached blocks and the third request takes a cached one; with scratch "
        "first it takes none.",
        rows,
        {"cached": "cached", "scratch": "scratch: of use to nobody"},
    )


def _queue(state: Snapshot) -> list[Cell]:
    return [Cell(block, "cached" if state.contents[block] is not None else "scratch") for block in state.free]


def duplicates(found: Mapping[str, Any]) -> Picture:
    """Two blocks with one content: the one registered first serves, the other when it is gone."""
    first, second = (found["manager"].content(0, 0, index) for index in (0, 1))
    rows = [
        Row(f"Request {number}: its block table", [Cell(block, "held") for block in tables[0]])
        for number, tables in found["tables"].items()
    ]
    for when, entries in (
        ("", found["entries"]),
        (f", once {found['entries'][second][0]} is evicted", found["entries_left"]),
    ):
        for tokens, content in (("0 to 15", first), ("16 to 31", second)):
            blocks = entries[content]
            cells = [Cell(block, "cached" if place else "hit") for place, block in enumerate(blocks)]
            rows.append(Row(f"Cached map, tokens {tokens}{when}", cells))
    return Picture(
        "Blocks that hold the same content",
        f"The tokens 16 to 31 are in the blocks {' and '.join(map(str, found['entries'][second]))}. The one registered "
        "first serves; when it is evicted, the other does.",
        rows,
        {"held": "held by the request", "hit": "serves a hit", "cached": "the same content, and does not serve"},
    )


def one_demoted(found: Mapping[str, Any]) -> Picture:
    """The two queues before and after a request that needs one block more than are free."""
    before, after = found["before"], found["after"]
    demoted = set(before.pinned.queue) - set(after.pinned.queue)
    table = [Cell(block, "lost" if block in demoted else "held") for block in after.tables[1][0]]
    return Picture(
        "One pinned block is demoted",
        f"{len(before.free)} blocks are free and {len(table)} are needed, so the oldest pinned block is demoted "
        "and taken last.",
        [
            Row("Before: pinned queue, the oldest first", [Cell(block, "pinned") for block in before.pinned.queue]),
            Row("Before: free queue, front first", [Cell(block, "free") for block in before.free]),
            Row("After: pinned queue", [Cell(block, "pinned") for block in after.pinned.queue]),
            Row("After: the table of the second request; the free queue is empty", table),
        ],
        {"pinned": "pinned", "free": "free", "held": "held", "lost": "was pinned: demoted, then taken"},
    )
