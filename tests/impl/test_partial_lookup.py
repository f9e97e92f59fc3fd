"""The look-up of hits that end inside blocks.

Goal: it finds the reference's longest hit in any cache, and its cost is linear in the request's length. Method: caches
with holes, drawn from a seed, given to both; and counted look-ups.
"""

from __future__ import annotations

from collections import Counter
from itertools import takewhile
from math import lcm
from random import Random

import pytest

from kvreference.cached_map import CachedMap
from kvreference.content import Keys, Prefix, Prefixes
from kvreference.geometry import Geometry
from kvreference.geometry import Group as ReferenceGroup
from kvreference.hit_lookup import longest_hit
from kvreference.partial_map import PartialMap
from swa_retention.partial.groups import Group
from swa_retention.partial.lookup import Leading, Window, Worthwhile, longest

NULL = 0


def geometries() -> list[Geometry]:
    """Groups that are copied next to whole ones, windows, attention chunks; with and without look-ahead."""
    found = []
    for lookahead in ((False,) * 4, (True,) * 4, (False, False, True, False), (True, False, False, True)):
        first, second, third, fourth = lookahead
        found += [
            Geometry(
                (
                    ReferenceGroup("full", 16, unit_tokens=4, lookahead=first),
                    ReferenceGroup("full", 4, lookahead=second),
                    ReferenceGroup("sliding_window", 4, 7, third),
                    ReferenceGroup("sliding_window", 2, 3, fourth),
                )
            ),
            Geometry(
                (
                    ReferenceGroup("sliding_window", 4, 10, third),
                    ReferenceGroup("full", 8, unit_tokens=4, lookahead=second),
                    ReferenceGroup("full", 24, unit_tokens=4, lookahead=first),
                    ReferenceGroup("chunked_local", 4, 8),
                )
            ),
        ]
    return found


class Cache:
    """A random cache of one long prompt, and the look-ups that the plug-in's code makes in it."""

    def __init__(self, geometry: Geometry, tokens: int, density: float, random: Random) -> None:
        self.geometry, self.tokens = geometry, tokens
        self.prefixes: list[Prefix] = []
        Prefixes(geometry.grain_tokens).extend(self.prefixes, range(tokens), Keys())
        self.map, self.partial = CachedMap(10_000), PartialMap()
        self.asked: Counter[tuple[int, str, int]] = Counter()
        block = 0
        for index, group in enumerate(geometry.groups):
            for end in range(group.unit, tokens + 1, group.unit):
                block += 1
                if random.random() > density:
                    continue
                if end % group.block_size_tokens:
                    self.partial.register((index, self.prefix(end)), block)
                else:
                    self.map.register((index, self.prefix(end)), block)

    def prefix(self, tokens: int) -> Prefix:
        return self.prefixes[tokens // self.geometry.grain_tokens - 1]

    def whole(self, index: int, position: int) -> int | None:
        self.asked[index, "block", position] += 1
        return self.map.find((index, self.prefix((position + 1) * self.geometry.groups[index].block_size_tokens)))

    def entry(self, index: int, tokens: int) -> int | None:
        self.asked[index, "entry", tokens] += 1
        return self.partial.find((index, self.prefix(tokens)))

    def serving(self, index: int) -> Leading | Window:
        """One group as the plug-in's look-up sees it, for a request of all the tokens."""
        theirs, unit = self.geometry.groups[index], self.geometry.alignment_tokens
        size = theirs.block_size_tokens
        group = Group(
            index, size, theirs.lookahead_tokens, theirs.copies, theirs.keeps_all, theirs.attention.tokens_unread
        )

        def cached(position: int) -> int | None:
            return self.whole(index, position)

        def entry(tokens: int) -> int | None:
            return self.entry(index, tokens)

        if not theirs.keeps_all:
            return Window(group, unit, cached, NULL)
        leading = takewhile(lambda block: block is not None, map(cached, range((self.tokens - 1) // size)))
        return Leading(group, unit, leading, entry)


def hit_of(cache: Cache, tokens_min: int) -> tuple[int, list[Leading | Window]]:
    """The hit of the plug-in's look-up."""
    geometry = cache.geometry
    groups = [cache.serving(index) for index in range(len(geometry.groups))]
    whole = lcm(*(group.block_size_tokens for group in geometry.groups if group.copies))
    unit = geometry.alignment_tokens
    start = max(0, cache.tokens - 1 - geometry.lookahead_tokens) // unit * unit
    return longest(start, [Worthwhile(tokens_min, whole).at_most, *(group.at_most for group in groups)]), groups


@pytest.mark.parametrize("number", range(len(geometries())))
def test_it_finds_the_longest_hit(number: int) -> None:
    """As the reference, of which it knows nothing: the length, the blocks, and what is copied from where."""
    geometry, random, lengths = geometries()[number], Random(7), Counter[int]()
    for trial in range(300):
        cache = Cache(geometry, random.randrange(2, 130), random.choice((0.5, 0.9, 0.97, 1.0)), random)
        tokens_min = random.choice((0, 0, 20, 40))
        wanted = longest_hit(geometry, cache.map, cache.prefixes, cache.tokens, cache.partial, tokens_min)
        found, groups = hit_of(cache, tokens_min)
        assert wanted.tokens == found, trial
        assert list(wanted.blocks) == [tuple(group.blocks(found)) for group in groups]
        sources = {partial.group: partial.source for partial in wanted.partials}
        for group in groups:
            if isinstance(group, Leading) and found % group.group.block_tokens:
                assert sources.pop(group.group.index) == group.source(found)
        assert {} == sources
        lengths[found] += 1
    assert len(lengths) > 5
    assert any(length % 8 for length in lengths)


@pytest.mark.parametrize("density", [0.0, 0.9, 1.0])
def test_a_block_is_looked_up_once(density: float) -> None:
    """However often the hit becomes shorter: what the windows and full attention look up is linear in the length."""
    for geometry in geometries():
        cache = Cache(geometry, 4000, density, Random(3))
        hit_of(cache, 0)
        blocks = [times for (_, kind, _), times in cache.asked.items() if kind == "block"]
        assert set(blocks) <= {1}
        entries = sum(times for (_, kind, _), times in cache.asked.items() if kind == "entry")
        assert entries <= 2 * len(geometry.groups) * 4000 // geometry.alignment_tokens
