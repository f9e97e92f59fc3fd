"""One walk through a state: blocks and families of content are named in the order in which they are met."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from kvgate.explore.shapes import Shapes, named
from kvgate.monitors.slot_memory import GhostMemory
from kvreference.block_pool import NULL
from kvreference.cached_map import Content


class _InOrder(dict[int, int]):
    """Numbers things in the order in which they are asked for first."""

    def __missing__(self, thing: int) -> int:
        self[thing] = number = len(self)
        return number


class Walk:
    """One walk through a state, and the names that were given on it."""

    def __init__(self, shapes: Shapes) -> None:
        self._shapes = shapes
        self._families = _InOrder()
        self.blocks = _InOrder({NULL: 0})

    def along(self, blocks: Iterable[int]) -> Hashable:
        """Blocks by name."""
        return tuple(self.blocks[block] for block in blocks)

    def tokens(self, tokens: Sequence[int]) -> Hashable:
        """Tokens by name."""
        return named(self._shapes.of_tokens(tuple(tokens)), self._families)

    def content(self, content: Content) -> Hashable:
        """What a cached block holds, by name."""
        group, prefix = content
        return group, named(self._shapes.of_prefix(prefix), self._families)

    def memory(self, ghost: GhostMemory, block: int) -> Hashable:
        """What a worker wrote into a block, by name."""
        return named(self._shapes.of_slots(ghost.slots(block)), self._families)

    def chain(self, chain: tuple[int, ...]) -> Hashable:
        """The states of tokens in a row, by name."""
        return named(self._shapes.of_slots((0, chain)), self._families)
