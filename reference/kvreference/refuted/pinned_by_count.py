"""Refuted: a pin as a second reference.

The first design of the pinned tier gave every new block a count of two: one for its holder, one that keeps it when the
holder goes. A window drop took two from blocks that it freed and one from blocks that it pinned; the end of a request
took one. A block whose count fell to one was assumed to be pinned without a holder, and demotion took its last one.

So one number meant two things. Four loopholes follow, and each has its check here:

1. a drop takes two from a block that another request still holds (``undoes_another_holder``);
2. then its count says "pinned, no holder", and demotion frees it although it is held (``frees_under_holder``);
3. a block that was demoted and hit again has a count of one, and a drop takes two: with a count of minus one it is in
   no queue, and can never be allocated again (``loses_block``);
4. a pin does not outlive a hit and the drop that follows it (``forgets_pin``).

Source: the first commits of vLLM's pull request 40676, and its own account of why they were dropped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from kvreference.block_pool import NULL, BlockPool, Pinned
from kvreference.cached_map import Content
from kvreference.free_queue import FreeQueue
from kvreference.manager import Manager
from kvreference.settings import Settings
from kvreference.snapshot import Violation


class CountingPool(BlockPool):
    """A block pool in which a pin is a reference."""

    def __init__(self, blocks: int, drop_blocks_min: int) -> None:
        super().__init__(blocks)
        self.drop_blocks_min = drop_blocks_min
        self.tracked = FreeQueue()
        """Blocks whose count fell to one, the oldest first: taken to be pinned."""
        self.meant: frozenset[int] = frozenset()
        """The blocks pinned and not demoted since. The design does not know them; the checkers do."""

    def copy(self) -> CountingPool:
        other = super().copy()
        assert isinstance(other, CountingPool)
        other.drop_blocks_min = self.drop_blocks_min
        other.tracked = self.tracked.copy()
        other.meant = self.meant
        return other

    def pinned_blocks(self) -> Pinned:
        return Pinned(self.meant, tuple(self.tracked))

    def take(self, count: int) -> tuple[list[int], list[Content]]:
        blocks, lost = super().take(count)
        for block in blocks:
            self.references[block] = 2
        self.meant -= set(blocks)
        return blocks, lost

    def slide(self, blocks: Sequence[int], anchor: Sequence[int]) -> None:
        dropped = [block for block in blocks if block != NULL]
        pins = anchor if len(dropped) >= self.drop_blocks_min else ()
        self._release([block for block in dropped if block not in pins], 2)
        self.end(pins)

    def end(self, blocks: Sequence[int]) -> None:
        held = [block for block in blocks if block != NULL]
        self.meant |= {block for block in held if self.is_cached(block)}
        self._release(held, 1)

    def _release(self, blocks: Iterable[int], references: int) -> None:
        for block in blocks:
            self.references[block] -= references
            if self.references[block] == 0:
                self.free.append(block)
            elif self.references[block] == 1 and block not in self.tracked:
                self.tracked.append(block)

    def make_room(self, count: int, kept: Collection[int]) -> bool:
        for block in list(self.tracked):
            if count <= len(self.free):
                break
            self.tracked.remove(block)
            if self.references[block] == 1:
                self.references[block] = 0
                self.meant -= {block}
                self.free.append(block)
        return count <= len(self.free)


class PinnedByCount(Manager):
    """The block manager over such a pool."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.holdings.pool = CountingPool(settings.blocks, settings.pin_drop_blocks_min or 1)

    def counts(self) -> CountingPool:
        """The pool, by its own name."""
        assert isinstance(self.pool, CountingPool)
        return self.pool

    def holders(self) -> Counter[int]:
        """Per block, how many table entries name it."""
        return Counter(block for tables in self.tables.values() for table in tables for block in table.live())


def undoes_another_holder(manager: Manager) -> list[Violation]:
    """Loophole 1: a block counts fewer references than it has holders and, on top, its pin to come."""
    assert isinstance(manager, PinnedByCount)
    return [
        Violation("KV-INV-01", f"{held} requests hold block {block}, and its count of {count} leaves nothing for a pin")
        for block, held in sorted(manager.holders().items())
        if (count := manager.pool.references[block]) < held + 1
    ]


def frees_under_holder(manager: Manager) -> list[Violation]:
    """Loophole 2: a block is in the free queue while it is held."""
    assert isinstance(manager, PinnedByCount)
    return [
        Violation("KV-INV-02", f"block {block} is in the free queue while {held} requests hold it")
        for block, held in sorted(manager.holders().items())
        if block in manager.pool.free
    ]


def loses_block(manager: Manager) -> list[Violation]:
    """Loophole 3: a block has no holder and is in no queue."""
    assert isinstance(manager, PinnedByCount)
    held, pool = manager.holders(), manager.counts()
    return [
        Violation("KV-LEAK-01", f"block {block} has no holder, its count is {references}, and no queue has it")
        for block, references in enumerate(pool.references)
        if block != NULL and not held[block] and block not in pool.free and block not in pool.tracked
    ]


def forgets_pin(manager: Manager) -> list[Violation]:
    """Loophole 4: a block that was pinned and never demoted can be allocated."""
    assert isinstance(manager, PinnedByCount)
    return [
        Violation("KV-OP-22", f"block {block} was pinned and never demoted, and is in the free queue")
        for block in sorted(manager.counts().meant)
        if block in manager.pool.free
    ]
