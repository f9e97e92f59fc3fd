"""An ideal second tier next to a simulation: what requests could have hit, had the host kept what was computed.

Every full block of every group is in the tier as soon as it is computed, and is loaded in no time, wherever a hit may
end. What is used longest ago goes first. Requests are served as they are without a tier: only what they could hit is
counted, so what follows from shorter prefills is not in it. No connector promises that much.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, cast

from kvreference.cached_map import CachedMap, Content
from kvreference.content import Prefix
from kvreference.geometry import Geometry
from kvreference.hit_lookup import longest_hit


class _Either:
    """What the device or the tier holds, as a look-up asks for it."""

    def __init__(self, device: CachedMap, tier: IdealTier) -> None:
        self._device, self._tier = device, tier

    def find(self, content: Content) -> int | None:
        """A block of the device, or block 0 for one of the tier."""
        block = self._device.find(content)
        return 0 if block is None and content in self._tier.kept else block


class IdealTier:
    """The blocks on the host, by what they hold."""

    def __init__(self, geometry: Geometry, blocks: int) -> None:
        self.geometry = geometry
        self.blocks = blocks
        self.kept: OrderedDict[Content, None] = OrderedDict()
        """The one used longest ago first."""

    def hit_tokens(self, device: CachedMap, prefixes: list[Prefix], tokens: int) -> int:
        """How much of a request of so many tokens the device and the tier have together, for all groups; it is used."""
        either = cast(Any, _Either(device, self))
        hit = longest_hit(self.geometry, either, prefixes, tokens)
        self._use(prefixes, hit.tokens)
        return hit.tokens

    def store(self, prefixes: Sequence[Prefix], tokens: int) -> None:
        """The first ``tokens`` tokens of a request are computed."""
        for content in self._contents(prefixes, tokens):
            self.kept[content] = None
            self.kept.move_to_end(content)
        while len(self.kept) > self.blocks:
            self.kept.popitem(last=False)

    def _use(self, prefixes: Sequence[Prefix], tokens: int) -> None:
        for content in self._contents(prefixes, tokens):
            if content in self.kept:
                self.kept.move_to_end(content)

    def _contents(self, prefixes: Sequence[Prefix], tokens: int) -> Sequence[Content]:
        """The full blocks of all groups, the last first: where one is missing, those after it are worth nothing."""
        grain = self.geometry.grain_tokens
        found = [
            (end, index, prefixes[end // grain - 1])
            for index, group in enumerate(self.geometry.groups)
            for end in range(group.block_size_tokens, tokens + 1, group.block_size_tokens)
            if end <= len(prefixes) * grain
        ]
        return [(index, prefix) for _, index, prefix in sorted(found, key=lambda each: each[:2], reverse=True)]
