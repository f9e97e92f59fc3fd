"""The block pool: who holds which block, which are free, and what the cached ones hold.

Block 0 is the null block: tables contain it where a block is not needed any more. It is never held, free or cached. A
block that is not cached can serve its holder only: it is *scratch*.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from attrs import frozen

from kvreference.cached_map import CachedMap, Content
from kvreference.free_queue import FreeQueue, ScratchFirstQueue
from kvreference.partial_map import PartialMap
from kvreference.rules import OWN_RULES, Rules
from kvreference.state import State

NULL = 0
"""The null block's id."""


@frozen
class Pinned:
    """The pinned blocks, and those of them without a holder in the order of their release."""

    blocks: frozenset[int] = frozenset()
    queue: tuple[int, ...] = ()


def contents_lost(full: Content | None, begun: Sequence[Content]) -> list[Content]:
    """The removals that events report when a block is lost that held ``full`` and began with ``begun``."""
    del begun
    return [] if full is None else [full]


def is_unused(references: Sequence[int]) -> bool:
    """Whether no block is held, given these reference counts; those to the null block do not count."""
    return not any(references[NULL + 1 :])


class BlockPool(State, changing=("references", "free", "cached", "partial")):
    """All blocks of one system; ``blocks`` counts the null block."""

    def __init__(self, blocks: int, scratch_first: bool = False, rules: Rules = OWN_RULES) -> None:
        self.rules = rules
        self.references = [0] * blocks
        """Per block, how many table entries name it and how many copies read it. Not kept for the null block."""
        self.free = (ScratchFirstQueue if scratch_first else FreeQueue)(range(1, blocks))
        self.cached = CachedMap(blocks)
        self.partial = PartialMap()

    def is_cached(self, block: int) -> bool:
        """Whether ``block`` is known to hold something that a hit could use."""
        return self.cached.content_of(block) is not None or bool(self.partial.contents_of(block))

    def pinned_blocks(self) -> Pinned:
        """What is pinned: nothing, without a pinned tier."""
        return Pinned()

    # Taking

    def make_room(self, count: int, kept: Collection[int]) -> bool:
        """Whether ``count`` blocks can be taken from the free queue. A pinned tier demotes others than ``kept``."""
        return count <= len(self.free)

    def count_free(self, blocks: Iterable[int]) -> int:
        """How many of ``blocks`` are in the free queue: to hold them takes them out of it."""
        return sum(self.references[block] == 0 for block in blocks)

    def take(self, count: int) -> tuple[list[int], list[Content]]:
        """Take ``count`` blocks from the front of the free queue, for one holder each.

        Returns the blocks, and the content that was lost with them, in order.

        Raises:
            LookupError: fewer are free.
        """
        if count > len(self.free):
            raise LookupError(f"{count} blocks are wanted, and {len(self.free)} are free")
        blocks: list[int] = []
        lost: list[Content] = []
        for _ in range(count):
            blocks.append(block := self.free.pop())
            lost += self._lose(block)
            self.references[block] = 1
        return blocks, lost

    def touch(self, blocks: Iterable[int]) -> None:
        """One more holder for each of ``blocks``; those that were free are no longer.

        Raises:
            LookupError: one of them is not a block of the pool.
        """
        blocks = list(blocks)
        if not all(NULL < block < len(self.references) for block in blocks):
            raise LookupError(f"not all of {blocks} are blocks of the pool")
        for block in blocks:
            if self.references[block] == 0:
                self._unqueue(block)
            self.references[block] += 1

    def _unqueue(self, block: int) -> None:
        self.free.remove(block)

    # Releasing

    def release(self, blocks: Iterable[int]) -> None:
        """One holder fewer for each of ``blocks``; those without any become free, in order. Null is passed over.

        That each has a holder is not checked.
        """
        self._queue(self._let_go(blocks))

    def release_last(self, blocks: Iterable[int]) -> None:
        """The same, but scratch does not go first."""
        self._queue(self._let_go(blocks), in_order=True)

    def _let_go(self, blocks: Iterable[int]) -> list[int]:
        freed = []
        for block in blocks:
            if block == NULL:
                continue
            self.references[block] -= 1
            if self.references[block] == 0:
                freed.append(block)
        return freed

    def _queue(self, blocks: Sequence[int], in_order: bool = False) -> None:
        self.free.put(blocks, () if in_order else {block for block in blocks if not self.is_cached(block)})

    def slide(self, blocks: Sequence[int], anchor: Sequence[int]) -> None:
        """Release ``blocks``, the later ones first, because the window slid past them.

        ``anchor`` are those of them that a hit at the last boundary among them reads, in the same order.
        """
        self.release(blocks)

    def end(self, blocks: Sequence[int]) -> None:
        """Release ``blocks``, the later ones first, because their request frees its table."""
        self.give_up(blocks)
        self.release(blocks)

    def give_up(self, blocks: Sequence[int]) -> None:
        """A request frees its table of ``blocks``, which are released separately; a pinned tier pins them."""

    # Knowing

    def register(self, content: Content, block: int) -> None:
        """From now on a held ``block`` is known to hold ``content``."""
        self._check_held(block)
        self.cached.register(content, block)

    def register_beginning(self, content: Content, block: int) -> None:
        """From now on a held ``block`` is known to begin with ``content``; to offer it again changes nothing."""
        self._check_held(block)
        self.partial.register(content, block)

    def _check_held(self, block: int) -> None:
        if block <= NULL or self.references[block] == 0:
            raise ValueError(f"block {block} has no holder")

    # Forgetting

    def evict(self, block: int) -> list[Content]:
        """Forget what ``block`` holds, also if a request holds it; returns the content that was lost.

        Raises:
            LookupError: there is no such block.
        """
        if not NULL <= block < len(self.references):
            raise LookupError(f"there is no block {block}")
        was_cached = self.is_cached(block)
        lost = self._lose(block)
        if was_cached and self.references[block] == 0:
            self.free.turned_scratch(block)
        return lost

    def _lose(self, block: int) -> list[Content]:
        begun = self.partial.contents_of(block)
        return self.rules.ask(contents_lost, self._forget(block), begun)

    def _forget(self, block: int) -> Content | None:
        self.partial.forget(block)
        return self.cached.forget(block)

    def reset(self) -> bool:
        """Forget all content if no block is held; returns whether it happened."""
        if not self.rules.ask(is_unused, self.references):
            return False
        self.cached = CachedMap(len(self.references))
        self.partial = PartialMap()
        return True
