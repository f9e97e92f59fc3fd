"""Ghost memory of the slots that a worker computed: states are written where its slot mapping says, and read where its
block table does.

What other nodes write and read, and what is copied, is as granted: no worker prepares it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from attrs import frozen

from kvgate.adapters.model_runner.runner import Prepared
from kvgate.kernel.difference import Difference
from kvgate.levels.scheduler.adapter.names import number_in
from kvgate.monitors.slot_memory import JUNK, Where, Work, WorkerMemory
from kvreference.block_pool import NULL
from kvreference.geometry import Group
from kvreference.slots import Layout, in_memory, layout_of, place


def layout_in(group: Group) -> Layout:
    """How a worker keeps a group. vLLM counts tokens where slots that are begun take memory: its layers divide."""
    return layout_of(group) if group.whole_slots else Layout(group.block_size_tokens)


NO_BLOCK = -1
"""Stands in a table where the kernel blocks are not those of one block. Nothing is ever written there."""


@frozen
class Row:
    """What a worker has of one request in one group."""

    layout: Layout
    kernel_block_slots: int
    table: Sequence[int]
    """The kernel blocks."""
    mapped: Sequence[int] | None
    """The slots of memory that the step writes; None where an operator finds them in the table."""

    def blocks(self) -> list[int]:
        """The block of the pool that each entry of a block table stands for; none where it is not all of that block."""
        parts, rest = divmod(self.layout.block_slots, self.kernel_block_slots)
        if rest:
            return []
        entries = [list(self.table[first : first + parts]) for first in range(0, len(self.table), parts)]
        blocks = [entry[0] // parts for entry in entries]
        whole = (self.layout.kernel_blocks([block], self.kernel_block_slots) for block in blocks)
        return [block if entry == its else NO_BLOCK for block, entry, its in zip(blocks, entries, whole, strict=True)]

    def in_table(self, slot: int) -> int | None:
        """Where the table has a slot of the request in memory; None if it ends before."""
        entry, offset = place(slot, self.kernel_block_slots)
        return in_memory(self.table[entry], offset, self.kernel_block_slots) if entry < len(self.table) else None

    def written(self, start: int, slots: int) -> Iterator[tuple[int, int | None]]:
        """The next ``slots`` slots of the request from ``start`` on, each with where the step writes it."""
        mapped = self.mapped or ()
        for index in range(slots):
            yield start + index, mapped[index] if index < len(mapped) else self.in_table(start + index)


class PreparedMemory(WorkerMemory):
    """The physical slots of a worker that prepares each step before it computes it."""

    rows: Mapping[int, Sequence[Row]] = MappingProxyType({})
    """Of the step that is computed next: by request, what the worker has in each group."""

    def prepare(self, prepared: Prepared, layouts: Sequence[Layout]) -> None:
        """The worker has prepared the step of all that was scheduled since the last one."""
        works, numbers = {work.request: work for work in self._pending}, tuple(map(number_in, prepared.requests))
        rows: dict[int, list[Row]] = {number: [] for number in numbers if number in works}
        for index, layout in enumerate(layouts):
            mapped, begin, ratio = prepared.slots[index], 0, layout.compress_ratio
            for number, table in zip(numbers, prepared.tables[index], strict=True):
                if number in works:
                    # Its slots come after those of the rows before.
                    end = begin + works[number].end // ratio - works[number].start // ratio
                    slots = None if mapped is None else mapped[begin:end]
                    rows[number].append(Row(layout, prepared.kernel_block_sizes[index], table, slots))
                    begin = end
        self.rows = rows

    def _write(self, work: Work) -> Iterator[Difference | None]:
        self._unmark(work, work.start)
        for index, group, row, where in self._in_rows(work):
            ratio, size = row.layout.compress_ratio, group.block_size_tokens
            start, end = work.start // ratio, work.end // ratio
            with_drafts = max(end, work.drafted // ratio) if group.lookahead else end
            for slot, found in row.written(start, with_drafts - start):
                states = work.chain[slot * ratio : (slot + 1) * ratio] if slot < end else (JUNK,) * ratio
                block, offset = place(NULL if found is None else found, row.layout.block_slots)
                if block > NULL:
                    self._physical.fill(index, size, block, offset * ratio, states)
                else:
                    got = () if found is None else (f"slot {found}, of no block",)
                    yield self._physical.no_slot(where, slot * ratio, states[0], *got)

    def _read(self, work: Work) -> Iterator[Difference | None]:
        for index, group, row, where in self._in_rows(work) if work.request not in self._unread else ():
            yield self._physical.read(index, group, row.blocks(), work.chain, (work.start, work.end), where)

    def _in_rows(self, work: Work) -> Iterator[tuple[int, Group, Row, Where]]:
        # A request without a row computes nothing, which a later read of it shows.
        for index, group, _, where in self._in_groups(work) if work.request in self.rows else ():
            yield index, group, self.rows[work.request][index], where
