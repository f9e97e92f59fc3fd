"""The free queue: the blocks nobody holds, in the order in which they will be handed out.

The order decides what survives in the prefix cache, so it is part of the specification: blocks are taken from the
front; whatever is put at the back outlives what stood before it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator


class FreeQueue:
    """A sequence of distinct block ids with removal from the middle.

    Raises:
        ValueError: a block is put in twice.
        LookupError: a block is taken that is not there.
    """

    def __init__(self, blocks: Iterable[int] = ()) -> None:
        self._order: OrderedDict[int, None] = OrderedDict.fromkeys(blocks)

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Iterator[int]:
        return iter(self._order)

    def append(self, block: int) -> None:
        """Put ``block`` at the back: it is handed out after all that are queued now."""
        if block in self._order:
            raise ValueError(f"block {block} is already in the free queue")
        self._order[block] = None

    def prepend(self, block: int) -> None:
        """Put ``block`` at the front: it is handed out next."""
        self.append(block)
        self._order.move_to_end(block, last=False)

    def pop(self) -> int:
        """Take the block at the front."""
        if not self._order:
            raise LookupError("the free queue is empty")
        return self._order.popitem(last=False)[0]

    def remove(self, block: int) -> None:
        """Take ``block`` out, wherever it stands."""
        if block not in self._order:
            raise LookupError(f"block {block} is not in the free queue")
        del self._order[block]

    def copy(self) -> FreeQueue:
        """An independent queue of the same order."""
        return FreeQueue(self._order)
