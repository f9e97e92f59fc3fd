"""Groups and geometries: what a hit needs, what is dead, what is aligned, and what is not a geometry at all."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from kvreference.attention import Kind
from kvreference.geometry import Geometry, Group

FULL = Group("full", 16)
WINDOW = Group("sliding_window", 16, 64)
DRAFTING_FULL = Group("full", 16, lookahead=True)
DRAFTING_WINDOW = Group("sliding_window", 16, 64, lookahead=True)
CHUNKED = Group("chunked_local", 16, 72)
MAMBA = Group("mamba", 16, states="all", draft_states=2)
ALIGNED = Group("mamba", 16, states="align", draft_states=2)
RUNNING = Group("mamba", 1000, states="none", draft_states=2)
PARTIAL = Group("full", 64, compress_ratio=4, unit_tokens=16)
DRAFTING_PARTIAL = Group("full", 64, lookahead=True, compress_ratio=4, unit_tokens=16)


@pytest.mark.parametrize(
    ("group", "hit_tokens", "needed"),
    [
        (FULL, 320, (0, 20)),
        (WINDOW, 320, (16, 20)),  # token 320 reads 257..320; token 257 lies in block 16
        (WINDOW, 48, (0, 3)),
        (WINDOW, 80, (1, 5)),  # token 80 reads 17..80: the first block is not needed
        (DRAFTING_FULL, 320, (0, 21)),
        (DRAFTING_WINDOW, 320, (16, 21)),
        (CHUNKED, 320, (18, 20)),  # token 320 reads 288..320, from its chunk's start on: block 18
        (CHUNKED, 288, (18, 18)),  # at a chunk's start nothing is read
        (MAMBA, 320, (19, 20)),  # one state
        (ALIGNED, 16, (0, 1)),
        (PARTIAL, 112, (0, 1)),  # 64 whole, and a beginning, which is not a full block
        (DRAFTING_PARTIAL, 112, (0, 2)),  # 112 and a unit of 16 are two blocks
        (DRAFTING_PARTIAL, 128, (0, 2)),  # 128 and 16: the beginning of the third
        (FULL, 0, (0, 0)),
        (DRAFTING_WINDOW, 0, (0, 0)),
    ],
)
def test_blocks_needed_by_hand(group: Group, hit_tokens: int, needed: tuple[int, int]) -> None:
    """Goal: a resume needs what its token reads, and the unit after it where a draft layer lives; at 0, nothing.

    Method: block 16, window 64, attention chunks of 72; compressed blocks of 64 with hits at every 16.
    """
    assert needed == group.blocks_needed(hit_tokens)


def test_blocks_needed_are_the_blocks_that_the_token_reads() -> None:
    """Goal: the range is the definition. Method: name the block of each token read, for all small windows and sizes."""
    for window, size, index in product(range(2, 14), range(1, 6), range(1, 9)):
        length = index * size
        read = {token // size for token in range(max(0, length - window + 1), length)}
        first, end = Group("sliding_window", size, window).blocks_needed(length)
        assert sorted(read) == list(range(first, end))


@pytest.mark.parametrize(
    ("group", "computed", "dead"),
    [
        (FULL, 1000, 0),
        (WINDOW, 0, 0),
        (WINDOW, 78, 0),
        (WINDOW, 79, 1),
        (WINDOW, 320, 16),
        (CHUNKED, 71, 0),
        (CHUNKED, 72, 4),  # 72 tokens are 4.5 blocks
        (MAMBA, 18, 0),  # with two drafts in flight, the state of token 15 may be wanted again
        (MAMBA, 19, 1),
        (PARTIAL, 1000, 0),
    ],
)
def test_blocks_dead_by_hand(group: Group, computed: int, dead: int) -> None:
    """Goal: a block is dead once no later token reads any of its tokens; in full attention, never.

    Method: token 79 reads 16..79, so block 0 is dead then, and one token earlier it is not.
    """
    assert dead == group.blocks_dead(computed)


def test_tokens_matched() -> None:
    """Goal: a draft layer matches one unit more than it serves. Method: a hit of 320, block 16, or unit 16 of 64."""
    assert (320, 336) == (FULL.tokens_matched(320), DRAFTING_WINDOW.tokens_matched(320))
    assert (320, 336) == (PARTIAL.tokens_matched(320), DRAFTING_PARTIAL.tokens_matched(320))


@pytest.mark.parametrize(
    ("group", "blocks"), [(FULL, 63), (WINDOW, 9), (CHUNKED, 10), (MAMBA, 65), (ALIGNED, 4), (RUNNING, 3)]
)
def test_blocks_held_at_most(group: Group, blocks: int) -> None:
    """Goal: each kind has its own bound. Method: 1000 tokens in chunks of 64.

    1000 tokens are 63 blocks; a window ceil(127 / 16) + 1; attention chunks of 72 ceil(136 / 16) + 1; states of 1000
    tokens and of two drafts 63 + 2; of the last two steps and the drafts 2 + 2; of the last step alone 1 + 2.
    """
    assert blocks == group.blocks_held_at_most(64, 1000)


def test_tables_are_the_kind_s_own() -> None:
    """Goal: entries and layout are asked of the kind, in the group's block size. Method: 80 tokens in 81 slots of 16.

    Plain tables have an entry for the look-ahead slot, and grow; states have two for drafts; aligned ones move.
    """
    assert [6, 6, 8, 7] == [group.entries(80, 81) for group in (FULL, CHUNKED, MAMBA, ALIGNED)]
    assert [7, None, None] == FULL.layout([7], 3, fresh=False) == MAMBA.layout([7], 3, fresh=False)
    assert [7, 0, 0, 5, 6, None] == ALIGNED.layout([7, 5, 6], 6, fresh=False)


@pytest.mark.parametrize(
    ("lookahead", "alignment", "end", "anchor"),
    [
        (False, 16, 9, (5, 9)),
        (True, 16, 9, (4, 9)),
        (False, 64, 9, (4, 8)),
        (True, 64, 9, (4, 9)),
        (True, 64, 8, (0, 5)),
        (False, 64, 3, (0, 0)),
        (True, 16, 0, (0, 0)),
    ],
)
def test_anchors(lookahead: bool, alignment: int, end: int, anchor: tuple[int, int]) -> None:
    """Goal: of the blocks before an index, what a hit at the last boundary there reads, look-ahead included.

    Method: window 64 in blocks of 16: a hit reads ceil(63 / 16) = 4 blocks before it. Of nine blocks, 144 tokens, the
    last boundary is 144, or 128 with a look-ahead; where hits are multiples of 64, 128 either way. Of eight with a
    look-ahead it is 64; of three there is none.
    """
    window = Group("sliding_window", 16, 64, lookahead=lookahead)
    geometry = Geometry((Group("full", alignment), window))
    assert anchor == geometry.anchor(window, end)


def test_before_the_first_boundary_nothing_is_an_anchor() -> None:
    """Goal: where hits end at every token, too, a hit of nothing reads nothing. Method: a window of 3 in blocks of one
    token: no block at all; one block, which is the look-ahead of a hit of nothing; two, of which one serves a hit of 1.
    """
    plain, drafting = (Group("sliding_window", 1, 3, lookahead=lookahead) for lookahead in (False, True))
    assert [(0, 0), (0, 1)] == [Geometry((plain,)).anchor(plain, end) for end in (0, 1)]
    assert [(0, 0), (0, 0), (0, 2)] == [Geometry((drafting,)).anchor(drafting, end) for end in (0, 1, 2)]


def test_an_anchor_is_what_a_hit_reads() -> None:
    """Goal: nothing but the anchor is needed, and none ends later. Method: all small windows, sizes and ends."""
    for window, size, lookahead, end in product(range(2, 9), range(1, 5), (False, True), range(12)):
        group = Group("sliding_window", size, window, lookahead=lookahead)
        geometry = Geometry((Group("full", 4), group))
        within = [
            group.blocks_needed(tokens)
            for tokens in range(0, end * size + 1, geometry.alignment_tokens)
            if tokens == 0 or group.tokens_matched(tokens) <= end * size
        ]
        assert within[-1] == geometry.anchor(group, end)


def test_only_windows_have_anchors() -> None:
    """Goal: other kinds drop nothing that a hit asks for. Method: the other kinds."""
    for group in (FULL, CHUNKED, MAMBA):
        assert (9, 9) == Geometry((group,)).anchor(group, 9)


@pytest.mark.parametrize(
    ("group", "traits"),
    [
        (FULL, {"keeps_all"}),
        (WINDOW, {"slides"}),
        (CHUNKED, set()),
        (MAMBA, {"keeps_states", "fences"}),
        (ALIGNED, {"keeps_states", "fences"}),
        (RUNNING, {"keeps_states", "fences"}),
        (PARTIAL, {"keeps_all", "copies", "fences"}),
        (Group("full", 64, compress_ratio=4), {"keeps_all"}),
        (Group("full", 64, unit_tokens=64), {"keeps_all"}),
    ],
)
def test_traits(group: Group, traits: set[str]) -> None:
    """Goal: a mechanism's question to a group has one name. Method: each kind, and hits inside blocks."""
    known = ("keeps_all", "slides", "keeps_states", "copies", "fences")
    assert traits == {trait for trait in known if getattr(group, trait)}


def test_one_group_is_enough() -> None:
    """Goal: one group with states keeps states, one with states or copies makes every step matter.

    Method: without either, with states, with copies.
    """
    geometries = (Geometry((FULL, WINDOW)), Geometry((FULL, MAMBA)), Geometry((PARTIAL, WINDOW)))
    assert [False, True, False] == [geometry.keeps_states for geometry in geometries]
    assert [False, True, True] == [geometry.fences for geometry in geometries]


def test_where_the_chunks_of_a_prompt_end() -> None:
    """Goal: at block ends of the group that keeps its states there only. Method: all, aligned, running, no states."""
    groups = (MAMBA, ALIGNED, RUNNING, WINDOW)
    assert [None, 16, None, None] == [Geometry((FULL, group)).state_block_tokens for group in groups]


def test_a_group_that_serves_no_hits_aligns_nothing() -> None:
    """Goal: a running state alone spans the longest request, and no hit waits for its end.

    Method: next to full attention of 16, a block of 1000 changes nothing. By itself it leaves hits, which never occur,
    at every token.
    """
    mixed, alone = Geometry((FULL, RUNNING)), Geometry((RUNNING,))
    assert [(16, 16), (1, 1)] == [(geometry.alignment_tokens, geometry.grain_tokens) for geometry in (mixed, alone)]


def test_the_longest_look_ahead_counts() -> None:
    """Goal: a hit must leave room for the longest look-ahead. Method: no flag; 16; 16 next to a unit of 64."""
    assert [0, 16, 64] == [
        Geometry(groups).lookahead_tokens
        for groups in ((FULL, WINDOW), (FULL, DRAFTING_WINDOW), (Group("full", 64, lookahead=True), DRAFTING_WINDOW))
    ]


def test_blocks_occupied() -> None:
    """Goal: a group counts in its own block size. Method: 17 tokens in blocks of 16 and of 4."""
    assert (2, 5) == (FULL.blocks_occupied(17), Group("full", 4).blocks_occupied(17))


def test_alignment_and_grain() -> None:
    """Goal: hits end where all groups' blocks end, content is distinguished at what divides them all.

    Method: blocks of 16 and 24 have least common multiple 48 and greatest common divisor 8.
    """
    geometry = Geometry((FULL, Group("full", 24)))
    assert (48, 8) == (geometry.alignment_tokens, geometry.grain_tokens)
    partial = Geometry((PARTIAL, Group("full", 24)))
    assert (48, 8) == (partial.alignment_tokens, partial.grain_tokens)
    assert (16, 16) == (Geometry((FULL,)).alignment_tokens, Geometry((FULL,)).grain_tokens)


def test_a_kind_may_be_a_word() -> None:
    """Goal: a word from a file compares equal to the value in code. Method: a word for the kind."""
    assert Geometry((Group(Kind.FULL, 16),)) == Geometry((Group("full", 16),))


@pytest.mark.parametrize("kind", ["sliding_window", "chunked_local"])
@pytest.mark.parametrize("window_tokens", [None, 0, 1, 64.0, "64", True])
def test_a_window_group_needs_a_window(kind: str, window_tokens: Any) -> None:
    """Goal: a window is a number of at least two tokens. Method: none, too small, of another type."""
    with pytest.raises(ValueError, match=f"a {kind} group needs window_tokens of at least 2"):
        Group(kind, 16, window_tokens)
    assert 2 == Group(kind, 16, 2).window_tokens


@pytest.mark.parametrize("states", [None, "all"])
def test_other_groups_take_no_window(states: str | None) -> None:
    """Goal: a window that would be silently ignored is rejected. Method: full attention and states, with 64."""
    kind = "mamba" if states else "full"
    with pytest.raises(ValueError, match=f"a {kind} group takes no window_tokens, got 64"):
        Group(kind, 16, 64, states=states)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"kind": "mamba"}, "needs a mode of states"),
        ({"kind": "full", "states": "all"}, "a mamba group, and no other"),
        ({"kind": "mamba", "states": "some"}, "some"),
        ({"kind": "full", "draft_states": 1}, "a full group takes no draft_states"),
        ({"kind": "mamba", "states": "all", "draft_states": -1}, "draft_states"),
        ({"kind": "mamba", "states": "align", "draft_states": 8}, "at least 18 tokens, got 16"),
        ({"kind": "mamba", "states": "all", "lookahead": True}, "a mamba group has no draft layer"),
        ({"kind": "full", "compress_ratio": 0}, "compress_ratio"),
        ({"kind": "full", "compress_ratio": 3}, "a block of 16 tokens is not whole slots of 3"),
        ({"kind": "full", "unit_tokens": 0}, "unit_tokens"),
        ({"kind": "full", "unit_tokens": 5}, "a unit of 5 tokens must divide the block and be whole slots"),
        ({"kind": "full", "unit_tokens": 32}, "a unit of 32 tokens must divide the block"),
        ({"kind": "full", "compress_ratio": 4, "unit_tokens": 2}, "a unit of 2 tokens must .* be whole slots"),
        (
            {"kind": "sliding_window", "window_tokens": 8, "unit_tokens": 8},
            "a hit cannot end inside a block of a sliding_window group",
        ),
    ],
)
def test_what_is_not_a_group(given: dict[str, Any], message: str) -> None:
    """Goal: a meaningless or ignored value is rejected at once. Method: one thing wrong in each."""
    with pytest.raises(ValueError, match=message):
        Group(**{"block_size_tokens": 16, **given})


def test_states_at_block_ends_need_room_for_drafts() -> None:
    """Goal: more states than a table has places for are rejected, but only where the places are few.

    Method: two steps of 7 drafts and a token each are 16 tokens, one block. With all states kept, 8 drafts fit as well.
    """
    assert 7 == Group("mamba", 16, states="align", draft_states=7).draft_states
    assert 8 == Group("mamba", 16, states="all", draft_states=8).draft_states


def test_what_is_a_group_though_it_says_nothing_new() -> None:
    """Goal: a redundant value is not an error. Method: a unit that is the block, no drafts, ratio 1."""
    spelled_out = Group("sliding_window", 16, 64, False, 1, 16, None, 0)
    assert (16, WINDOW.attention) == (spelled_out.unit, spelled_out.attention)


def test_what_is_not_a_geometry() -> None:
    """Goal: a geometry that means nothing is rejected at once. Method: block size 0 or 1.5, no such kind."""
    with pytest.raises(ValueError, match="block_size_tokens"):
        Group("full", 0)
    with pytest.raises(TypeError, match="block_size_tokens"):
        Group("full", 1.5)  # type: ignore[arg-type]  # what it refuses
    with pytest.raises(ValueError, match="chunked"):
        Group("chunked", 16)


def test_states_at_block_ends_have_blocks_of_one_size() -> None:
    """Goal: a chunk cannot end at blocks of two sizes. Method: two such groups of 16 and 24; of 16 twice is fine."""
    states = [Group("mamba", size, states="align") for size in (16, 24)]
    assert (states[0], states[0]) == Geometry((states[0], states[0])).groups
    with pytest.raises(ValueError, match="blocks of the same size"):
        Geometry(tuple(states))
