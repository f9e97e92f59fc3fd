"""Ghost memory: what every physical slot would hold, if a worker did what the tables say.

Every token that is computed writes its state into its slot, and reads the states that its attention covers. The
ghost keeps for each slot which state was written there last, and so sees a stale or foreign hit, a block that two
requests write, or a window that was released too early, whatever the manager believes.

A state is identified by everything it depends on: cache salt, adapter, every token up to it, and the multimodal
items that lie there. The time per step grows with the tokens that the step's attention reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from kvgate.difference import Difference
from kvgate.monitors.monitor import Step
from kvgate.system import System
from kvreference.answers import Granted
from kvreference.block_pool import NULL
from kvreference.geometry import Group
from kvreference.operations import Abort, Admit, Finish, OfRequest, Schedule
from kvreference.population import Request
from kvreference.settings import Settings

Origin: TypeAlias = tuple[object, ...]
"""How a state came about: the state before it, the token, and the multimodal item there with the offset in it. The
first state of all has salt and adapter for a token."""

_JUNK = -1
"""What a draft layer leaves in a look-ahead slot: nothing that anyone may read."""


class States:
    """Numbers for states: equal numbers exactly for equal origins."""

    def __init__(self) -> None:
        self._numbers: dict[Origin, int] = {}
        self._origins: list[Origin] = []

    def number(self, *origin: object) -> int:
        """The number of the state with this origin."""
        number = self._numbers.get(origin)
        if number is None:
            number = self._numbers[origin] = len(self._origins)
            self._origins.append(origin)
        return number

    def describe(self, number: int | None) -> str:
        """A state in words: which token of which prefix."""
        if number is None:
            return "nothing was ever written there"
        if number == _JUNK:
            return "what a draft layer left in a look-ahead slot"
        position = -2
        chain: object = number
        token = self._origins[number][1]
        root: object = None
        while isinstance(chain, int):
            root = self._origins[chain][1]
            chain = self._origins[chain][0]
            position += 1
        return f"state {number}: token {token} at position {position}, salt and adapter {root}"


class GhostMemory:
    """The physical slots of one system, and what they hold."""

    name = "ghost"

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.states = States()
        self._slots: dict[int, tuple[int, list[int | None]]] = {}
        """Per block, the group that wrote it last, and the states in its slots."""
        self._chains: dict[int, list[int]] = {}
        """Per request, the states of its tokens."""
        self._computed: dict[int, int] = {}

    def observe(self, step: Step) -> Difference | None:
        """Do what the step orders, and check whatever its attention reads."""
        operation = step.operation
        if not isinstance(operation, OfRequest):
            return None
        number = operation.request
        if isinstance(operation, (Finish, Abort)):
            self._chains.pop(number, None)
            self._computed.pop(number, None)
            return None
        found = None
        request = step.population[number]
        if isinstance(operation, (Admit, Schedule)) and isinstance(step.answer, Granted):
            first_step = isinstance(operation, Admit)
            start = step.answer.hit_tokens if first_step else self._computed[number]
            lookahead = 0 if first_step else self.settings.lookahead_tokens
            found = self._compute(request, start, step.snapshot.tables.get(number, ()), lookahead)
        self._computed[number] = request.tokens_computed
        return found

    def at_rest(self, system: System) -> Iterable[Difference]:
        """Nothing: what no request reads cannot be wrong."""
        del system
        return ()

    def _chain(self, request: Request) -> list[int]:
        """The states of the request's tokens, drafts included."""
        chain = self._chains.setdefault(request.number, [])
        self._extend(chain, request, request.tokens)
        if not request.drafts:
            return chain
        with_drafts = list(chain)
        self._extend(with_drafts, request, [*request.tokens, *request.drafts])
        return with_drafts

    def _extend(self, chain: list[int], request: Request, tokens: Sequence[int]) -> None:
        keys = request.keys
        state = chain[-1] if chain else self.states.number(None, (keys.salt, keys.lora), None)
        for position in range(len(chain), len(tokens)):
            media = keys.media_within(position, position + 1) if keys.media else ()
            state = self.states.number(state, tokens[position], media)
            chain.append(state)

    def _compute(
        self, request: Request, start: int, tables: Sequence[Sequence[int]], lookahead: int
    ) -> Difference | None:
        """Compute the tokens from ``start`` to where the request stands now, in every group."""
        chain = self._chain(request)
        end = request.tokens_computed
        if len(tables) != len(self.settings.geometry.groups):
            return Difference("KV-MEM-02", "tables", "a table in every group", f"{len(tables)} tables")
        for index, (group, table) in enumerate(zip(self.settings.geometry.groups, tables, strict=True)):
            where = f"request {request.number}, group {index}"
            drafted = min(end + lookahead, self.settings.tokens_max) if group.lookahead else end
            found = self._write(index, group, table, chain, (start, end, drafted), where)
            found = found or self._read(index, group, table, chain, (start, end), where)
            if found:
                return found
        return None

    def _write(
        self,
        index: int,
        group: Group,
        table: Sequence[int],
        chain: Sequence[int],
        span: tuple[int, int, int],
        where: str,
    ) -> Difference | None:
        """Write the states of the tokens from ``start`` to ``end``, and junk from there to ``drafted``."""
        start, end, drafted = span
        size = group.block_size_tokens
        for position in range(start // size, group.blocks_occupied(drafted)):
            if position >= len(table) or table[position] == NULL:
                return Difference(
                    "KV-MEM-02", where, f"a slot for token {max(start, position * size)}", "the table has none"
                )
            block = table[position]
            writer, slots = self._slots.get(block, (None, []))
            if writer != index:
                slots = [None] * size
                self._slots[block] = (index, slots)
            first = position * size
            for token in range(max(start, first), min(drafted, first + size)):
                slots[token - first] = chain[token] if token < end else _JUNK
        return None

    def _read(
        self,
        index: int,
        group: Group,
        table: Sequence[int],
        chain: Sequence[int],
        span: tuple[int, int],
        where: str,
    ) -> Difference | None:
        """Read what the attention of the tokens from ``start`` to ``end`` covers."""
        start, end = span
        size = group.block_size_tokens
        begin = 0 if group.window_tokens is None else max(0, start - group.window_tokens + 1)
        for position in range(begin // size, group.blocks_occupied(end)):
            first = position * size
            low, high = max(begin, first), min(end, first + size)
            if position >= len(table):
                return Difference("KV-MEM-02", where, f"a slot for token {low}", "the table has none")
            block = table[position]
            writer, slots = self._slots.get(block, (None, []))
            held = slots[low - first : high - first] if writer == index and block != NULL else []
            if held != chain[low:high]:
                return self._misread(low, list(chain[low:high]), held, block, where)
        return None

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
