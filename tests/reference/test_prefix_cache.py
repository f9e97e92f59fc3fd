"""The prefix cache: which requests it serves, what it counts, and what is not ready yet."""

from __future__ import annotations

import pytest

from kvreference.answers import Hit, Partial, Statistics
from kvreference.block_pool import BlockPool
from kvreference.content import Keys, Prefix, Prefixes
from kvreference.geometry import Geometry, Group
from kvreference.population import Request, Status
from kvreference.prefix_cache import NoPrefixCache, PrefixCache, new_cache, no_hit
from kvreference.retention import Dense, Sparse
from kvreference.settings import Settings
from kvreference.tables import Table

WINDOW = Group("sliding_window", 4, 9)
UNIT = Group("full", 16, compress_ratio=4, unit_tokens=4)
DRAFTING = Group("full", 16, compress_ratio=4, unit_tokens=4, lookahead=True)
STATES = Group("mamba", 4, states="all")


def known_of(geometry: Geometry, tokens: int) -> list[Prefix]:
    """The prefixes of ``tokens`` tokens."""
    prefixes: list[Prefix] = []
    Prefixes(geometry.grain_tokens).extend(prefixes, range(tokens), Keys())
    return prefixes


def computed(
    geometry: Geometry, cache: NoPrefixCache, tokens: int, now: bool, status: Status = Status.RUNNING
) -> tuple[BlockPool, list[Prefix]]:
    """A pool in which the first ``tokens`` tokens were registered; group ``g`` has block ``10 * g + i + 1`` at
    position ``i``.
    """
    prefixes = known_of(geometry, 40)
    request = Request(0, list(range(40)), Keys(), reads_cache=True, prompt_tokens=40, status=status)
    tables = [Table([10 * g + i + 1 for i in range(10)], 0, 0) for g in range(len(geometry.groups))]
    pool = BlockPool(40)
    pool.touch(block for table in tables for block in table.blocks)
    cache.register(pool, request, prefixes, tables, tokens, 0 if now else None)
    return pool, prefixes


@pytest.mark.parametrize(("interval_tokens", "kind"), [(None, Dense), (0, Sparse), (8, Sparse)])
def test_retention_is_what_the_settings_say(interval_tokens: int | None, kind: type) -> None:
    """Goal: no interval is dense caching, none at all with caching off. Method: each; the interval is taken over."""
    geometry = Geometry((WINDOW,))
    cache = new_cache(Settings(geometry, 8, retention_interval_tokens=interval_tokens))
    assert isinstance(cache, PrefixCache)
    assert type(cache.retention) is kind
    assert interval_tokens == getattr(cache.retention, "interval_tokens", None)
    assert type(new_cache(Settings(geometry, 8, caches=False))) is NoPrefixCache


def test_switched_off_it_knows_nothing() -> None:
    """Goal: nothing is found, counted, reported, shared or waited for. Method: ask for each."""
    geometry = Geometry((UNIT, STATES))
    cache = NoPrefixCache(geometry)
    pool, prefixes = computed(geometry, cache, 40, now=True)
    request = Request(1, list(range(40)), Keys(), reads_cache=True)
    assert Hit(0, ((), ())) == cache.look_up(pool, request, prefixes)
    assert cache.is_ready(Hit(8, ((), (0, 2)), (Partial(0, 1, 8),)), prefixes)
    cache.dispatched()
    assert (Statistics(), (0, 0)) == (cache.statistics, cache.shared([3, 4]))
    assert ({}, {}) == (pool.cached.entries(), pool.partial.entries())


@pytest.mark.parametrize(
    ("groups", "hit_tokens", "ready"),
    [
        ((UNIT,), 0, True),
        ((UNIT,), 4, False),
        ((UNIT,), 12, False),
        ((UNIT,), 16, True),  # whole blocks are shared, and computed in the same step
        ((UNIT,), 20, False),
        ((DRAFTING,), 4, False),
        ((DRAFTING,), 12, False),  # the source is a whole block, and is computed now
        ((DRAFTING,), 16, True),
        ((WINDOW,), 8, True),
        ((STATES,), 4, False),
        ((STATES,), 16, False),
        ((UNIT, STATES), 16, False),
        ((UNIT, WINDOW), 16, True),
        ((UNIT, WINDOW), 12, False),
    ],
)
def test_what_this_step_computes_is_not_copied(groups: tuple[Group, ...], hit_tokens: int, ready: bool) -> None:
    """Goal: a copy happens before the step computes, and so does the use of a state; both must wait for the dispatch
    (KV-OP-20).

    Method: 24 tokens are computed now; after the dispatch every hit is ready.
    """
    geometry = Geometry(groups)
    cache = PrefixCache(geometry, Dense(geometry))
    pool, prefixes = computed(geometry, cache, 24, now=True)
    matched_tokens = hit_tokens + geometry.lookahead_tokens if hit_tokens else 0
    request = Request(1, [*range(matched_tokens), 999], Keys(), reads_cache=True)
    found = cache.look_up(pool, request, prefixes[: matched_tokens // geometry.grain_tokens])
    assert hit_tokens == found.tokens
    assert ready == cache.is_ready(found, prefixes)
    cache.dispatched()
    assert cache.is_ready(found, prefixes)


def test_a_state_of_one_token_is_waited_for() -> None:
    """Goal: the shortest hit waits as well. Method: states of one token; two are computed now, a hit of the first."""
    geometry = Geometry((Group("mamba", 1, states="all"),))
    cache = PrefixCache(geometry, Dense(geometry))
    pool, prefixes = computed(geometry, cache, 2, now=True)
    found = cache.look_up(pool, Request(1, [0, 999], Keys(), reads_cache=True), prefixes[:1])
    assert (1, False) == (found.tokens, cache.is_ready(found, prefixes))
    cache.dispatched()
    assert cache.is_ready(found, prefixes)


def test_what_must_match_counts() -> None:
    """Goal: with a look-ahead it is what must match that this step may compute, not what is served. Method: 8 tokens of
    an older step, and 4 more in this: 4 are served by the entry at 8; 8 would be by the entry at 12.
    """
    geometry = Geometry((DRAFTING,))
    cache = PrefixCache(geometry, Dense(geometry))
    prefixes = known_of(geometry, 40)
    request = Request(0, list(range(40)), Keys(), reads_cache=True, prompt_tokens=40)
    pool, tables = BlockPool(10), [Table([1, 2, 3], 0, 0)]
    pool.touch([1, 2, 3])
    cache.register(pool, request, prefixes, tables, 8, 0)
    cache.dispatched()
    cache.register(pool, request, prefixes, tables, 12, 0)
    for tokens, hit_tokens, ready in [(9, 4, True), (13, 8, False)]:
        asking = Request(1, list(range(tokens)), Keys(), reads_cache=True)
        found = cache.look_up(pool, asking, prefixes[: tokens // 4])
        assert (hit_tokens, ready) == (found.tokens, cache.is_ready(found, prefixes))


@pytest.mark.parametrize("status", [Status.LOADING, Status.RUNNING])
def test_what_no_step_computes_is_ready(status: Status) -> None:
    """Goal: no step computes them. Method: 24 tokens are registered that were loaded, or computed before."""
    geometry = Geometry((UNIT, STATES))
    cache = PrefixCache(geometry, Dense(geometry))
    pool, prefixes = computed(geometry, cache, 24, False, status)
    found = cache.look_up(pool, Request(1, [*range(12), 999], Keys(), reads_cache=True), prefixes[:3])
    assert (12, True) == (found.tokens, cache.is_ready(found, prefixes))


def test_drafts_are_not_registered() -> None:
    """Goal: only a request's own tokens are cached. Method: 8 tokens and 4 drafts are computed, three blocks of 4; the
    third is not cached.
    """
    geometry = Geometry((WINDOW,))
    cache = PrefixCache(geometry, Dense(geometry))
    pool = BlockPool(10)
    pool.touch([1, 2, 3])
    request = Request(0, list(range(8)), Keys(), reads_cache=True, prompt_tokens=8)
    cache.register(pool, request, known_of(geometry, 40), [Table([1, 2, 3], 0, 0)], 12, 0)
    assert [(1,), (2,)] == list(pool.cached.entries().values())


def test_a_request_that_may_not_read_is_not_counted() -> None:
    """Goal: statistics speak of look-ups that could hit. Method: one that may not read, one that may, one preempted."""
    geometry = Geometry((WINDOW,))
    cache = PrefixCache(geometry, Dense(geometry))
    pool, prefixes = computed(geometry, cache, 24, now=True)
    for reads_cache, preemptions in [(False, 0), (True, 0), (True, 1)]:
        request = Request(1, list(range(9)), Keys(), reads_cache, preemptions=preemptions)
        expected = Hit(8, ((1, 2),)) if reads_cache else no_hit(geometry)
        assert expected == cache.look_up(pool, request, prefixes[:2])
    assert Statistics(1, 9, 8, 1, 9, 8) == cache.statistics


def test_what_all_requests_hold_is_reported() -> None:
    """Goal: with caching, the common prefix is what it is. Method: three and no block."""
    assert (3, 0) == PrefixCache(Geometry((WINDOW, UNIT)), Dense(Geometry((WINDOW, UNIT)))).shared([3, 0])


@pytest.mark.parametrize("kind", [NoPrefixCache, PrefixCache])
def test_a_copy_is_independent(kind: type) -> None:
    """Goal: a step leaves the state before it alone. Method: count, compute and dispatch in the copy."""
    geometry = Geometry((STATES,))
    cache = NoPrefixCache(geometry) if kind is NoPrefixCache else PrefixCache(geometry, Dense(geometry))
    _, prefixes = computed(geometry, cache, 8, now=True)
    ready = cache.is_ready(Hit(8, ((0, 2),)), prefixes)
    copy = cache.copy()
    assert kind is type(copy)
    assert ready == copy.is_ready(Hit(8, ((0, 2),)), prefixes)
    copy.dispatched()
    copy.statistics = copy.statistics.counted(9, 8, preempted=False)
    assert copy.is_ready(Hit(8, ((0, 2),)), prefixes)
    assert (Statistics(), ready) == (cache.statistics, cache.is_ready(Hit(8, ((0, 2),)), prefixes))
    assert (kind is NoPrefixCache) == ready
