"""Refuted: a mask that does not know the look-ahead.

Masked caching kept the tail before every boundary. With a draft layer a hit must match one more block, after the
boundary. That block was never cached: every look-up found nothing, and the hit rate was 0 %.

Source: vLLM's pull requests 42258 (the mask) and 44082 (its repair).
"""

from __future__ import annotations

from attrs import evolve, frozen

from kvreference.geometry import Group
from kvreference.manager import Manager
from kvreference.prefix_cache import PrefixCache
from kvreference.retention import Sparse
from kvreference.settings import Settings


@frozen
class UnshiftedSparse(Sparse):
    """Retention that asks what a hit would read if no draft layer lived anywhere."""

    def due_tokens(self, group: Group, index: int, prompt_tokens: int) -> int | None:
        return super().due_tokens(evolve(group, lookahead=False), index, prompt_tokens)


class MaskWithoutShift(Manager):
    """The block manager with such a mask."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.cache = PrefixCache(self.geometry, UnshiftedSparse(self.geometry, settings.retention_interval_tokens or 0))
