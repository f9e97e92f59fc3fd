"""Refuted: boundaries that are offered again in every step.

The boundaries inside a compressed block were computed from the request's whole length each time that blocks were
cached, which is in every step. Nothing was wrong with the cache; but a decode step cost more the longer the context
was, until the scheduler did nothing else.

Source: the account of vLLM-Ascend's pull request 10193, which registers each request's boundaries exactly once.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvreference.block_pool import BlockPool
from kvreference.content import Prefix
from kvreference.events import Event
from kvreference.manager import Manager
from kvreference.population import Request
from kvreference.prefix_cache import PrefixCache, new_cache
from kvreference.settings import Settings
from kvreference.tables import Tables


class ForgetfulCache(PrefixCache):
    """A prefix cache that does not remember which boundaries it has seen."""

    def register(
        self,
        pool: BlockPool,
        request: Request,
        prefixes: Sequence[Prefix],
        tables: Tables,
        tokens: int,
        begun: int | None,
    ) -> list[Event]:
        for table in tables:
            table.boundary_tokens = 0
        return super().register(pool, request, prefixes, tables, tokens, begun)


class RepeatedRegistration(Manager):
    """The block manager with such a cache."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        cache = new_cache(settings)
        assert isinstance(cache, PrefixCache), "prefix caching is on"
        self.cache = ForgetfulCache(self.geometry, cache.retention)
