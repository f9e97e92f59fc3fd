"""The prefix cache: the known content of blocks, and which requests it may serve."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from kvreference.answers import Hit, Statistics
from kvreference.block_pool import BlockPool
from kvreference.cached_map import Content
from kvreference.caching import register
from kvreference.content import Prefix
from kvreference.events import Event
from kvreference.geometry import Geometry
from kvreference.hit_lookup import longest_hit, tokens_known
from kvreference.population import Request, Status
from kvreference.retention import Dense, Retention, Sparse, junction
from kvreference.rules import OWN_RULES, Rules
from kvreference.settings import Settings
from kvreference.state import State
from kvreference.tables import Tables, content_up_to


def no_hit(geometry: Geometry) -> Hit:
    """A hit of nothing."""
    return Hit(0, ((),) * len(geometry.groups))


def yet_to_compute(cached: Sequence[Content], computes: bool, loaded: bool) -> Sequence[Content]:
    """The content that the worker has yet to compute of a request's states and begun blocks that are ``cached`` now.

    All of it, if a step ``computes`` it; nothing, if it was ``loaded``, or computed before.
    """
    return cached if computes and not loaded else []


JunctionOf: TypeAlias = "Callable[[PrefixCache, BlockPool, Sequence[Prefix], int, Hit], int]"
"""The junction, in tokens, of a request of which so many tokens may match and that has that hit."""


def no_junction(_cache: PrefixCache, _pool: BlockPool, _prefixes: Sequence[Prefix], _readable: int, _hit: Hit) -> int:
    """No junction is kept."""
    return 0


def junction_of(cache: PrefixCache, pool: BlockPool, prefixes: Sequence[Prefix], readable: int, hit: Hit) -> int:
    """Where a request parts from what full attention has cached."""
    known = tokens_known(cache.geometry, pool.cached, prefixes)
    return cache.rules.ask(junction, cache.geometry, known, readable, hit.tokens)


class NoPrefixCache(State):
    """Prefix caching is off: nothing is cached, counted or shared."""

    def __init__(self, geometry: Geometry, rules: Rules = OWN_RULES) -> None:
        self.geometry = geometry
        self.rules = rules
        self.statistics = Statistics()
        """Since they were last taken."""

    def look_up(self, pool: BlockPool, request: Request, prefixes: list[Prefix]) -> Hit:
        """The longest hit of ``request``, counted."""
        return no_hit(self.geometry)

    def is_ready(self, hit: Hit, prefixes: Sequence[Prefix]) -> bool:
        """Whether ``hit`` needs nothing that the worker has yet to compute."""
        return True

    def register(
        self,
        pool: BlockPool,
        request: Request,
        prefixes: Sequence[Prefix],
        tables: Tables,
        tokens: int,
        begun: int | None,
    ) -> list[Event]:
        """Cache what the first ``tokens`` tokens make due; a step computes those after ``begun``, if it is one."""
        return []

    def dispatched(self) -> None:
        """The content that the step computed may serve hits from now on."""

    def shared(self, leading: Sequence[int]) -> tuple[int, ...]:
        """How many of the blocks that every request holds per group are reported."""
        return (0,) * len(leading)


class PrefixCache(NoPrefixCache, changing=("fenced",)):
    """Prefix caching is on."""

    def __init__(
        self,
        geometry: Geometry,
        retention: Retention,
        partial_hit_tokens_min: int = 0,
        rules: Rules = OWN_RULES,
        junction_of: JunctionOf = no_junction,
    ) -> None:
        super().__init__(geometry, rules)
        self.retention = retention
        self.partial_hit_tokens_min = partial_hit_tokens_min
        """The shortest hit that may end inside a block."""
        self.junction_of = junction_of
        """The rule that says which junction of a request is kept."""
        self.fenced: set[Content] = set()
        """Content that this step computes and that cannot serve a hit before the step is dispatched."""

    def look_up(self, pool: BlockPool, request: Request, prefixes: list[Prefix]) -> Hit:
        """The longest hit, counted. A request that may not read the cache is not counted either.

        The request's junction is from then on the one of this look-up.
        """
        if not request.reads_cache:
            return no_hit(self.geometry)
        tokens, shortest = len(request.tokens), self.partial_hit_tokens_min
        readable = self.tokens_readable(tokens)
        hit = longest_hit(self.geometry, pool.cached, prefixes, tokens, pool.partial, shortest, self.rules, readable)
        self.statistics = self.statistics.counted(tokens, hit.tokens, request.preemptions > 0)
        request.junction_tokens = self.junction_of(self, pool, prefixes, readable - 1, hit)
        return hit

    def tokens_readable(self, tokens: int) -> int:
        """A hit of a request of ``tokens`` tokens matches fewer than these, look-ahead included."""
        return tokens

    def is_ready(self, hit: Hit, prefixes: Sequence[Prefix]) -> bool:
        """Whether ``hit`` needs no state, and no slot to be copied, that the worker has yet to compute."""
        copied = {partial.group for partial in hit.partials}
        ends = (
            (index, group.tokens_matched(hit.tokens))
            for index, group in enumerate(self.geometry.groups)
            if hit.tokens > 0 and (group.keeps_states or index in copied)
        )
        return not any(content_up_to(self.geometry, index, prefixes, end) in self.fenced for index, end in ends)

    def register(
        self,
        pool: BlockPool,
        request: Request,
        prefixes: Sequence[Prefix],
        tables: Tables,
        tokens: int,
        begun: int | None,
    ) -> list[Event]:
        verified = min(tokens, len(request.tokens))
        retention = self.retention.at_junction(request.junction_tokens)
        events, fenced = register(
            pool, self.geometry, retention, request, prefixes, tables, verified, begun, self.rules
        )
        self.fenced.update(self.rules.ask(yet_to_compute, fenced, begun is not None, request.status is Status.LOADING))
        return events

    def dispatched(self) -> None:
        self.fenced.clear()

    def shared(self, leading: Sequence[int]) -> tuple[int, ...]:
        return tuple(leading)


def new_cache(settings: Settings, rules: Rules = OWN_RULES) -> NoPrefixCache:
    """A cache that knows nothing yet."""
    geometry, interval_tokens = settings.geometry, settings.retention_interval_tokens
    if not settings.caches:
        return NoPrefixCache(geometry, rules)
    retention = Dense(geometry) if interval_tokens is None else Sparse(geometry, interval_tokens)
    # A dense cache leaves no boundary out.
    parts = junction_of if settings.keeps_junctions and interval_tokens is not None else no_junction
    return PrefixCache(geometry, retention, settings.partial_hit_tokens_min, rules, parts)
