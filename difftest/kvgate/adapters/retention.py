"""The adapter for vLLM 0.20.2 with the plug-in ``swa_retention``: the same block manager, with what is switched on.

The plug-in is put in place as vLLM would, and stays: with nothing switched on it must not be noticed.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from attrs import evolve

from kvgate.adapters.groups import not_represented
from kvgate.adapters.stock import Stock
from kvreference.block_pool import Pinned
from kvreference.settings import Settings
from kvreference.snapshot import Snapshot


class Retention(Stock):
    """vLLM's block manager with the plug-in, under the gate's protocol.

    Raises:
        ValueError: settings for which the plug-in has nothing.
    """

    def __init__(self, settings: Settings) -> None:
        from swa_retention.config import Configuration
        from swa_retention.patches.attach import activate

        interval = settings.retention_interval_tokens
        # Without caching there is nothing to retain, and scratch goes first all the same.
        interval = 0 if settings.scratch_first and interval is None else interval
        drop = settings.pin_drop_blocks_min
        activate(Configuration(interval) if drop is None else Configuration(interval, True, drop))
        try:
            super().__init__(settings)
        finally:
            activate(Configuration())

    def refusal(self, settings: Settings) -> str | None:
        return next(chain(_refused(settings), not_represented(settings)), None)

    def snapshot(self) -> Snapshot:
        seen = evolve(super().snapshot(), scratch_first=self.settings.scratch_first)
        tier = getattr(self.manager.block_pool, "pinned_tier", None)
        if tier is None:
            return seen
        pinned = frozenset(block for block, is_pinned in enumerate(tier.pinned) if is_pinned)
        return evolve(seen, pinned=Pinned(pinned, tuple(self._walk(tier.queue))))


def _refused(settings: Settings) -> Iterator[str]:
    if settings.caches and settings.scratch_first != (settings.retention_interval_tokens is not None):
        yield "scratch first and a retention interval: the plug-in has both or neither"


def install() -> None:
    """Put the plug-in's patches in place.

    Raises:
        swa_retention.register.IncompatibleError: they do not fit this vLLM.
    """
    from swa_retention.features import FEATURES
    from swa_retention.register import apply

    for feature in FEATURES:
        apply(feature.patches)
