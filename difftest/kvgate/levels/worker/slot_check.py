"""Whether a worker's block tables and slot mappings are those of the blocks that were granted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise, takewhile, zip_longest
from typing import Any

from attrs import frozen

from kvgate.adapters.model_runner.runner import Memory, Prepared
from kvgate.kernel.difference import Difference
from kvreference.answers import Copy
from kvreference.block_pool import NULL
from kvreference.slots import Layout, place, slot_of_token

NOT_HERE = -1
"""What a slot mapping has for a token that another worker keeps."""
PAIRS = 2
"""The format of slots that caches are written by on the chips that are simulated: a block, and a slot of it."""
TABLES, SLOTS, CONTENT, COPIES = "KV-SYS-03", "KV-MEM-03", "KV-MEM-01", "KV-OP-19"


@frozen
class Granted:
    """What a step computes of a request, and the blocks that it has for it."""

    start: int
    end: int
    tables: Sequence[Sequence[int]]
    """By group."""
    drafts: int = 0
    """How many drafts it verifies."""
    left: Sequence[Sequence[int]] = ()
    """By group, and by place: the block that was there until the window left it, or the one that is there."""

    def left_of(self, group: int) -> Sequence[int]:
        """The blocks that its row may still name where its table has none."""
        return self.left[group] if self.left else ()


def and_left(tables: Sequence[Sequence[int]], before: Sequence[Sequence[int]]) -> list[list[int]]:
    """``tables``, with the block that was in a place until the window left it, as known from the step ``before``."""
    pairs = zip(tables, before or [[]] * len(tables), strict=True)
    return [
        [now if now != NULL else was for now, was in zip_longest(table, old[: len(table)], fillvalue=NULL)]
        for table, old in pairs
    ]


def check_memory(memory: Sequence[Memory], kernel_block_sizes: Sequence[int]) -> Difference | None:
    """Whether kernels find each slot where the worker made it: by blocks of their size, one after the other, inside."""
    if memory and len(memory) != len(kernel_block_sizes):
        return Difference(SLOTS, "memories", f"one for each of {len(kernel_block_sizes)} groups", str(len(memory)))
    for group, (each, kernel_block_slots) in enumerate(zip(memory, kernel_block_sizes, strict=False)):
        page_bytes = each.total_bytes // each.blocks
        for tensor in each.tensors:
            where = f"memory of group {group}"
            slots, rest = divmod(tensor.blocks * tensor.block_slots, each.blocks)
            if tensor.block_slots != kernel_block_slots or rest:
                expected = f"blocks of {kernel_block_slots} slots, as its block table has"
                return Difference(SLOTS, where, expected, f"blocks of {tensor.block_slots} slots")
            if tensor.block_bytes * tensor.blocks != page_bytes * each.blocks:
                expected = f"{page_bytes * each.blocks // tensor.blocks} bytes from a block to the next one"
                return Difference(SLOTS, where, expected, f"{tensor.block_bytes} bytes")
            if tensor.first_byte + tensor.slot_bytes * slots > page_bytes:
                expected = f"{slots} slots in a block of {page_bytes} bytes"
                return Difference(
                    SLOTS, where, expected, f"{tensor.slot_bytes} bytes each, from {tensor.first_byte} on"
                )
        in_order = sorted(each.tensors, key=lambda tensor: tensor.first_byte)
        for one, other in pairwise(in_order):
            end = one.first_byte + one.slot_bytes * one.block_slots
            if other.first_byte < end:
                where = f"tensors of group {group}, bytes of a block"
                return Difference(SLOTS, where, f"a second one from byte {end} on", f"from byte {other.first_byte} on")
    return None


def check_copies(
    memories: Sequence[tuple[bytes, bytes]], shapes: Sequence[Memory], layouts: Sequence[Layout], copies: Sequence[Copy]
) -> Difference | None:
    """Whether the slots before each boundary, and no other block, are what the copies' sources had.

    After the boundary a destination may have either: its request writes there before it reads.
    """
    if copies and not memories:
        return Difference(COPIES, "memory before and after the copies", "bytes of each group", "none")
    for group, (before, after) in enumerate(memories):
        expected, where = bytearray(before), dict[int, str]()
        for copy in copies:
            if copy.group != group:
                continue
            shape, slots = shapes[group], slot_of_token(copy.tokens, layouts[group].compress_ratio)
            for tensor in shape.tensors:
                for slot in range(layouts[group].block_slots):
                    source, destination = (
                        tensor.byte(block, slot, layouts[group].block_slots)
                        for block in (copy.source, copy.destination)
                    )
                    copied = before[source : source + tensor.slot_bytes]
                    if slot < slots or copied == after[destination : destination + tensor.slot_bytes]:
                        expected[destination : destination + tensor.slot_bytes] = copied
                    where[destination] = f"slot {slot} of block {copy.destination}, copied from block {copy.source}"
        if expected != after:
            byte = next(index for index, each in enumerate(expected) if each != after[index])
            slot_begin = max((begin for begin in where if begin <= byte), default=0)
            subject = f"memory of group {group}, byte {byte} ({where.get(slot_begin, 'no slot that is copied to')})"
            return Difference(COPIES, subject, str(expected[byte]), str(after[byte]))
    return None


def check(
    prepared: Prepared, granted: Mapping[str, Granted], layouts: Sequence[Layout], padded: bool = True
) -> Difference | None:
    """The first difference between what a worker prepared and what it should have; None if there is none.

    ``padded``: no slots may follow those of the step.
    """
    if sorted(prepared.requests) != sorted(granted):
        return Difference(TABLES, "the worker's batch", str(sorted(granted)), str(sorted(prepared.requests)))
    for group, layout in enumerate(layouts):
        kernel_block_slots, next_slot = prepared.kernel_block_sizes[group], 0
        if not kernel_block_slots or layout.block_slots % kernel_block_slots:
            expected = f"a divisor of {layout.block_slots} slots"
            return Difference(SLOTS, f"kernel blocks of group {group}", expected, str(kernel_block_slots))
        for row, name in enumerate(prepared.requests):
            each, where = granted[name], f"{name} in row {row}, group {group}"
            table = layout.kernel_blocks(each.tables[group], kernel_block_slots)
            left = layout.kernel_blocks(each.left_of(group), kernel_block_slots)
            got = _as_far_as_read(prepared.tables[group][row], table, left)
            if got != table:
                return Difference(TABLES, f"{where}, block table of the worker", _some(table), _some(got))
            mapped = prepared.slots[group]
            if mapped is None:
                continue
            written = layout.written(each.tables[group], each.start, each.end)
            slots = [NOT_HERE if slot is None else slot for slot in written]
            found = mapped[next_slot : next_slot + len(slots)]
            if slots != list(found):
                return _of_slots(where, layout, each, slots, found)
            next_slot += len(slots)
        further = [slot for slot in (prepared.slots[group] or ())[next_slot:] if slot >= 0]
        if padded and further:
            where = f"slots of group {group} after those of the step's tokens"
            return Difference(SLOTS, where, "none", _some(further))
    return None


def check_metadata(
    prepared: Prepared, granted: Mapping[str, Granted], layouts: Sequence[Layout], drafts_max: int
) -> Difference | None:
    """Whether each back-end is given each row once, in one part or the other, with what was granted of its request.

    A row decodes if it and the rows before it compute one token and ``drafts_max`` drafts at most, and if it verifies
    drafts; the others are prompts.
    """
    short = [granted[name].end - granted[name].start <= 1 + drafts_max for name in prepared.requests]
    leading = len(list(takewhile(bool, short)))
    verifies = [is_short and granted[name].drafts > 0 for is_short, name in zip(short, prepared.requests, strict=True)]
    due = [index < leading or verifies[index] for index in range(len(short))]
    for group, parts in enumerate(prepared.metadata):
        layout, kernel_block_slots = layouts[group], prepared.kernel_block_sizes[group]
        names, row = list(prepared.requests), 0
        for part in parts:
            # The next back-end begins with the first row.
            row = row if row < len(names) else 0
            end = row + len(part.ends)
            where = f"attention metadata of group {group}, rows {row} to {end - 1}"
            those = [granted[name] for name in names[row:end]]
            tables, read = _tables(those, group, layout, kernel_block_slots, part.tables)
            written = (layout.written(each.tables[group], each.start, each.end) for each in those)
            slots = [place(slot, kernel_block_slots) for each in written for slot in each if slot is not None]
            filled = [each for each in (part.slots or ())[len(slots) :] if each[0] >= 0]
            given: tuple[str, Sequence[Any], Sequence[Any] | None]
            if part.finds is None:
                given = "slots", slots, [*(part.slots or ())[: len(slots)], *filled]
            else:
                # Its room may be larger: of some tokens it is not known whether they complete a slot.
                *finds, room = part.finds
                given = (
                    "slots that are found",
                    [kernel_block_slots, len(those), len(slots)],
                    [*finds, min(room, len(slots))],
                )
            positions = [position for each in those for position in range(each.start, each.end)]
            decodes = None if part.decodes is None else [index < part.decodes for index in range(len(those))]
            compared: tuple[tuple[str, str, Sequence[Any], Sequence[Any] | None], ...] = (
                (TABLES, "starts", [each.start for each in those], part.starts),
                (TABLES, "ends", [each.end for each in those], part.ends),
                (TABLES, "offsets", [0, *accumulate(each.end - each.start for each in those)], part.offsets),
                (TABLES, "positions", positions, part.positions),
                (TABLES, "rows that decode", due[row:end], decodes),
                (TABLES, "rows of tables", [len(those)], [len(part.tables)]),
                (TABLES, "tables", tables, read),
                (SLOTS, *given),
            )
            for statement, name, expected, got in compared:
                if got is not None and list(got) != expected:
                    return Difference(statement, f"{where}, {name}", _some(expected), _some(got))
            row = end
        if row != len(names):
            return Difference(TABLES, f"attention metadata of group {group}", f"{len(names)} rows", f"{row} rows")
    return None


def check_operator(prepared: Prepared, granted: Mapping[str, Granted], layouts: Sequence[Layout]) -> Difference | None:
    """Whether the operator that maps compressed slots is called with what was granted of its rows, in each group.

    What it returns is not known: what is compared last are the slots that its arguments name.
    """
    for group, parts in enumerate(prepared.metadata):
        layout, block_slots, row = layouts[group], prepared.kernel_block_sizes[group], 0
        for part in parts:
            where = f"compressor_metadata of group {group}, rows {row} to {row + len(part.ends) - 1}"
            those = [granted[name] for name in prepared.requests[row : row + len(part.ends)]]
            row += len(part.ends)
            if part.found is None:
                if part.finds is not None:
                    return Difference(SLOTS, where, "a call", "no call")
                continue
            got, lengths = part.found, [each.end - each.start for each in those]
            tables, read = _tables(those, group, layout, block_slots, got.tables)
            tokens, ratio = sum(lengths), layout.compress_ratio
            tokens_of_slots = [slot * ratio for each in those for slot in range(each.start // ratio, each.end // ratio)]
            written = [slot for each in those for slot in layout.written(each.tables[group], each.start, each.end)]
            most = min(tokens, tokens // ratio + len(those))
            compared: tuple[tuple[str, str, Any, Any], ...] = (
                (TABLES, "starts", [each.start for each in those], list(got.starts)),
                (TABLES, "offsets", [0, *accumulate(lengths)], list(got.offsets)),
                (TABLES, "tables", tables, read),
                (TABLES, "rows", len(those), got.rows),
                (SLOTS, "ratio", ratio, got.ratio),
                (SLOTS, "slots of a block", block_slots, got.block_slots),
                (SLOTS, "format of slots", PAIRS, got.slot_format),
                (SLOTS, f"room for {len(written)} to {most} slots", max(len(written), min(got.room, most)), got.room),
                (TABLES, "positions of the rotary tables", tokens_of_slots, list(got.positions)),
            )
            for statement, name, expected, found in compared:
                if expected != found:
                    return Difference(statement, f"{where}, {name}", str(expected), str(found))
            if got.slots() != written:
                return Difference(SLOTS, f"{where}, slots that it is to map", _some(written), _some(got.slots()))
    return None


def check_cleared(prepared: Prepared, fresh: Sequence[frozenset[int]]) -> Difference | None:
    """Whether the blocks that were to be cleared, by group, are, and no others."""
    if prepared.cleared is None:
        return None
    for group, (due, cleared) in enumerate(zip(fresh, prepared.cleared, strict=True)):
        if not due.issubset(cleared):
            return Difference(CONTENT, f"memory of group {group}", f"blocks {sorted(due)} cleared", _some(cleared))
    others = prepared.touched.difference(*fresh)
    if others:
        return Difference(CONTENT, "memory of other blocks", "what it held", f"blocks {sorted(others)} cleared")
    return None


def _tables(
    granted: Sequence[Granted], group: int, layout: Layout, kernel_block_slots: int, given: Sequence[Sequence[int]]
) -> tuple[list[list[int]], list[list[int]]]:
    """The kernel blocks of the granted tables, and as many of those that are given, as far as they are read."""
    expected = [layout.kernel_blocks(each.tables[group], kernel_block_slots) for each in granted]
    left = [layout.kernel_blocks(each.left_of(group), kernel_block_slots) for each in granted]
    rows = zip(given, expected, left, strict=False)
    return expected, [_as_far_as_read(row[: len(table)], table, blocks) for row, table, blocks in rows]


def _as_far_as_read(row: Sequence[int], table: Sequence[int], left: Sequence[int]) -> list[int]:
    """A row, as ``table`` says where it still names the block that the window has left: it is never read."""
    there = zip_longest(row[: len(table)], table[: len(row)], left[: min(len(row), len(table))])
    return [mine if its == block else its for its, mine, block in there] + [*row[len(table) :]]


def _of_slots(where: str, layout: Layout, granted: Granted, expected: Sequence[int], got: Sequence[int]) -> Difference:
    """The first slot that differs."""
    first = next(index for index, slot in enumerate(expected) if slot != got[index])
    slot = granted.start // layout.compress_ratio + first
    token = slot * layout.compress_ratio
    of = f"token {token}" if layout.compress_ratio == 1 else f"tokens {token} to {token + layout.compress_ratio - 1}"
    return Difference(SLOTS, f"{where}, slot of {of}", str(expected[first]), str(got[first]))


def _some(entries: Sequence[Any]) -> str:
    """A table, not longer than a message."""
    return str(list(entries)) if len(entries) <= 24 else f"{len(entries)} entries, the last {list(entries[-24:])}"
