"""Demotion: the running ``PinnedPool.make_room`` over a free queue that is only counted."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from kvreference.free_queue import FreeQueue
from kvreference.pinned_tier import PinnedPool
from kvspec.progress.stand_ins import Counted, counted


class CountedQueue(Counted):
    """A free queue of which only the length is known, and which gets longer."""

    def put(self, blocks: Sequence[int], scratch: Collection[int]) -> None:
        """Some blocks more are free."""
        del scratch
        object.__setattr__(self, "number", self.number + len(blocks))


class AllCached(PinnedPool):
    """A pinned tier over blocks of which each is cached, as whatever is pinned is."""

    def is_cached(self, block: int) -> bool:
        del block
        return True


def pool_of(pinned: int, free: Any) -> PinnedPool:
    """A pool in which blocks 1 to ``pinned`` are pinned, the first the oldest, and ``free`` others are free."""
    made = object.__new__(AllCached)
    made.is_pinned = [False, *[True] * pinned]
    made.pinned = FreeQueue(range(1, pinned + 1))
    queue: Any = CountedQueue(free)
    made.free = queue
    return made


class Demotion:
    """What one request for room did."""

    def __init__(self, u: Any, pinned_most: int) -> None:
        pinned = next(n for n in range(pinned_most + 1) if u.pinned == n)
        self.kept = [block for block in range(1, pinned + 1) if getattr(u, f"kept{block}") == 1]
        with counted():
            pool = pool_of(pinned, u.free)
            self.granted = pool.make_room(u.wanted, self.kept)
        self.before = list(range(1, pinned + 1))
        self.left = list(pool.pinned)
        self.demotable = [block for block in self.before if block not in self.kept]
        free: Any = pool.free
        self.free = free.number
