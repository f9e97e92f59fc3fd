"""The residency of blocks: a scheduler that measures how long blocks are kept reports every block that is reused."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kvgate.adapters.tap import Raises, Tap

TIMES = 4
"""How many uses of a block are remembered: vLLM publishes the times between them."""


class Residency(Raises):
    """How often each block was used since it was allocated; times are not compared."""

    def __init__(self, pool: Any, caches: bool) -> None:
        self.caches = caches
        self._uses: dict[int, int] = {}
        self.reused: list[int] = []
        """Per block that was evicted and not taken yet, how many times between its uses are published."""
        tap = Tap(self)
        tap.watch(pool, "get_new_blocks", after=self._allocated)
        tap.watch(pool, "touch", after=self._used)
        tap.watch(pool, "evict_blocks", after=self._evicted)
        tap.watch(pool, "reset_prefix_cache", after=self._reset)

    def take(self) -> tuple[int, ...]:
        """Per block that was evicted since it was asked last, how many times between its uses are published."""
        reused, self.reused = tuple(self.reused), []
        return reused

    def _allocated(self, blocks: Sequence[Any], *_count: int) -> None:
        if self.caches:
            self._evict(block.block_id for block in blocks)
        self._uses.update(dict.fromkeys((block.block_id for block in blocks), 0))

    def _used(self, _answer: None, blocks: Iterable[Any]) -> None:
        for block in blocks:
            if block.block_id in self._uses:
                self._uses[block.block_id] += 1

    def _evicted(self, _answer: None, blocks: Iterable[int]) -> None:
        self._evict(blocks)

    def _evict(self, blocks: Iterable[int]) -> None:
        self.reused += [max(0, min(self._uses.pop(block), TIMES) - 1) for block in blocks if block in self._uses]

    def _reset(self, done: bool) -> None:
        if done:
            self._uses, self.reused = {}, []
