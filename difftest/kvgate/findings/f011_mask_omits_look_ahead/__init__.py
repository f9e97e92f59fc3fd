"""Finding 011: Masked caching leaves out the look-ahead block that every hit asks for."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import evolve

from kvgate.findings.finding import Finding
from kvreference.choices import Choices
from kvreference.geometry import Geometry, Group
from kvreference.manager import OWN, Manager
from kvreference.prefix_cache import PrefixCache
from kvreference.retention import Retention, Sparse
from kvreference.settings import Settings


class MaskOmitsLookAhead(Manager):
    """What is cached is what hits read without their look-ahead blocks; what is looked up is with them."""

    def __init__(self, settings: Settings, choices: Choices = OWN) -> None:
        super().__init__(settings, choices)
        interval = settings.retention_interval_tokens
        if isinstance(self.cache, PrefixCache) and interval is not None:
            bare = Geometry(tuple(evolve(group, lookahead=False) for group in settings.geometry.groups))
            self.cache.retention = _WithoutLookAhead(Sparse(bare, interval))


class _WithoutLookAhead:
    def __init__(self, retention: Retention) -> None:
        self._retention = retention

    def due_tokens(self, group: Group, index: int, prompt_tokens: int) -> int | None:
        return self._retention.due_tokens(evolve(group, lookahead=False), index, prompt_tokens)

    def boundaries(self, start_tokens: int, end_tokens: int, prompt_tokens: int) -> Iterator[int]:
        return self._retention.boundaries(start_tokens, end_tokens, prompt_tokens)


FINDING = Finding(
    id="011-mask-omits-look-ahead",
    rank=11,
    releases=("0.22.1",),
    fault=MaskOmitsLookAhead,
)
