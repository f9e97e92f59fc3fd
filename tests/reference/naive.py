"""The same once more, naively: what each block was filled with is spelled out, and every hit is found by scanning.

Nothing here is interned, counted ahead or aligned by formula. What is spelled out is the tokens themselves.
"""

from __future__ import annotations

from collections.abc import Hashable

from kvreference.answers import Answer, Granted, Hit
from kvreference.content import Keys
from kvreference.geometry import Geometry
from kvreference.manager import Manager
from kvreference.operations import Admit, Operation, Schedule
from kvreference.population import Request


def _label(keys: Keys, token: int) -> Hashable:
    """Which item the token at a position belongs to, and where in it."""
    for item in keys.media:
        if item.offset_tokens <= token < item.offset_tokens + item.length_tokens:
            return item.identifier, token - item.offset_tokens
    return None


def spelled(geometry: Geometry, request: Request, group: int, position: int) -> Hashable:
    """All that the block at ``position`` of a request depends on."""
    end = (position + 1) * geometry.groups[group].block_size_tokens
    assert end <= len(request.tokens), "a block that is not full is no content"
    keys = request.keys
    return group, keys.salt, keys.lora, tuple((request.tokens[i], _label(keys, i)) for i in range(end))


class Ledger:
    """What each cached block was seen to be filled with, in the order in which they were cached."""

    def __init__(self, geometry: Geometry) -> None:
        self.geometry = geometry
        self.filled: dict[int, Hashable] = {}

    def observe(self, manager: Manager, operation: Operation, answer: Answer) -> None:
        """Enter what ``operation`` cached: blocks of the request that it allocated for, and no others."""
        contents = manager.snapshot().contents
        granted = {block for blocks in answer.blocks for block in blocks} if isinstance(answer, Granted) else set()
        self.filled = {
            block: what for block, what in self.filled.items() if block not in granted and contents[block] is not None
        }
        if isinstance(operation, (Admit, Schedule)) and isinstance(answer, Granted):
            request = manager.population[operation.request]
            for group, table in enumerate(manager.tables[operation.request]):
                for position, block in enumerate(table.blocks):
                    if contents[block] is not None and block not in self.filled:
                        self.filled[block] = spelled(self.geometry, request, group, position)
        assert {block for block, content in enumerate(contents) if content is not None} == set(self.filled)

    def serving(self, request: Request, group: int, position: int) -> int | None:
        """The block that was cached first of those filled with what a request needs."""
        wanted = spelled(self.geometry, request, group, position)
        return next((block for block, what in self.filled.items() if what == wanted), None)

    def _blocks_read(self, group: int, length: int) -> set[int]:
        """The blocks of the tokens that the token at ``length`` reads."""
        shape = self.geometry.groups[group]
        start = 0 if shape.window_tokens is None else length - shape.window_tokens + 1
        return {token // shape.block_size_tokens for token in range(max(0, start), length)}

    def _hits(self, request: Request, length: int) -> bool:
        for group, shape in enumerate(self.geometry.groups):
            size = shape.block_size_tokens
            if length % size != 0:
                return False
            needed = self._blocks_read(group, length)
            if shape.lookahead and length > 0:
                if length + size > len(request.tokens) - 1:
                    return False
                needed.add(length // size)
            if any(self.serving(request, group, position) is None for position in needed):
                return False
        return True

    def longest_hit(self, request: Request) -> Hit:
        """The longest hit: try every length."""
        length = max(length for length in range(len(request.tokens)) if self._hits(request, length))
        tables = []
        for group, shape in enumerate(self.geometry.groups):
            read = self._blocks_read(group, length)
            positions = range(length // shape.block_size_tokens)
            tables.append(tuple((self.serving(request, group, i) or 0) if i in read else 0 for i in positions))
        return Hit(length, tuple(tables))
