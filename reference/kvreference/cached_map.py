"""The cached map: which blocks hold a given content.

Several blocks may hold the same content, computed by requests that ran side by side. The one registered first
serves the hits, as long as it is cached.
"""

from __future__ import annotations

from typing import TypeAlias

from kvreference.content import Prefix

Content: TypeAlias = tuple[int, Prefix]
"""A group's index and the token prefix up to the block's end: layers of different groups never share state."""


class CachedMap:
    """Content to blocks and back.

    Raises:
        ValueError: a block is registered that holds cached content already.
    """

    def __init__(self) -> None:
        self._blocks: dict[Content, dict[int, None]] = {}
        self._content: dict[int, Content] = {}

    def register(self, content: Content, block: int) -> None:
        """From now on ``block`` is known to hold ``content``."""
        if block in self._content:
            raise ValueError(f"block {block} is already registered")
        self._content[block] = content
        self._blocks.setdefault(content, {})[block] = None

    def forget(self, block: int) -> Content | None:
        """Forget what ``block`` holds; returns it, or None if nothing was known."""
        content = self._content.pop(block, None)
        if content is not None:
            blocks = self._blocks[content]
            del blocks[block]
            if not blocks:
                del self._blocks[content]
        return content

    def find(self, content: Content) -> int | None:
        """The block that serves ``content``, or None."""
        blocks = self._blocks.get(content)
        return None if blocks is None else next(iter(blocks))

    def content_of(self, block: int) -> Content | None:
        """What ``block`` is known to hold, or None."""
        return self._content.get(block)

    def entries(self) -> dict[Content, tuple[int, ...]]:
        """For every content cached, the blocks that hold it, the one that serves first."""
        return {content: tuple(blocks) for content, blocks in self._blocks.items()}

    def copy(self) -> CachedMap:
        """An independent map of the same content."""
        other = CachedMap()
        other._blocks = {content: dict(blocks) for content, blocks in self._blocks.items()}
        other._content = dict(self._content)
        return other
