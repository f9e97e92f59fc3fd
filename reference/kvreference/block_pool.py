"""The block pool: who holds which block, which are free, and what the cached ones hold.

Block 0 is the null block: it stands in tables where nothing is needed any more, and is never held, free or cached.
"""

from __future__ import annotations

from collections.abc import Iterable

from kvreference.cached_map import CachedMap, Content
from kvreference.free_queue import FreeQueue

NULL = 0
"""The null block's id."""


class BlockPool:
    """All blocks of one system; ``blocks`` counts the null block."""

    def __init__(self, blocks: int) -> None:
        self.references = [0] * blocks
        """Per block, how many table entries name it. Not maintained for the null block."""
        self.free = FreeQueue(range(1, blocks))
        self.cached = CachedMap(blocks)

    def copy(self) -> BlockPool:
        """An independent pool in the same state."""
        other = BlockPool(1)
        other.references = list(self.references)
        other.free = self.free.copy()
        other.cached = self.cached.copy()
        return other

    def take(self, count: int) -> tuple[list[int], list[Content]]:
        """Take ``count`` blocks from the front of the free queue, for one holder each.

        Returns the blocks, and the content that was lost with them, in order.
        """
        blocks = [self.free.pop() for _ in range(count)]
        lost = [content for block in blocks if (content := self.cached.forget(block)) is not None]
        for block in blocks:
            self.references[block] = 1
        return blocks, lost

    def touch(self, blocks: Iterable[int]) -> None:
        """One more holder for each of ``blocks``; those that were free are no longer."""
        for block in blocks:
            if self.references[block] == 0:
                self.free.remove(block)
            self.references[block] += 1

    def release(self, blocks: Iterable[int]) -> None:
        """One holder fewer for each of ``blocks``; those without any go to the back of the free queue, in order.

        Null blocks are passed over.
        """
        for block in blocks:
            if block == NULL:
                continue
            self.references[block] -= 1
            if self.references[block] == 0:
                self.free.append(block)

    def reset(self) -> bool:
        """Forget all content, if nobody holds a block; returns whether it happened."""
        if len(self.free) != len(self.references) - 1:
            return False
        self.cached = CachedMap(len(self.references))
        return True
