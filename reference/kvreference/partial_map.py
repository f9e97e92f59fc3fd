"""The partial entries: which blocks begin with a given content.

A compressed block spans so many tokens that hits may end inside it. The prefix up to such a boundary is an entry of its
own: a request that shares it may copy the slots before the boundary. A block has as many entries as boundaries were
computed in it, whether it is full or not.
"""

from __future__ import annotations

from kvreference.cached_map import Content
from kvreference.state import State


class PartialMap(State, changing=("_blocks", "_contents")):
    """Content up to a boundary to the blocks that begin with it, and back."""

    def __init__(self) -> None:
        self._blocks: dict[Content, tuple[int, ...]] = {}
        self._contents: dict[int, tuple[Content, ...]] = {}
        self.offers = 0
        """How many boundaries were ever offered: the work that registering them took."""

    def register(self, content: Content, block: int) -> None:
        """From now on ``block`` is known to begin with ``content``; to offer it again changes nothing."""
        self.offers += 1
        blocks = self._blocks.get(content, ())
        if block not in blocks:
            self._blocks[content] = (*blocks, block)
            self._contents[block] = (*self._contents.get(block, ()), content)

    def forget(self, block: int) -> None:
        """Forget every boundary inside ``block``."""
        for content in self._contents.pop(block, ()):
            others = tuple(other for other in self._blocks.pop(content) if other != block)
            if others:
                self._blocks[content] = others

    def find(self, content: Content) -> int | None:
        """The block that serves ``content``, the one registered first, or None."""
        blocks = self._blocks.get(content)
        return None if blocks is None else blocks[0]

    def contents_of(self, block: int) -> tuple[Content, ...]:
        """The boundaries inside ``block``, in the order of their registration."""
        return self._contents.get(block, ())

    def blocks(self) -> frozenset[int]:
        """The blocks inside which a boundary is an entry."""
        return frozenset(self._contents)

    def entries(self) -> dict[Content, tuple[int, ...]]:
        """For every boundary, the blocks that begin with it, the one that serves first."""
        return dict(self._blocks)
