"""Groups and geometries: what a hit needs, what is dead, what is aligned, and what is no geometry at all."""

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


@pytest.mark.parametrize(
    ("group", "hit_tokens", "needed"),
    [
        (FULL, 320, (0, 20)),
        (WINDOW, 320, (16, 20)),  # token 320 reads 257..320; token 257 lies in block 16
        (WINDOW, 48, (0, 3)),
        (WINDOW, 80, (1, 5)),  # token 80 reads 17..80: the first block is not needed
        (DRAFTING_FULL, 320, (0, 21)),
        (DRAFTING_WINDOW, 320, (16, 21)),
        (FULL, 0, (0, 0)),
        (DRAFTING_WINDOW, 0, (0, 0)),
    ],
)
def test_blocks_needed_by_hand(group: Group, hit_tokens: int, needed: tuple[int, int]) -> None:
    """Goal: a resume needs what its token reads, and the block behind it where a draft layer lives; at 0, nothing.

    Method: block 16, window 64.
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
    [(FULL, 1000, 0), (WINDOW, 0, 0), (WINDOW, 78, 0), (WINDOW, 79, 1), (WINDOW, 320, 16)],
)
def test_blocks_dead_by_hand(group: Group, computed: int, dead: int) -> None:
    """Goal: a block is dead once no later token reads any of its tokens; in full attention, never.

    Method: token 79 reads 16..79, so block 0 is dead then, and one token earlier it is not.
    """
    assert dead == group.blocks_dead(computed)


def test_tokens_matched() -> None:
    """Goal: a draft layer matches one block more than it serves. Method: a hit of 320 with block 16."""
    assert (320, 336) == (FULL.tokens_matched(320), DRAFTING_WINDOW.tokens_matched(320))


def test_blocks_held_at_most() -> None:
    """Goal: full attention holds all, a window its cap. Method: 1000 tokens are 63 blocks; 8 + 1 in the window."""
    assert 63 == FULL.blocks_held_at_most(64, 1000)
    assert 9 == WINDOW.blocks_held_at_most(64, 1000)


def test_blocks_occupied() -> None:
    """Goal: a group counts in its own block size. Method: 17 tokens in blocks of 16 and of 4."""
    assert (2, 5) == (FULL.blocks_occupied(17), Group("full", 4).blocks_occupied(17))


def test_alignment_and_grain() -> None:
    """Goal: hits end where all groups' blocks end, content is told apart at what divides them all.

    Method: blocks of 16 and 24 have least common multiple 48 and greatest common divisor 8.
    """
    geometry = Geometry((FULL, Group("full", 24)))
    assert (48, 8) == (geometry.alignment_tokens, geometry.grain_tokens)
    assert (16, 16) == (Geometry((FULL,)).alignment_tokens, Geometry((FULL,)).grain_tokens)


def test_a_kind_may_be_a_word() -> None:
    """Goal: what is read from a file compares equal to what is written in code. Method: a word for the kind."""
    assert Geometry((Group(Kind.FULL, 16),)) == Geometry((Group("full", 16),))


@pytest.mark.parametrize("window_tokens", [None, 0, 1, 64.0, "64", True])
def test_a_window_group_needs_a_window(window_tokens: Any) -> None:
    """Goal: a window is a number of at least two tokens. Method: none, too small, of another type."""
    with pytest.raises(ValueError, match="needs window_tokens of at least 2"):
        Group("sliding_window", 16, window_tokens)
    assert 2 == Group("sliding_window", 16, 2).window_tokens


def test_a_full_group_takes_no_window() -> None:
    """Goal: a window that would be passed over in silence is refused. Method: a full group with 64."""
    with pytest.raises(ValueError, match="takes no window_tokens, got 64"):
        Group("full", 16, 64)


def test_what_is_no_geometry() -> None:
    """Goal: a geometry that means nothing is refused at once. Method: no group, block size 0 or 1.5, no such kind."""
    with pytest.raises(ValueError, match="at least one group"):
        Geometry(())
    with pytest.raises(ValueError, match="block_size_tokens"):
        Group("full", 0)
    with pytest.raises(TypeError, match="block_size_tokens"):
        Group("full", 1.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="chunked"):
        Group("chunked", 16)
