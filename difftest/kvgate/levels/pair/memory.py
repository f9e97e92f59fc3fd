"""The slots of one node, filled with what is really in the slots of another.

A read moves whatever the other node's blocks hold when it ends. If a block was given up too early there and written by
somebody else, or if the wrong block was named, then what arrives is wrong, and the first token that reads it says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attrs import frozen

from kvgate.monitors.ghost import Work
from kvgate.monitors.slots import PhysicalSlots
from kvgate.monitors.states import States
from kvgate.monitors.worker_memory import WorkerMemory
from kvreference.block_pool import NULL


@frozen
class Source:
    """Where a request's blocks are read from, and where they are written."""

    slots: PhysicalSlots
    """Those of the other node."""
    there: Sequence[Sequence[int]]
    """The blocks of the request on the other node, by group."""
    here: Sequence[Sequence[int]]
    """Its blocks on this one."""


class LinkedMemory(WorkerMemory):
    """The physical slots of one node, and what they hold."""

    source_of: Callable[[int], Source] | None = None
    """Where the blocks of a request are read from; None for a node that reads from nobody."""

    def link(self, states: States) -> PhysicalSlots:
        """Let equal states have equal numbers on both nodes. Returns the slots, for the other to read."""
        self.states = states
        self._physical = PhysicalSlots(states)
        return self._physical

    def _deliver(self, work: Work) -> None:
        if self.source_of is None or work.provided == work.start:
            super()._deliver(work)
            return
        self._unmark(work, work.provided)
        source = self.source_of(work.request)
        for index, group, _, _ in self._in_groups(work):
            size, start = group.block_size_tokens, group.tokens_stored(work.provided)
            table, read = source.here[index], source.there[index]
            for position in range(start // size, min(group.blocks_occupied(work.start), len(table))):
                if table[position] == NULL:
                    continue
                there = source.slots.held(read[position], index) if position < len(read) else ()
                states = [*(None,) * (position * size), *there, *(None,) * size]
                self._physical.put(index, size, table[position], position * size, states[: work.start], start)
