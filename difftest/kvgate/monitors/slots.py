"""The physical slots of one system, and what they hold.

A block of attention has a slot for every token that it spans; a block of a state-space layer has one slot, for the
state behind a token.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from kvgate.kernel.difference import Difference
from kvgate.monitors.states import JUNK, States
from kvreference.answers import Copy
from kvreference.attention import Kind
from kvreference.block_pool import NULL
from kvreference.geometry import Group

Slots: TypeAlias = tuple[int, tuple[int | None, ...]]
"""The group that wrote a block last, and the states in its slots; None where nothing was written."""


def first_read(group: Group, token: int) -> int:
    """The first token that the attention of ``token`` covers."""
    window = group.window_tokens or 0
    if group.kind is Kind.SLIDING_WINDOW:
        return max(0, token - window + 1)
    return token - token % window if group.kind is Kind.CHUNKED_LOCAL else 0


class PhysicalSlots:
    """What every block holds."""

    def __init__(self, states: States) -> None:
        self.states = states
        self._slots: dict[int, Slots] = {}

    def copy(self) -> PhysicalSlots:
        """Independent slots that hold the same. The numbers of states are shared: they are never given anew."""
        other = PhysicalSlots(self.states)
        other._slots = dict(self._slots)
        return other

    def of(self, block: int) -> Slots | None:
        """What a block holds; None if nothing is known to be there."""
        return self._slots.get(block)

    def forget(self, blocks: Iterable[int]) -> None:
        """From now on nothing in ``blocks`` may be relied on, until it is written again."""
        for block in blocks:
            self._slots.pop(block, None)

    def held(self, block: int, index: int) -> tuple[int | None, ...]:
        """The slots of ``block``, if group ``index`` wrote them."""
        writer, slots = self._slots.get(block, (None, ()))
        return slots if writer == index and block != NULL else ()

    def perform(self, copy: Copy, size: int) -> None:
        """Copy the beginning of one block of ``size`` tokens to another."""
        held = [*self.held(copy.source, copy.group), *(None,) * size]
        kept = [*self.held(copy.destination, copy.group), *(None,) * size]
        self._slots[copy.destination] = copy.group, (*held[: copy.tokens], *kept[copy.tokens : size])

    # Attention: a slot per token

    def write(
        self,
        index: int,
        group: Group,
        table: Sequence[int],
        chain: Sequence[int],
        span: tuple[int, int, int],
        where: str,
    ) -> Difference | None:
        """Write the states of the tokens from ``start`` to ``end``, and junk from there to ``drafted``.

        Where slots are written when they are complete, the tokens that began the first one are written with it.
        """
        start, end, drafted = span
        size, start = group.block_size_tokens, group.tokens_stored(start)
        for position in range(start // size, group.blocks_occupied(drafted)):
            if position >= len(table) or table[position] == NULL:
                return _no_slot(where, max(start, position * size))
            self.put(index, size, table[position], position * size, [*chain[:end], *(JUNK,) * (drafted - end)], start)
        return None

    def deliver(self, index: int, group: Group, table: Sequence[int], chain: Sequence[int], start: int) -> None:
        """Another node writes the states of ``chain`` from ``start`` on, wherever the table has a block for them."""
        size, start = group.block_size_tokens, group.tokens_stored(start)
        for position in range(start // size, min(group.blocks_occupied(len(chain)), len(table))):
            if table[position] == NULL:
                continue
            if group.kind is Kind.MAMBA:
                self._slots[table[position]] = index, (chain[min((position + 1) * size, len(chain)) - 1],)
            else:
                self.put(index, size, table[position], position * size, chain, start)

    def put(self, index: int, size: int, block: int, first: int, chain: Sequence[int | None], start: int) -> None:
        """Write the states of ``chain`` from ``start`` on into a block whose first token is ``first``."""
        slots = [*self.held(block, index), *(None,) * size][:size]
        for token in range(max(start, first), min(len(chain), first + size)):
            slots[token - first] = chain[token]
        self._slots[block] = index, tuple(slots)

    def read(
        self, index: int, group: Group, table: Sequence[int], chain: Sequence[int], span: tuple[int, int], where: str
    ) -> Difference | None:
        """Read what the attention of the tokens from ``start`` to ``end`` covers."""
        start, end = span
        # What is in no slot yet is read from the compressor's state, which is another group.
        size, end = group.block_size_tokens, group.tokens_stored(end)
        begin = first_read(group, start)
        for position in range(begin // size, group.blocks_occupied(end)):
            first = position * size
            low, high = max(begin, first), min(end, first + size)
            if position >= len(table):
                return _no_slot(where, low)
            held = list(self.held(table[position], index)[low - first : high - first])
            if held != chain[low:high]:
                return self._misread(low, list(chain[low:high]), held, table[position], where)
        return None

    # State-space layers: a slot per block

    def write_states(
        self,
        index: int,
        group: Group,
        table: Sequence[int],
        chain: Sequence[int],
        span: tuple[int, int],
        where: str,
        passing: bool,
    ) -> Difference | None:
        """Write the state behind ``end``; if ``passing``, also those behind every block's end on the way."""
        start, end = span
        size = group.block_size_tokens
        running = (end - 1) // size
        if running >= len(table) or table[running] == NULL:
            return _no_slot(where, end - 1)
        for position in range(start // size if passing else running, running + 1):
            if table[position] != NULL:
                self._slots[table[position]] = index, (chain[min((position + 1) * size, end) - 1],)
        return None

    def read_state(
        self, index: int, group: Group, table: Sequence[int], chain: Sequence[int], start: int, where: str
    ) -> Difference | None:
        """Read the state behind the token before ``start``."""
        position = (start - 1) // group.block_size_tokens
        if position >= len(table):
            return _no_slot(where, start - 1)
        held = self.held(table[position], index)
        if held == (chain[start - 1],):
            return None
        return self._misread(start - 1, [chain[start - 1]], held, table[position], where)

    def _misread(self, low: int, expected: list[int], held: Sequence[int | None], block: int, where: str) -> Difference:
        """The first slot that does not hold what is read from it."""
        if block == NULL:
            return Difference("KV-MEM-01", where, f"token {low} in its slot", "the block was given up: null block")
        padded = [*held, *[None] * (len(expected) - len(held))]
        wrong = next(i for i, state in enumerate(expected) if padded[i] != state)
        return Difference(
            "KV-MEM-01",
            where,
            f"token {low + wrong} in block {block}: {self.states.describe(expected[wrong])}",
            self.states.describe(padded[wrong]),
        )


def _no_slot(where: str, token: int) -> Difference:
    return Difference("KV-MEM-02", where, f"a slot for token {token}", "the table has none")
