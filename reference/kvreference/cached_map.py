"""The cached map: which blocks hold a given content.

Several blocks may hold the same content, computed by requests that ran at the same time. The one registered first
serves the hits, as long as it is cached.
"""

from __future__ import annotations

from typing import TypeAlias

from kvreference.content import Prefix
from kvreference.state import State

Content: TypeAlias = tuple[int, Prefix]
"""A group's index and the token prefix up to the block's end: layers of different groups never share state."""


class CachedMap(State, changing=("_blocks", "_content")):
    """Content to blocks and back, for a pool of ``blocks`` blocks.

    Raises:
        ValueError: a block is registered that holds cached content already.
    """

    def __init__(self, blocks: int) -> None:
        self._blocks: dict[Content, tuple[int, ...]] = {}
        self._content: list[Content | None] = [None] * blocks

    def register(self, content: Content, block: int) -> None:
        """From now on ``block`` is known to hold ``content``."""
        if self._content[block] is not None:
            raise ValueError(f"block {block} is already registered")
        self._content[block] = content
        self._blocks[content] = (*self._blocks.get(content, ()), block)

    def forget(self, block: int) -> Content | None:
        """Forget what ``block`` holds; returns it, or None if nothing was known."""
        content, self._content[block] = self._content[block], None
        if content is not None:
            others = tuple(other for other in self._blocks.pop(content) if other != block)
            if others:
                self._blocks[content] = others
        return content

    def find(self, content: Content) -> int | None:
        """The block that serves ``content``, or None."""
        blocks = self._blocks.get(content)
        return None if blocks is None else blocks[0]

    def blocks_of(self, content: Content) -> tuple[int, ...]:
        """The blocks that hold ``content``, the one that serves first."""
        return self._blocks.get(content, ())

    def content_of(self, block: int) -> Content | None:
        """The known content of ``block``, or None."""
        return self._content[block]

    def contents(self) -> list[Content | None]:
        """For each block, what it is known to hold, or None."""
        return list(self._content)

    def entries(self) -> dict[Content, tuple[int, ...]]:
        """For every content cached, the blocks that hold it, the one that serves first."""
        return dict(self._blocks)
