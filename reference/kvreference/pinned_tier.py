"""The pinned tier: cached blocks that the free queue cannot reach.

As a window slides, the blocks before it are released and soon recycled. The anchor that the next request with the same
prefix needs is lost with them. So such blocks can be *pinned*: without a holder they wait in a queue of their own, from
which nothing is allocated. Under pressure the oldest are *demoted*: unpinned, and moved to the back of the free queue,
where they are still cached until they are taken.

A pin is a flag, and reference counts count holders only. A pin outlives a hit and the release after it; it ends when
the block is demoted or its content is forgotten.

Source: the `is_pinned` design of vLLM's pull request 40676.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from kvreference.block_pool import NULL, BlockPool, Pinned
from kvreference.cached_map import Content
from kvreference.free_queue import FreeQueue
from kvreference.rules import OWN_RULES, Rules


class PinnedPool(BlockPool, changing=("is_pinned", "pinned")):
    """A block pool with a pinned tier."""

    def __init__(self, blocks: int, scratch_first: bool, drop_blocks_min: int, rules: Rules = OWN_RULES) -> None:
        super().__init__(blocks, scratch_first, rules)
        self.drop_blocks_min = drop_blocks_min
        """A window drop of fewer blocks pins none: decoding drops blocks that no other request will ask for."""
        self.is_pinned = [False] * blocks
        """Per block, whether it is pinned, held or not."""
        self.pinned = FreeQueue()
        """The pinned blocks without a holder, the oldest first."""

    def pinned_blocks(self) -> Pinned:
        return Pinned(frozenset(block for block, pinned in enumerate(self.is_pinned) if pinned), tuple(self.pinned))

    # Pinning

    def slide(self, blocks: Sequence[int], anchor: Sequence[int]) -> None:
        """Release ``blocks``; of a long drop, those that a hit at the last boundary in it reads stay pinned."""
        if sum(block != NULL for block in blocks) >= self.drop_blocks_min:
            self._pin(anchor)
        self.release(blocks)

    def give_up(self, blocks: Sequence[int]) -> None:
        """All cached blocks are pinned, and stay so for the next turn of the same conversation."""
        self._pin(blocks)

    def _pin(self, blocks: Iterable[int]) -> None:
        for block in blocks:
            if block != NULL:
                self._check_held(block)
                # A block that serves no hit is not worth keeping.
                self.is_pinned[block] = self.is_cached(block)

    # Demotion

    def make_room(self, count: int, kept: Collection[int]) -> bool:
        """Whether ``count`` blocks can be taken, after the oldest pinned ones were demoted as far as need be.

        ``kept`` are not demoted: the caller is about to hold them. If demotion cannot help, nothing is demoted.
        """
        lacking = count - len(self.free)
        demotable = tuple(block for block in self.pinned if block not in kept)
        if lacking > len(demotable):
            return False
        for block in demotable[: max(0, lacking)]:
            self._unpin(block)
        return True

    def _unpin(self, block: int) -> None:
        self.pinned.remove(block)
        self.is_pinned[block] = False
        self._queue([block])

    # Where a block without a holder waits

    def count_free(self, blocks: Iterable[int]) -> int:
        return super().count_free(block for block in blocks if not self.is_pinned[block])

    def _unqueue(self, block: int) -> None:
        (self.pinned if self.is_pinned[block] else self.free).remove(block)

    def _queue(self, blocks: Sequence[int], in_order: bool = False) -> None:
        super()._queue([block for block in blocks if not self.is_pinned[block]], in_order)
        for block in blocks:
            if self.is_pinned[block]:
                self.pinned.append(block)

    def _forget(self, block: int) -> Content | None:
        content = super()._forget(block)
        if self.is_pinned[block] and self.references[block] == 0:
            self._unpin(block)
        self.is_pinned[block] = False
        return content

    def reset(self) -> bool:
        """Forget all content, and unpin all blocks, the oldest first."""
        done = super().reset()
        for block in list(self.pinned) if done else ():
            self._unpin(block)
        return done
