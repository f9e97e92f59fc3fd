"""Caching: which blocks become known when, which boundaries inside them, and which events report it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from attrs import evolve

from kvreference.block_pool import BlockPool
from kvreference.caching import register
from kvreference.content import Keys, Prefix, Prefixes
from kvreference.events import Stored
from kvreference.geometry import Geometry, Group
from kvreference.population import Request
from kvreference.retention import Dense, Retention, Sparse
from kvreference.tables import Table

FULL = Group("full", 4)
WINDOW = Group("sliding_window", 2, 5)
UNIT = Group("full", 16, compress_ratio=4, unit_tokens=4)
STATES = Group("mamba", 4, states="all")


class Cache:
    """One request of 40 tokens with blocks in every group, and what is cached of it: block ``100 * g + i`` of group
    ``g``, counted from one, stands at position ``i``, without those in ``passed``.
    """

    def __init__(self, *groups: Group, interval_tokens: int | None = None, passed: Sequence[int] = ()) -> None:
        self.geometry = Geometry(groups)
        self.retention: Retention = Dense(self.geometry)
        if interval_tokens is not None:
            self.retention = Sparse(self.geometry, interval_tokens)
        self.request = Request(0, list(range(100, 140)), Keys(), reads_cache=True, prompt_tokens=40)
        self.prefixes: list[Prefix] = []
        Prefixes(self.geometry.grain_tokens).extend(self.prefixes, self.request.tokens, Keys())
        self.pool = BlockPool(100 * len(groups) + 100)
        self.tables = [
            Table([0 if i in passed else 100 * (g + 1) + i for i in range(20)], registered=0, boundary_tokens=0)
            for g in range(len(groups))
        ]
        self.pool.touch(block for table in self.tables for block in table.live())
        self.fenced = 0

    def register(self, tokens: int) -> list[tuple[int, int, int]]:
        """Register the first ``tokens`` tokens; per event its group, its first token and the one after its last."""
        events, fenced = register(
            self.pool, self.geometry, self.retention, self.request, self.prefixes, self.tables, tokens
        )
        self.fenced = len(fenced)
        return [(event.group, event.tokens[0] - 100, event.tokens[-1] - 99) for event in map(_stored, events)]

    def blocks(self) -> list[int]:
        """The blocks of which the whole content is known."""
        return [block for block, content in enumerate(self.pool.cached.contents()) if content is not None]

    def beginnings(self) -> dict[int, list[int]]:
        """Per block, how many tokens the prefixes have that end inside it."""
        blocks = sorted(self.pool.partial.blocks())
        return {block: [prefix.tokens for _, prefix in self.pool.partial.contents_of(block)] for block in blocks}


def _stored(event: object) -> Stored:
    assert isinstance(event, Stored)
    return event


def test_each_block_once_when_it_is_full() -> None:
    """Goal: dense caching: a block is cached when its last token is computed, and never again. Method: 3, 4, 4, 11
    tokens in blocks of 4 and of 2; neighbours are one event.
    """
    cache = Cache(FULL, WINDOW)
    assert [(1, 0, 2)] == cache.register(3)
    assert [(0, 0, 4), (1, 2, 4)] == cache.register(4)
    assert [] == cache.register(4)
    assert [(0, 4, 8), (1, 4, 10)] == cache.register(11)
    assert [100, 101, 200, 201, 202, 203, 204] == cache.blocks()


def test_a_block_forgotten_is_not_offered_again() -> None:
    """Goal: an eviction is not undone by the next step. Method: 8 tokens, evict the second block, 12 tokens."""
    cache = Cache(FULL)
    cache.register(8)
    cache.pool.cached.forget(101)
    assert [(0, 8, 12)] == cache.register(12)
    assert [100, 102] == cache.blocks()


def test_what_the_window_has_passed_is_never_cached() -> None:
    """Goal: a null block holds nothing; the events name the blocks on either side of it. Method: of five blocks the
    second is gone. The blocks next to it are two events, the second after the content that is not there.
    """
    cache = Cache(WINDOW, passed=[1])
    assert [(0, 0, 2), (0, 4, 10)] == cache.register(10)
    pool = BlockPool(200)
    pool.touch(cache.tables[0].live())
    events, _ = register(pool, cache.geometry, cache.retention, cache.request, cache.prefixes, _again(cache.tables), 10)
    first, second = map(_stored, events)
    assert (None, (0, cache.prefixes[1])) == (first.parent, second.parent)
    assert ((0, cache.prefixes[2]), (0, cache.prefixes[3]), (0, cache.prefixes[4])) == second.contents
    assert ((),) * 3 == second.extra_keys


def _again(tables: list[Table]) -> list[Table]:
    return [evolve(table, registered=0, boundary_tokens=0) for table in tables]


def test_the_tail_of_a_segment_is_cached_when_its_boundary_is_reached() -> None:
    """Goal: masked caching: exactly what a hit could read, as soon as it could. Method: alignment 8 by a full group of
    8; a window of 5 in blocks of 2 reads the last two blocks before 8, 16, 24.

    At 7 tokens nothing is due, at 8 blocks 2 and 3; 4 and 5 never are; with 17 tokens, 6 and 7.
    """
    cache = Cache(Group("full", 8), WINDOW, interval_tokens=8)
    assert [] == cache.register(7)
    assert [(0, 0, 8), (1, 4, 8)] == cache.register(8)
    assert [] == cache.register(15)
    assert [(0, 8, 16), (1, 12, 16)] == cache.register(17)
    assert [100, 101, 202, 203, 206, 207] == cache.blocks()
    assert [table.registered for table in cache.tables] == [2, 8]


@pytest.mark.parametrize(
    ("interval_tokens", "expected"),
    [
        (16, [(1, 12, 16), (1, 28, 32)]),
        (24, [(1, 20, 24), (1, 28, 32)]),
        (0, [(1, 28, 32)]),
    ],
)
def test_segments_of_one_pass(interval_tokens: int, expected: list[tuple[int, int, int]]) -> None:
    """Goal: one event per run of adjacent blocks, of exactly their tokens. Method: 40 tokens at once; the latest
    boundary that a replay of 40 hits is 32, and its tail is cached for every interval.
    """
    cache = Cache(Group("full", 8), WINDOW, interval_tokens=interval_tokens)
    assert [(0, 0, 40), *expected] == cache.register(40)


def test_tails_that_touch_are_one_run() -> None:
    """Goal: a run ends where a block is left out, not at a boundary. Method: alignment 4, and a window of 5 reads two
    blocks before each: nothing is left out.
    """
    assert [(0, 0, 40), (1, 0, 40)] == Cache(FULL, WINDOW, interval_tokens=4).register(40)


def test_boundaries_inside_a_block() -> None:
    """Goal: every boundary inside a compressed block is an entry, once; its end is not, the block itself is cached.

    Method: hits at multiples of 4, blocks of 16; 3, 4, 7, 13, 16, 22 tokens.
    """
    cache = Cache(UNIT)
    offers = []
    for tokens in (3, 4, 7, 13, 16, 22):
        cache.register(tokens)
        offers.append(cache.pool.partial.offers)
    assert [0, 1, 1, 3, 3, 4] == offers
    assert ({100: [4, 8, 12], 101: [20]}, [100]) == (cache.beginnings(), cache.blocks())


def test_a_look_ahead_moves_the_entry() -> None:
    """Goal: an entry is what a hit must match, a unit more than it serves. Method: the boundaries 4, 8, 12, 16 are
    matched at 8, 12, 16, 20; 16 is the block's end, and needs no entry. With 11 tokens only 4 is reached.
    """
    cache = Cache(evolve(UNIT, lookahead=True))
    cache.register(11)
    assert {100: [8]} == cache.beginnings()
    cache.register(21)
    assert {100: [8, 12], 101: [20]} == cache.beginnings()


def test_entries_at_admitted_boundaries_only() -> None:
    """Goal: a boundary that is not retained is not an entry either. Method: interval 12 of alignment 4, 40 tokens: 12,
    24, and the replay's 36. Without retention every fourth but the block ends.
    """
    cache = Cache(UNIT, Group("sliding_window", 4, 5), interval_tokens=12)
    cache.register(39)
    assert {100: [12], 101: [24], 102: [36]} == cache.beginnings()
    dense = Cache(UNIT, Group("sliding_window", 4, 5))
    dense.register(39)
    assert {100: [4, 8, 12], 101: [20, 24, 28], 102: [36]} == dense.beginnings()


@pytest.mark.parametrize(("group", "fenced"), [(FULL, 0), (WINDOW, 0), (STATES, 5), (UNIT, 1 + 4)])
def test_what_cannot_serve_before_the_dispatch(group: Group, fenced: int) -> None:
    """Goal: states, and the blocks in which copies may begin, are distinguished. Method: 20 tokens: 5 states of 4
    tokens; a block of 16 and the boundaries 4, 8, 12, 20.
    """
    cache = Cache(group)
    cache.register(20)
    assert fenced == cache.fenced
    cache.register(20)
    assert 0 == cache.fenced
