"""Ghost memory for long simulations: what every block holds, written down as *whose tokens from where to where*.

The gate's ghost memory (``kvgate.monitors.slot_memory``) keeps a state per slot, and its steps cost what attention
costs. Here the whole text of every request is known before it is sent, so a block is described by three numbers: who
wrote it, and the half-open range of that request's tokens in it. A read is right if and only if the reader's own text
agrees with the writer's up to the last token read. No hash and no block manager is asked: only the blocks sent to the
worker, what it computed, and the prompts.

Blocks of full attention are checked when they come into a request's table, and again if another request writes to them;
those of sliding windows at every step that reads them. A block of a state-space layer holds one state: of all tokens up
to one. It is read when a step begins, before anything is written, and must be that of the tokens computed so far.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from attrs import define, field, frozen

from kvgate.monitors.slot_memory import first_read
from kvgate.simulation.result import Soundness
from kvgate.simulation.workload import common_tokens
from kvreference.answers import Copy
from kvreference.geometry import Geometry, Group
from kvreference.mamba import StateMode
from kvreference.operations import Run

NULL = 0
JUNK = -1
"""Who wrote what draft layers leave in look-ahead slots."""


@frozen
class Work:
    """What the worker computes for one request in one step. Positions are in tokens."""

    number: int
    tables: Sequence[Sequence[int]]
    """Per group, the blocks that the worker was sent."""
    start: int
    end: int
    verified: int
    """To here the tokens are no drafts."""
    drafted: int
    """To here draft layers write."""


@define
class _Written:
    """What one block holds."""

    group: int
    writer: int
    low: int
    high: int
    tentative: int
    """To here there are drafts after ``high``, which are not yet accepted or rejected. A state is that of the tokens up
    to here."""


@define
class _Reader:
    """A request that runs."""

    judged: list[int]
    """Per group, how many leading blocks of full attention need no second look."""
    drafted: Work | None = None
    """Its last step, until its drafts are accepted or rejected."""
    holds: list[int] = field(factory=list)
    """Blocks of full attention in its table, as far as they are checked."""
    again: set[int] = field(factory=set)
    """Blocks of full attention that another request has written to."""


class BlockMemory:
    """The blocks of one system, and what they hold."""

    def __init__(self, geometry: Geometry) -> None:
        self.groups = geometry.groups
        self.reads = 0
        self.hits = 0
        self.unsound: str | None = None
        self._texts: dict[int, tuple[Run, ...]] = {}
        self._written: dict[int, _Written] = {}
        self._readers: dict[int, _Reader] = {}
        self._holders: dict[int, set[int]] = {}
        """Per block of full attention, which requests have it in their tables."""
        self._shared: dict[tuple[int, int], int] = {}

    def enter(self, number: int, text: tuple[Run, ...]) -> None:
        """A request was sent; ``text`` is its prompt and all that it will be answered."""
        self._texts[number] = text

    def leave(self, number: int) -> None:
        """A request ended, or lost its blocks."""
        reader = self._readers.pop(number, None)
        for block in reader.holds if reader else ():
            self._holders[block].discard(number)

    def step(self, works: Sequence[Work], copies: Iterable[Copy] = ()) -> None:
        """The worker does one step: it copies, writes, and then reads."""
        for copy in copies:
            self._copy(copy)
        for work in works:
            self._read_states(work)
        for work in works:
            self._write(work)
        for work in works:
            self._read(work)

    def keep(self, number: int, tokens: int) -> None:
        """Of the drafts that the last step computed for a request, those before ``tokens`` hold, and no other."""
        reader = self._readers[number]
        work, reader.drafted = reader.drafted, None
        if work is None:
            return
        for index, (group, table) in enumerate(zip(self.groups, work.tables, strict=True)):
            if group.keeps_states:
                self._keep_states(index, table, work, tokens)
                continue
            for block in table[work.verified // group.block_size_tokens : group.blocks_occupied(work.end)]:
                held = self._written.get(block)
                if held is not None and (held.group, held.writer) == (index, number):
                    held.high = held.tentative = max(held.high, min(held.tentative, tokens))

    def soundness(self) -> Soundness:
        """What was found."""
        return Soundness(self.reads, self.hits, self.unsound)

    # Writing

    def _copy(self, copy: Copy) -> None:
        held = self._written.get(copy.source)
        if held is None or held.group != copy.group:
            self._written.pop(copy.destination, None)
            return
        first = held.low - held.low % self.groups[copy.group].block_size_tokens
        high = min(held.high, first + copy.tokens)
        self._put(copy.destination, _Written(copy.group, held.writer, held.low, high, high), None)

    def _put(self, block: int, written: _Written, writer: int | None) -> None:
        self._written[block] = written
        for other in self._holders.get(block, ()):
            if other != writer:
                self._readers[other].again.add(block)

    def _write(self, work: Work) -> None:
        reader = self._readers.get(work.number)
        if reader is None:
            reader = self._readers[work.number] = _Reader([0] * len(self.groups))
            self.hits += work.start > 0
        for index, (group, table) in enumerate(zip(self.groups, work.tables, strict=True)):
            if group.keeps_states:
                self._write_states(index, group, table, work)
                continue
            start, end = group.tokens_stored(work.start), group.tokens_stored(work.end)
            reached = max(end, work.drafted if group.lookahead else end)
            size = group.block_size_tokens
            for position in range(start // size, group.blocks_occupied(reached)):
                first = position * size
                self._write_block(index, table, position, (max(start, first), min(end, first + size)), first, work)
        reader.drafted = work if work.verified < work.end else None

    def _write_block(
        self, index: int, table: Sequence[int], position: int, span: tuple[int, int], first: int, work: Work
    ) -> None:
        start, end = span
        if position >= len(table) or table[position] == NULL:
            self._blame(work.number, index, start, "no slot to write to")
            return
        block = table[position]
        if end <= first:
            self._put(block, _Written(index, JUNK, first, first, first), work.number)
            return
        low = start
        held = self._written.get(block)
        if start > first and held is not None and self._agrees(held, index, work.number, start):
            low = held.low
        high = max(min(work.verified, end), low)
        self._put(block, _Written(index, work.number, low, high, end), work.number)

    # States

    def _read_states(self, work: Work) -> None:
        """A step continues from the state after the tokens computed so far."""
        if not work.start:
            return
        for index, (group, table) in enumerate(zip(self.groups, work.tables, strict=True)):
            if not group.keeps_states:
                continue
            self.reads += 1
            position = (work.start - 1) // group.block_size_tokens
            if position >= len(table) or table[position] == NULL:
                self._blame(work.number, index, work.start - 1, "no state to continue from")
                continue
            held = self._written.get(table[position])
            if held is None or held.tentative != work.start or not self._agrees(held, index, work.number, work.start):
                what = f"block {table[position]} holds {_describe(held)}"
                self._blame(work.number, index, work.start - 1, what)

    def _write_states(self, index: int, group: Group, table: Sequence[int], work: Work) -> None:
        """The state after the step; and those on the way, where the worker keeps them: at blocks' ends, or drafts'."""
        size, drafts = group.block_size_tokens, work.end - work.verified
        if drafts and len(table) - group.blocks_occupied(work.verified) < drafts:
            self._blame(work.number, index, work.verified, f"fewer states than drafts ({drafts})")
        running = (work.end - 1) // size
        if running >= len(table) or table[running] == NULL:
            self._blame(work.number, index, work.end - 1, "no state to write to")
            return
        keeps_those_passed = group.states is StateMode.ALL or drafts > 0
        for position in range(work.start // size if keeps_those_passed else running, running + 1):
            if table[position] != NULL:
                end = min((position + 1) * size, work.end)
                self._put(table[position], _Written(index, work.number, 0, min(end, work.verified), end), work.number)

    def _keep_states(self, index: int, table: Sequence[int], work: Work, tokens: int) -> None:
        """The state after the last draft that holds is kept; those after a draft that does not are dropped."""
        size = self.groups[index].block_size_tokens
        for position in range(work.start // size, min((work.end - 1) // size + 1, len(table))):
            held = self._written.get(table[position])
            if held is None or (held.group, held.writer) != (index, work.number):
                continue
            end = tokens if position == (tokens - 1) // size else held.tentative
            writer = work.number if end <= tokens else JUNK
            self._put(table[position], _Written(index, writer, 0, end, end), work.number)

    # Reading

    def _agrees(self, held: _Written, index: int, number: int, end: int) -> bool:
        """Whether a block holds, up to token ``end``, what a request itself would have written."""
        if held.group != index:
            return False
        if held.writer == number:
            # Its drafts are its own, those after the last token of its text too.
            return held.tentative >= end
        return held.high >= end and self._common(held.writer, number) >= end

    def _common(self, writer: int, number: int) -> int:
        if writer == JUNK:
            return 0
        pair = (writer, number)
        shared = self._shared.get(pair)
        if shared is None:
            shared = self._shared[pair] = common_tokens(self._texts[writer], self._texts[number])
        return shared

    def _read(self, work: Work) -> None:
        reader = self._readers[work.number]
        for index, (group, table) in enumerate(zip(self.groups, work.tables, strict=True)):
            if group.keeps_states:
                continue
            size, end = group.block_size_tokens, group.tokens_stored(work.end)
            begin = first_read(group, work.start)
            first = max(begin // size, reader.judged[index])
            for position in range(first, group.blocks_occupied(end)):
                self._check(work.number, index, table, position, (begin, end))
            if group.keeps_all:
                if reader.again:
                    self._look_again(work.number, index, table, first, end)
                whole = min(end // size, len(table))
                for block in table[reader.judged[index] : whole]:
                    self._holders.setdefault(block, set()).add(work.number)
                    reader.holds.append(block)
                reader.judged[index] = whole
        reader.again.clear()

    def _look_again(self, number: int, index: int, table: Sequence[int], positions: int, end: int) -> None:
        again = self._readers[number].again
        for position in range(positions):
            if table[position] in again:
                self._check(number, index, table, position, (0, end))

    def _check(self, number: int, index: int, table: Sequence[int], position: int, span: tuple[int, int]) -> None:
        size = self.groups[index].block_size_tokens
        low, high = max(span[0], position * size), min(span[1], (position + 1) * size)
        self.reads += 1
        if position >= len(table) or table[position] == NULL:
            self._blame(number, index, low, "no block to read")
            return
        held = self._written.get(table[position])
        if held is None or held.low > low or not self._agrees(held, index, number, high):
            self._blame(number, index, low, f"block {table[position]} holds {_describe(held)}")

    def _blame(self, number: int, index: int, token: int, what: str) -> None:
        if self.unsound is None:
            self.unsound = f"request {number}, group {index}, token {token}: {what}"


def _describe(held: _Written | None) -> str:
    if held is None:
        return "nothing that was written"
    writer = "a draft layer" if held.writer == JUNK else f"request {held.writer}"
    return f"tokens {held.low} to {held.high} of {writer}, in group {held.group}"
