"""Refuted: a gate that does not demote.

Pinned blocks are not free. If an admission gate counts free blocks and rejects without demoting first, unused pins keep
every request out. Since nothing runs, nothing ends, and this never changes.

Source: the repair in vLLM's pull request 40676 after its rebase: two gates had been added that did not know the tier.
"""

from __future__ import annotations

from collections.abc import Collection

from kvreference.holdings import new_pool
from kvreference.manager import Manager
from kvreference.pinned_tier import PinnedPool
from kvreference.settings import Settings


class UnguardedPool(PinnedPool):
    """A pinned tier that is never asked to give anything back."""

    def make_room(self, count: int, kept: Collection[int]) -> bool:
        return count <= len(self.free)


class UnguardedGate(Manager):
    """The block manager with such a gate."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        pool = new_pool(settings)
        assert isinstance(pool, PinnedPool), "the settings have a pinned tier"
        self.holdings.pool = UnguardedPool(settings.blocks, settings.scratch_first, pool.drop_blocks_min)
