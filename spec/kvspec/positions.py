"""Free queues in which a block's place is a number: of two, the block with the lower one is handed out first.

The reference's own queues are run on them, and its own pool and holdings on top: only where a block is put at the front
or at the back is answered here. A release may be of any length: between the blocks that are looked at stand ``Others``,
so many of them as one likes.
"""

from __future__ import annotations

from typing import Any

from attrs import frozen

from kvreference.block_pool import BlockPool
from kvreference.free_queue import FreeQueue, ScratchFirstQueue
from kvspec.symbolic import Number


@frozen(eq=False)
class Others:
    """Blocks at which nobody looks."""

    blocks: Number
    scratch: bool


@frozen(eq=False)
class Scratch:
    """The blocks that are not cached, as a collection."""

    cached: Any
    """Block to whether it is cached, 0 or 1."""

    def __contains__(self, block: Any) -> bool:
        return block.scratch if isinstance(block, Others) else bool(self.cached[block] == 0)


class _Numbered(FreeQueue):
    """How a place is given and taken."""

    def __init__(self, place: Any, queued: Any, front: Number, back: Number) -> None:
        self.place = place
        self.queued = queued
        """Block to whether it is in the queue, 0 or 1."""
        self.front = front
        """No place is lower."""
        self.back = back
        """Every place is lower."""

    def append(self, block: Any) -> None:
        if isinstance(block, Others):
            self.back = self.back + block.blocks
            return
        self._put(block, self.back)
        self.back = self.back + 1

    def prepend(self, block: Any) -> None:
        if isinstance(block, Others):
            self.front = self.front - block.blocks
            return
        self.front = self.front - 1
        self._put(block, self.front)

    def remove(self, block: Any) -> None:
        self.queued = self.queued.put(block, 0)

    def _put(self, block: Any, place: Number) -> None:
        self.place = self.place.put(block, place)
        self.queued = self.queued.put(block, 1)


class PlainPositions(_Numbered):
    """The plain queue."""


class ScratchFirstPositions(_Numbered, ScratchFirstQueue):
    """The queue that hands out scratch first."""


class _References:
    """Reference counts that are written in place. Of others, each has one holder."""

    def __init__(self, counts: Any) -> None:
        self.counts = counts

    def __getitem__(self, block: Any) -> Any:
        return 1 if isinstance(block, Others) else self.counts[block]

    def __setitem__(self, block: Any, count: Any) -> None:
        if not isinstance(block, Others):
            self.counts = self.counts.put(block, count)


class NumberedPool(BlockPool):
    """A block pool over such a queue."""

    def __init__(self, references: Any, cached: Any, free: FreeQueue) -> None:
        # Both stand for collections of blocks that are known, of which they are asked what the pool asks.
        self.references = _References(references)  # type: ignore[assignment]
        self.scratch = Scratch(cached)
        self.free = free

    def _queue(self, blocks: Any) -> None:
        # What is not known cannot be put into a set: what is scratch is asked block by block, and is no collection.
        self.free.put(blocks, self.scratch)  # type: ignore[arg-type]
