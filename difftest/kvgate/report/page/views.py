"""What the page steps through: both sides after each operation, as JSON.

It is bounded: so many blocks, so much of a table and of the free queue. What is left out is counted. Of a long table
and of a long queue that part is kept in which the sides differ.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import groupby, zip_longest
from typing import Any

from kvgate.gate.story import describe, describe_answer
from kvgate.kernel.text import printable
from kvgate.report.page.recording import Frame, Named, Recording, Side
from kvreference.block_pool import NULL
from kvreference.snapshot import Snapshot

BLOCKS_MAX = 96
"""How many blocks are shown."""
ENTRIES_MAX = 60
"""How many entries of one table, and how many blocks of the free queue, are shown."""
HOLDERS_MAX = 8
"""How many of the requests that hold one block are named."""
QUEUED, PINNED, BEGUN = 1, 2, 4
"""What a block can be besides held and cached."""


def blocks_shown(recording: Recording) -> tuple[list[int], int]:
    """The blocks worth a row, by their ids, and how many that were used are left out.

    All that were held, cached or pinned at some time; of too many those that differ, and those that changed last.
    """
    last: dict[int, int] = {}
    for frame in recording.frames:
        for side in sides(frame):
            if side.snapshot is not None:
                for block, used in enumerate(_used(side.snapshot)):
                    if used and block != NULL:
                        last[block] = frame.index
    differing = _differing(recording.frames[-1]) if recording.frames else set()
    for block in differing:
        last.setdefault(block, 0)
    ranked = sorted(last, key=lambda block: (block not in differing, -last[block], block))
    return sorted(ranked[:BLOCKS_MAX]), len(ranked[BLOCKS_MAX:])


def _used(snapshot: Snapshot) -> Iterator[bool]:
    pinned = snapshot.pinned.blocks
    for block, (references, content) in enumerate(zip(snapshot.references, snapshot.contents, strict=False)):
        yield references != 0 or content is not None or block in pinned


def _differing(frame: Frame) -> set[int]:
    """The blocks of which the sides do not say the same."""
    if frame.reference is None or frame.reference.snapshot is None or frame.system.snapshot is None:
        return set()
    ours, theirs = frame.reference.snapshot, frame.system.snapshot
    reported = (
        zip_longest(side.snapshot.references, side.contents)
        for side in (frame.reference, frame.system)
        if side.snapshot
    )
    differing = {block for block, (mine, other) in enumerate(zip_longest(*reported)) if mine != other}
    queues = zip_longest(ours.free[:ENTRIES_MAX], theirs.free[:ENTRIES_MAX])
    first = next((pair for pair in queues if pair[0] != pair[1]), ())
    return (differing | {block for block in first if block is not None}) - {NULL}


def first_difference(recording: Recording) -> int | None:
    """The first operation recorded after which the sides do not say the same; None if there is none."""
    return next((frame.index for frame in recording.frames if frame.reference and _differ(frame)), None)


def answered(side: Side) -> str:
    """What one side answered, in words."""
    if side.raised:
        return f"raised {printable(side.raised)}"
    return "no answer" if side.answer is None else printable(describe_answer(side.answer))


def _differ(frame: Frame) -> bool:
    # Answers as they are printed: events name contents by each side's own identities.
    reported = [(answered(side), side.contents, *_observed(side.snapshot)) for side in sides(frame)]
    return reported[0] != reported[-1]


def _observed(snapshot: Snapshot | None) -> tuple[object, ...]:
    if snapshot is None:
        return ()
    tables = {number: [list(table) for table in tables] for number, tables in snapshot.tables.items()}
    return tables, list(snapshot.references)[1:], list(snapshot.free), snapshot.blocks_free, snapshot.pinned.blocks


def sides(frame: Frame) -> tuple[Side, ...]:
    """The reference, if it is there, and the system."""
    return (frame.system,) if frame.reference is None else (frame.reference, frame.system)


class Views:
    """The views of one recording."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.blocks, self.blocks_left_out = blocks_shown(recording)
        self._names: dict[Named, int] = {}

    def document(self) -> dict[str, Any]:
        """All of it. The names are read last, for they are collected on the way."""
        steps = [self._step(frame) for frame in self.recording.frames]
        groups = [
            f"{group.kind.value.replace('_', ' ')}, {group.block_size_tokens} tokens a block"
            for group in self.recording.settings.geometry.groups
        ]
        return {
            "first": self.recording.left_out,
            "difference": first_difference(self.recording),
            "groups": groups,
            "blocks": self.blocks,
            "steps": steps,
            "names": [[name.group, name.request, name.tokens] for name in self._names],
        }

    def _step(self, frame: Frame) -> dict[str, Any]:
        operation = printable(describe(frame.operation))
        request = getattr(frame.operation, "request", None)
        requests = {
            number: [standing.status.value, standing.tokens_computed, standing.tokens]
            for number, standing in frame.requests.items()
        }
        around = _Around([side.snapshot for side in sides(frame) if side.snapshot is not None])
        ours = None if frame.reference is None else self._side(frame.reference, around)
        theirs = self._side(frame.system, around)
        return {"operation": operation, "request": request, "requests": requests, "sides": [ours, theirs]}

    def _side(self, side: Side, around: _Around) -> dict[str, Any]:
        view: dict[str, Any] = {"answer": answered(side)}
        snapshot = side.snapshot
        if snapshot is None:
            return view
        view["free"] = _part(list(snapshot.free), around.free)
        view["count"] = snapshot.blocks_free
        view["cached"] = sum(content is not None for content in snapshot.contents)
        view["pinned"] = list(snapshot.pinned.queue[:ENTRIES_MAX])
        view["tables"] = {
            number: [_part(folded(table), around.table(number, group)) for group, table in enumerate(tables)]
            for number, tables in snapshot.tables.items()
        }
        look, queued = Look(side), set(snapshot.free)
        view["blocks"] = [self._block(look, snapshot, block, block in queued) for block in self.blocks]
        view["copies"] = [printable(str(copy)) for copy in snapshot.copies[:ENTRIES_MAX]]
        return view

    def _block(self, look: Look, snapshot: Snapshot, block: int, is_queued: bool) -> list[Any]:
        """References, name, flags and holders of one block."""
        name = look.content(block)
        index = -1 if name is None else self._names.setdefault(name, len(self._names))
        flags = QUEUED * is_queued + PINNED * look.is_pinned(block) + BEGUN * (block in snapshot.begun)
        return [snapshot.references[block], index, flags, list(look.holders(block) or ())[:HOLDERS_MAX]]


def folded(table: Sequence[int]) -> list[int]:
    """A table in which ``-n`` stands for ``n`` null blocks in a row."""
    entries: list[int] = []
    for is_null, run in groupby(table, key=lambda block: block == NULL):
        blocks = list(run)
        entries += [-len(blocks)] if is_null else blocks
    return entries


class _Around:
    """Where the parts begin that are shown of what is long: shortly before the sides differ."""

    def __init__(self, snapshots: Sequence[Snapshot]) -> None:
        self._snapshots = snapshots
        self.free = _begin([list(snapshot.free) for snapshot in snapshots], 0)

    def table(self, request: int, group: int) -> int:
        """Where the part of one table begins; at its end if nothing differs."""
        tables = [
            folded(tables[group])
            for snapshot in self._snapshots
            if (tables := snapshot.tables.get(request)) is not None and group < len(tables)
        ]
        return _begin(tables, max(map(len, tables), default=0) - ENTRIES_MAX)


def _begin(lists: Sequence[Sequence[int]], otherwise: int) -> int:
    if len(lists) == 2 and lists[0] != lists[1]:
        pairs = enumerate(zip_longest(*lists))
        otherwise = next(index for index, (mine, other) in pairs if mine != other) - ENTRIES_MAX // 2
    longest = max(map(len, lists), default=0)
    return max(0, min(otherwise, longest - ENTRIES_MAX))


def _part(entries: list[int], begin: int) -> list[Any]:
    """How many entries stand before the part, the part, and how many after it."""
    part = entries[begin : begin + ENTRIES_MAX]
    return [min(begin, len(entries)), part, max(0, len(entries) - begin - len(part))]


class Look:
    """One side after one operation."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self.snapshot = side.snapshot
        self._holders: dict[int, tuple[int, ...]] = {}
        if self.snapshot is not None:
            for number, tables in sorted(self.snapshot.tables.items()):
                for block in {block for table in tables for block in table}:
                    self._holders[block] = (*self._holders.get(block, ()), number)

    @property
    def free(self) -> int:
        """How many blocks are free."""
        return 0 if self.snapshot is None else self.snapshot.blocks_free

    def holders(self, block: int) -> tuple[int, ...] | None:
        """The requests whose tables name a block.

        None if it is not held; empty if it counts a holder that no table names.
        """
        if self.snapshot is None:
            return None
        return self._holders.get(block) or (() if self.snapshot.references[block] > 0 and block != NULL else None)

    def content(self, block: int) -> Named | None:
        """What it holds."""
        return self.side.contents[block] if self.side.contents else None

    def is_pinned(self, block: int) -> bool:
        """Whether it is pinned."""
        return self.snapshot is not None and block in self.snapshot.pinned.blocks

    def key(self, block: int) -> Hashable:
        """All that is shown of it, for comparison."""
        if self.snapshot is None:
            return None
        return self.snapshot.references[block], self.holders(block), self.content(block), self.is_pinned(block)
