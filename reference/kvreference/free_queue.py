"""The free queue: the blocks that no request holds, in the order in which they will be allocated.

The order decides what survives in the prefix cache, so it is part of the specification. Blocks are taken from the
front; a block put at the back outlives those in front of it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Sequence

from kvreference.state import State


class FreeQueue(State, changing=("_order",)):
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

    def __reversed__(self) -> Iterator[int]:
        return reversed(self._order)

    def append(self, block: int) -> None:
        """Put ``block`` at the back: it is allocated after all that are queued now."""
        if block in self._order:
            raise ValueError(f"block {block} is already in the free queue")
        self._order[block] = None

    def prepend(self, block: int) -> None:
        """Put ``block`` at the front: it is allocated next."""
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

    def put(self, blocks: Sequence[int], scratch: Collection[int]) -> None:
        """Blocks that become free, in order; those in ``scratch`` are not cached."""
        for block in blocks:
            self.append(block)

    def turned_scratch(self, block: int) -> None:
        """A queued ``block`` is cached no longer."""


class ScratchFirstQueue(FreeQueue):
    """A free queue that allocates scratch before cached blocks.

    A cached block still goes to the back, so that it outlives those in front of it.
    """

    def put(self, blocks: Sequence[int], scratch: Collection[int]) -> None:
        super().put([block for block in blocks if block not in scratch], ())
        for block in reversed(blocks):
            if block in scratch:
                self.prepend(block)

    def turned_scratch(self, block: int) -> None:
        self.remove(block)
        self.prepend(block)
