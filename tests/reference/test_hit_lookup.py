"""The longest hit, by hand: block 16, window 64, prompts of 320 tokens and a few more."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from kvreference.answers import Hit, Partial
from kvreference.block_pool import NULL
from kvreference.cached_map import CachedMap
from kvreference.content import Keys, Prefix, Prefixes
from kvreference.geometry import Geometry, Group
from kvreference.hit_lookup import longest_hit
from kvreference.partial_map import PartialMap

FULL = Group("full", 16)
WINDOW = Group("sliding_window", 16, 64)
DRAFTING_FULL = Group("full", 16, lookahead=True)
DRAFTING_WINDOW = Group("sliding_window", 16, 64, lookahead=True)


class Cached:
    """All blocks of one long prompt, cached in every group but for the holes: block ``i`` of group ``g`` has the id
    ``100 * (g + 1) + i``.
    """

    def __init__(self, *groups: Group, tokens: int = 320, holes: Iterable[tuple[int, int]] = ()) -> None:
        self.geometry = Geometry(groups)
        self.map = CachedMap(320)
        self.prefixes: list[Prefix] = []
        Prefixes(self.geometry.grain_tokens).extend(self.prefixes, range(1024), Keys())
        for index, group in enumerate(groups):
            for position in range(tokens // group.block_size_tokens):
                if (index, position) not in holes:
                    self.map.register(self.content(index, position), 100 * (index + 1) + position)

    def content(self, index: int, position: int) -> tuple[int, Prefix]:
        """The content of the block at ``position`` in a group."""
        grains = self.geometry.groups[index].block_size_tokens // self.geometry.grain_tokens
        return index, self.prefixes[(position + 1) * grains - 1]

    def look_up(self, tokens: int) -> Hit:
        """The hit of a request with the first ``tokens`` tokens of the prompt."""
        known = self.prefixes[: tokens // self.geometry.grain_tokens]
        return longest_hit(self.geometry, self.map, known, tokens)


@pytest.mark.parametrize(
    ("tokens", "hit"), [(1, 0), (16, 0), (17, 16), (100, 96), (320, 304), (321, 320), (336, 320), (1000, 320)]
)
def test_full_attention(tokens: int, hit: int) -> None:
    """Goal: whole blocks, the last token never. Method: 320 tokens are cached as 20 blocks of 16.

    The same prompt hits 304: its last token, in block 19, must be computed. One token more hits all 320.
    """
    assert Hit(hit, (tuple(range(100, 100 + hit // 16)),)) == Cached(FULL).look_up(tokens)


@pytest.mark.parametrize(("hole", "hit"), [(0, 0), (1, 16), (10, 160), (19, 304)])
def test_full_attention_ends_before_the_first_hole(hole: int, hit: int) -> None:
    """Goal: full attention reads everything before. Method: one of the blocks 0..19 is missing."""
    assert hit == Cached(FULL, holes=[(0, hole)]).look_up(1000).tokens


@pytest.mark.parametrize(
    ("holes", "hit"),
    [
        ([], 320),  # needs 16..19
        (range(16), 320),  # all that the window has passed may be gone
        ([16], 256),  # 304 needs 15..18, 288 needs 14..17, 272 needs 13..16; 256 needs 12..15
        ([18], 288),  # 304 needs 15..18; 288 needs 14..17
        ([2, 18], 288),
        (range(4, 20), 64),  # 80 needs 1..4; 64 needs 0..3
        (range(3, 20, 4), 48),  # never four in a row, but a resume at 48 needs 0..2 only
        (range(0, 20, 4), 0),
    ],
)
def test_sliding_window_hits_over_holes(holes: Iterable[int], hit: int) -> None:
    """Goal: a window needs its last four blocks, ceil(63 / 16), and nothing before. Method: blocks 0..19 with holes."""
    found = Cached(WINDOW, holes=[(0, hole) for hole in holes]).look_up(1000)
    first = max(0, hit // 16 - 4)
    assert Hit(hit, ((NULL,) * first + tuple(range(100 + first, 100 + hit // 16)),)) == found


def test_all_groups_must_agree() -> None:
    """Goal: the hit is the longest at which every group is satisfied, not the shortest of each group's own.

    Method: full attention lacks block 18, so at most 288. The window lacks block 15: it is satisfied at 320, that
    needs 16..19, but at 288 it needs 14..17; 240 needs 11..14.
    """
    found = Cached(FULL, WINDOW, holes=[(0, 18), (1, 15)]).look_up(1000)
    assert Hit(240, (tuple(range(100, 115)), (NULL,) * 11 + tuple(range(211, 215)))) == found


def test_hits_are_aligned_to_all_block_sizes() -> None:
    """Goal: a hit ends where the blocks of all groups end. Method: blocks of 16 and 24 tokens, alignment 48.

    100 tokens leave 99: 96 is 6 blocks of 16 and 4 of 24. 96 tokens leave 95: 48.
    """
    both = Cached(FULL, Group("full", 24))
    assert Hit(96, (tuple(range(100, 106)), tuple(range(200, 204)))) == both.look_up(100)
    assert Hit(48, ((100, 101, 102), (200, 201))) == both.look_up(96)


@pytest.mark.parametrize(
    ("group", "tokens", "hit"),
    [
        (FULL, 1000, 320),
        (DRAFTING_FULL, 1000, 304),  # the block after 320 is not cached, the one after 304 is
        (DRAFTING_FULL, 321, 304),
        (DRAFTING_FULL, 320, 288),  # 304 and a block after it are 320 tokens, more than the 319 that may be served
        (DRAFTING_FULL, 33, 16),
        (DRAFTING_FULL, 32, 0),
        (DRAFTING_WINDOW, 1000, 304),
        (DRAFTING_WINDOW, 320, 288),
    ],
)
def test_a_draft_layer_needs_the_block_after_the_hit(group: Group, tokens: int, hit: int) -> None:
    """Goal: with a look-ahead one block more must match than is served. Method: 320 tokens are cached."""
    assert hit == Cached(group).look_up(tokens).tokens


def test_look_ahead_is_a_matter_of_each_group() -> None:
    """Goal: a group without a draft layer needs no block more. Method: the last block is missing in one of two groups.

    Block 19 is the one after 304: the group with the draft layer needs it, the other does not.
    """
    groups = (FULL, DRAFTING_WINDOW)
    assert 304 == Cached(*groups).look_up(1000).tokens
    assert 304 == Cached(*groups, holes=[(0, 19)]).look_up(1000).tokens
    assert 288 == Cached(*groups, holes=[(1, 19)]).look_up(1000).tokens


def test_the_look_ahead_block_is_not_served() -> None:
    """Goal: tokens that match after the hit are computed anew. Method: the window's table ends with the hit at 304.

    Token 304 reads 241..304: the blocks 15..18 serve, 0..14 are null.
    """
    found = Cached(FULL, DRAFTING_WINDOW).look_up(1000)
    assert Hit(304, (tuple(range(100, 119)), (NULL,) * 15 + tuple(range(215, 219)))) == found


def test_a_group_is_not_served_by_another() -> None:
    """Goal: layers of different groups never share state. Method: the second of two equal groups has nothing."""
    one_sided = Cached(FULL, FULL, holes=[(1, position) for position in range(20)])
    assert Hit(0, ((), ())) == one_sided.look_up(1000)


def test_the_block_registered_first_serves() -> None:
    """Goal: duplicates change nothing while the first stays. Method: block 1's content is in 101 and in 7."""
    cached = Cached(FULL, tokens=32)
    cached.map.register(cached.content(0, 1), 7)
    assert Hit(32, ((100, 101),)) == cached.look_up(33)
    cached.map.forget(101)
    assert Hit(32, ((100, 7),)) == cached.look_up(33)


def test_nothing_cached() -> None:
    """Goal: a miss is a hit of nothing, with an empty table per group. Method: an empty map."""
    assert Hit(0, ((), ())) == Cached(FULL, WINDOW, tokens=0).look_up(1000)


class Begun(Cached):
    """64 tokens a block in the first group, at whose every 16 tokens a hit may end; the prompt is computed up to
    ``tokens``, the rest of a block is not. Entries are 16 tokens further on with a look-ahead.
    """

    def __init__(self, *groups: Group, tokens: int, holes: Iterable[tuple[int, int]] = ()) -> None:
        super().__init__(*groups, tokens=tokens, holes=holes)
        self.partial = PartialMap()
        for boundary in range(16, tokens + 1, 16):
            if boundary % 64:
                self.partial.register((0, self.prefix(boundary)), 100 + boundary // 64)

    def prefix(self, tokens: int) -> Prefix:
        """The first ``tokens`` tokens of the prompt."""
        return self.prefixes[tokens // self.geometry.grain_tokens - 1]

    def look_up(self, tokens: int) -> Hit:
        known = self.prefixes[: tokens // self.geometry.grain_tokens]
        return longest_hit(self.geometry, self.map, known, tokens, self.partial)


UNIT = Group("full", 64, compress_ratio=16, unit_tokens=16)
DRAFTING_UNIT = Group("full", 64, compress_ratio=16, unit_tokens=16, lookahead=True)


@pytest.mark.parametrize(
    ("tokens", "hit"),
    [
        (16, Hit(0, ((),))),
        (17, Hit(16, ((),), (Partial(0, 100, 16),))),
        (64, Hit(48, ((),), (Partial(0, 100, 48),))),
        (65, Hit(64, ((100,),))),
        (90, Hit(80, ((100,),), (Partial(0, 101, 16),))),
        (1000, Hit(96, ((100,),), (Partial(0, 101, 32),))),
    ],
)
def test_hits_inside_a_block(tokens: int, hit: Hit) -> None:
    """Goal: a hit may end inside a compressed block that begins alike, whether that is full or not; the last token is
    never served. Method: 110 tokens are computed: one block of 64, and the entries 80 and 96 in the next.
    """
    assert hit == Begun(UNIT, tokens=110).look_up(tokens)


def test_without_entries_a_hit_ends_where_blocks_end() -> None:
    """Goal: content that is not known is not served. Method: the same, without any entry, given or not."""
    begun = Begun(UNIT, tokens=110)
    begun.partial = PartialMap()
    assert Hit(64, ((100,),)) == begun.look_up(1000)
    assert Hit(64, ((100,),)) == Cached.look_up(begun, 1000)


def test_an_entry_needs_the_blocks_before_it() -> None:
    """Goal: full attention reads everything before. Method: block 0 is not cached: its entries up to 48 are all."""
    begun = Begun(UNIT, tokens=110, holes=[(0, 0)])
    assert Hit(48, ((),), (Partial(0, 100, 48),)) == begun.look_up(1000)


@pytest.mark.parametrize(("tokens_min", "hit"), [(0, 96), (96, 96), (97, 64), (64, 96), (1000, 64)])
def test_a_hit_that_is_too_short_ends_inside_no_block(tokens_min: int, hit: int) -> None:
    """Goal: a copy must be worth it; a hit that ends where a block does is served however short. Method: 110 tokens are
    computed, so that 96 end inside a block, and 64 do not.
    """
    begun = Begun(UNIT, tokens=110)
    known = begun.prefixes[: 1000 // begun.geometry.grain_tokens]
    assert hit == longest_hit(begun.geometry, begun.map, known, 1000, begun.partial, tokens_min).tokens


def test_the_minimum_is_about_copies_alone() -> None:
    """Goal: with a look-ahead, what must match may end inside a block, and the hit does not: then nothing is copied.

    Method: 110 tokens are computed; of 81, 64 are served and 80 match.
    """
    begun = Begun(DRAFTING_UNIT, tokens=110)
    known = begun.prefixes[: 81 // begun.geometry.grain_tokens]
    assert Hit(64, ((100,),)) == longest_hit(begun.geometry, begun.map, known, 81, begun.partial, 1000)


def test_an_entry_alone_may_be_missing() -> None:
    """Goal: every boundary is an entry of its own. Method: 101 is forgotten, 7 begins with 80 tokens, not with 96."""
    begun = Begun(UNIT, tokens=110)
    begun.partial.forget(101)
    begun.partial.register((0, begun.prefix(80)), 7)
    assert Hit(80, ((100,),), (Partial(0, 7, 16),)) == begun.look_up(1000)


@pytest.mark.parametrize(
    ("tokens", "hit"),
    [
        (32, Hit(0, ((),))),
        (33, Hit(16, ((),), (Partial(0, 100, 16),))),
        (64, Hit(32, ((),), (Partial(0, 100, 32),))),
        (65, Hit(48, ((),), (Partial(0, 100, 48),))),  # 64 tokens match: the source is a whole block
        (80, Hit(48, ((),), (Partial(0, 100, 48),))),
        (81, Hit(64, ((100,),))),  # 80 match; nothing is copied
        (1000, Hit(80, ((100,),), (Partial(0, 101, 16),))),
    ],
)
def test_a_look_ahead_in_units(tokens: int, hit: Hit) -> None:
    """Goal: with a draft layer one unit more must match than is served, and less of the source counts than matches.

    Method: 110 tokens are computed, entries up to 96.
    """
    assert hit == Begun(DRAFTING_UNIT, tokens=110).look_up(tokens)


def test_the_whole_block_as_a_source() -> None:
    """Goal: where the look-ahead ends with the block, the block itself must be cached; an entry is not asked for.

    Method: 48 is served if all 64 match: by block 100, or, once that is forgotten as a whole, not at all.
    """
    begun = Begun(DRAFTING_UNIT, tokens=64)
    assert Hit(48, ((),), (Partial(0, 100, 48),)) == begun.look_up(65)
    begun.map.forget(100)
    assert Hit(32, ((),), (Partial(0, 100, 32),)) == begun.look_up(65)


def test_a_later_whole_block_as_a_source() -> None:
    """Goal: the copied slots are of the block in which the hit ends, and no other. Method: two blocks are computed, all
    128 tokens match: of 112 served, 48 are copied from the second.
    """
    assert Hit(112, ((100,),), (Partial(0, 101, 48),)) == Begun(DRAFTING_UNIT, tokens=128).look_up(1000)


def test_units_align_with_the_other_groups() -> None:
    """Goal: a hit is a multiple of the units, not of the blocks; a window's blocks end there. Method: a window of 32 in
    blocks of 16 and one of 24: the alignment is 48; of 110 tokens, 96 are served.
    """
    groups = (UNIT, Group("sliding_window", 16, 32), Group("sliding_window", 24, 25))
    found = Begun(*groups, tokens=110).look_up(1000)
    assert Hit(96, ((100,), (0, 0, 0, 0, 204, 205), (0, 0, 0, 303)), (Partial(0, 101, 32),)) == found


@pytest.mark.parametrize(
    ("tokens", "holes", "hit"),
    [
        (97, range(6), 96),
        (96, [], 80),
        (96, [0, 1, 2, 3, 5], 80),
        (96, [4], 64),
        (64, [0, 1, 3], 48),
        (64, [2], 32),
    ],
)
def test_chunked_local_reads_its_own_chunk(tokens: int, holes: Iterable[int], hit: int) -> None:
    """Goal: a resume needs the attention chunk in which it continues, and nothing where that begins. Method: chunks of
    32 in blocks of 16: 80 needs block 4 and 48 block 2; 32, 64 and 96 need none.
    """
    groups = (Group("full", 16), Group("chunked_local", 16, 32))
    found = Cached(*groups, tokens=110, holes=[(1, hole) for hole in holes]).look_up(tokens)
    assert hit == found.tokens
    first = hit // 32 * 2
    assert (NULL,) * first + tuple(range(200 + first, 200 + hit // 16)) == found.blocks[1]


@pytest.mark.parametrize(("holes", "hit"), [([], 96), ([5], 80), ([0, 1, 2, 3, 4], 96), ([4, 5], 64)])
def test_a_state_stands_for_all_before_it(holes: list[int], hit: int) -> None:
    """Goal: a state-space layer needs only the state after the hit's last token. Method: states of 16 tokens."""
    groups = (Group("full", 16), Group("mamba", 16, states="all"))
    found = Cached(*groups, tokens=110, holes=[(1, hole) for hole in holes]).look_up(1000)
    assert (NULL,) * (hit // 16 - 1) + (199 + hit // 16,) == found.blocks[1]
    assert hit == found.tokens
