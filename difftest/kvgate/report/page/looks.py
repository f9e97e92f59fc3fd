"""What one side says of single blocks, worked out once for each state."""

from __future__ import annotations

from collections.abc import Hashable

from kvgate.report.page.names import Named
from kvgate.report.page.recording import Side
from kvreference.block_pool import NULL


class Look:
    """One side after one operation."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self.snapshot = side.snapshot
        self._holders: dict[int, tuple[int, ...]] = {}
        if self.snapshot is not None:
            for number, tables in sorted(self.snapshot.tables.items()):
                for block in {block for table in tables for block in table}:
                    self._holders[block] = (*self._holders.get(block, ()), number)

    @property
    def free(self) -> int:
        """How many blocks are free."""
        return 0 if self.snapshot is None else self.snapshot.blocks_free

    def holders(self, block: int) -> tuple[int, ...] | None:
        """The requests whose tables name a block.

        None if nobody holds it; empty if it counts a holder and nobody names it.
        """
        if self.snapshot is None:
            return None
        return self._holders.get(block) or (() if self.snapshot.references[block] > 0 and block != NULL else None)

    def content(self, block: int) -> Named | None:
        """What it holds."""
        return self.side.contents[block] if self.side.contents else None

    def is_pinned(self, block: int) -> bool:
        """Whether it is pinned."""
        return self.snapshot is not None and block in self.snapshot.pinned.blocks

    def told(self, block: int) -> Hashable:
        """All that is said of it, for comparison."""
        if self.snapshot is None:
            return None
        return self.snapshot.references[block], self.holders(block), self.content(block), self.is_pinned(block)
