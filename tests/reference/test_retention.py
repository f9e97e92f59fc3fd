"""Retention, by hand: full attention in blocks of 32, a window of 16 in blocks of 8; hits align to 32 tokens.

A hit at a boundary reads the window's two blocks before it, ceil(15 / 8): at 32 these are 2 and 3, at 64 6 and 7.
"""

from __future__ import annotations

import pytest

from kvreference.compressed import Tokens, dsv4_flash, dsv4_flash_ascend, with_partial_hits
from kvreference.geometry import Geometry, Group
from kvreference.retention import (
    AUTO_INTERVAL_TOKENS,
    Dense,
    Retention,
    Sparse,
    interval_of,
    junction,
    next_boundary,
    replay_boundary,
)

FULL = Group("full", 32)
WINDOW = Group("sliding_window", 8, 16)
DRAFTING = Group("sliding_window", 8, 16, lookahead=True)
PLAIN = Geometry((FULL, WINDOW))
DRAFTED = Geometry((FULL, DRAFTING))

PROMPT = 150
"""A prompt whose replay hits 128, with the look-ahead as well: 128 + 8 is less than 150."""


def dues(retention: Retention, group: Group, blocks: int, prompt_tokens: int = PROMPT) -> dict[int, int]:
    """Of the first blocks those that are cached, and after how many tokens."""
    found = {index: retention.due_tokens(group, index, prompt_tokens) for index in range(blocks)}
    return {index: due for index, due in found.items() if due is not None}


def test_boundaries_at_every_token() -> None:
    """Goal: the formulas hold for the shortest blocks, too. Method: blocks of one token: a prompt of one token leaves
    nothing to replay, one of two leaves one; the first boundary after the first block is 1, after the second 2.
    """
    geometry = Geometry((Group("sliding_window", 1, 3),))
    assert [0, 1] == [replay_boundary(geometry, prompt_tokens) for prompt_tokens in (1, 2)]
    assert [1, 2] == [next_boundary(index, 1, 1, 0) for index in (0, 1)]


@pytest.mark.parametrize(
    ("text", "interval_tokens"),
    [(None, None), ("", None), ("  ", None), ("auto", 32768), (" AUTO ", 32768), ("0", 0), (" 16384\n", 16384)],
)
def test_what_a_user_may_write(text: str | None, interval_tokens: int | None) -> None:
    """Goal: unset is dense, and zero is not unset. Method: nothing, blanks, the word in any case, numbers."""
    assert interval_tokens == interval_of(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("32k", "a number of tokens or auto, not '32k'"),
        ("1.5", "a number of tokens or auto, not '1.5'"),
        ("none", "a number of tokens or auto, not 'none'"),
        ("-1", "must not be negative, got -1"),
    ],
)
def test_what_a_user_may_not_write(text: str, message: str) -> None:
    """Goal: a typing error does not turn retention off in silence. Method: almost numbers, almost words."""
    with pytest.raises(ValueError, match=message):
        interval_of(text)


def test_auto_fits_every_published_geometry() -> None:
    """Goal: ``auto`` is an interval of every DeepSeek-V4 geometry.

    Method: 32768 is 128 * 256 on a GPU, and 2 * 16384, 4 * 8192 or 8 * 4096 on Ascend.
    """
    geometries = [dsv4_flash(), *(dsv4_flash_ascend(size) for size in (128, 64, 32))]
    assert [128, 2, 4, 8] == [AUTO_INTERVAL_TOKENS // geometry.alignment_tokens for geometry in geometries]
    assert [0, 0, 0, 0] == [AUTO_INTERVAL_TOKENS % geometry.alignment_tokens for geometry in geometries]


@pytest.mark.parametrize(
    ("geometry", "prompt", "boundary"),
    [
        (PLAIN, 0, 0),
        (PLAIN, 1, 0),
        (PLAIN, 32, 0),  # the last token is never served
        (PLAIN, 33, 32),
        (PLAIN, 64, 32),
        (PLAIN, 65, 64),
        (DRAFTED, 40, 0),  # 32 and a block of 8 after it are 40, one more than the 39 that may match
        (DRAFTED, 41, 32),
        (DRAFTED, 5, 0),
    ],
)
def test_replay_boundary(geometry: Geometry, prompt: int, boundary: int) -> None:
    """Goal: the boundary, and the look-ahead after it, lie before the prompt's last token. Method: around 32, 64."""
    assert boundary == replay_boundary(geometry, prompt)


@pytest.mark.parametrize(
    ("index", "lookahead", "boundary"),
    [(0, 0, 32), (3, 0, 32), (4, 0, 64), (7, 0, 64), (0, 8, 32), (4, 8, 32), (5, 8, 64)],
)
def test_next_boundary(index: int, lookahead: int, boundary: int) -> None:
    """Goal: the first multiple after a block, or before it where it looks ahead; never 0. Method: every 32, block 8.

    Block 4 is the tokens 32..39: with a look-ahead of 8 it is the one after the boundary 32.
    """
    assert boundary == next_boundary(index, 32, 8, lookahead)


def test_dense() -> None:
    """Goal: every block, when it is full; every aligned boundary. Method: the first blocks; boundaries after 32."""
    dense = Dense(PLAIN)
    assert {0: 8, 1: 16, 2: 24} == dues(dense, WINDOW, 3)
    assert {0: 32, 1: 64, 2: 96} == dues(dense, FULL, 3)
    assert [64, 96] == list(dense.boundaries(32, 127, PROMPT))
    assert [32, 64, 96, 128] == list(dense.boundaries(0, 128, PROMPT))
    assert [] == list(dense.boundaries(128, 128, PROMPT))


def test_masked() -> None:
    """Goal: with the alignment as interval, all that a hit can read and nothing else. Method: interval 32.

    Before each boundary two window blocks of four; none of them before the boundary is reached.
    """
    masked = Sparse(PLAIN, 32)
    assert {2: 32, 3: 32, 6: 64, 7: 64, 10: 96, 11: 96} == dues(masked, WINDOW, 12)
    assert {0: 32, 1: 64, 2: 96} == dues(masked, FULL, 3)


def test_masked_with_a_look_ahead() -> None:
    """Goal: a tail is one block longer where a draft layer lives; that block is due when it is full.

    Method: the blocks 4, 8 and 12 begin at the boundaries 32, 64 and 96 and end 8 tokens later.
    """
    masked = Sparse(DRAFTED, 32)
    assert {2: 32, 3: 32, 4: 40, 6: 64, 7: 64, 8: 72, 10: 96, 11: 96, 12: 104} == dues(masked, DRAFTING, 13)


def test_an_interval() -> None:
    """Goal: windows at multiples of the interval and at the replay's boundary; full attention as ever.

    Method: interval 96, prompt of 150, 32 blocks: 96, 128 for the replay, and 192.
    """
    sparse = Sparse(PLAIN, 96)
    assert {10: 96, 11: 96, 14: 128, 15: 128, 22: 192, 23: 192} == dues(sparse, WINDOW, 32)
    assert {0: 32, 1: 64, 2: 96, 3: 128, 4: 160} == dues(sparse, FULL, 5)


def test_the_earlier_boundary_counts() -> None:
    """Goal: a block that two boundaries read is due at the first.

    Method: a window of 48 reads six blocks: at 96 the tokens 49..95, the blocks 6 to 11, at 128 81..127, 10 to 15.
    """
    wide = Group("sliding_window", 8, 48)
    expected = {**dict.fromkeys(range(6, 12), 96), **dict.fromkeys(range(12, 16), 128)}
    assert expected == dues(Sparse(Geometry((FULL, wide)), 96), wide, 18)


def test_the_latest_boundary_alone() -> None:
    """Goal: with an interval of 0 only the replay's boundary is kept, and that of a prompt too short is none.

    Method: prompts of 150 and of 32 tokens.
    """
    latest = Sparse(PLAIN, 0)
    assert {14: 128, 15: 128} == dues(latest, WINDOW, 32)
    assert {} == dues(latest, WINDOW, 32, prompt_tokens=32)
    assert {0: 32, 1: 64, 2: 96, 3: 128, 4: 160} == dues(latest, FULL, 5)
    assert {14: 128, 15: 128, 16: 136} == dues(Sparse(DRAFTED, 0), DRAFTING, 32)


@pytest.mark.parametrize(
    ("geometry", "known", "readable", "hit", "boundary"),
    [
        (PLAIN, 0, 149, 0, 0),
        (PLAIN, 31, 149, 0, 0),
        (PLAIN, 32, 149, 0, 32),
        (PLAIN, 95, 149, 0, 64),
        (PLAIN, 96, 149, 64, 96),
        (PLAIN, 96, 149, 96, 0),  # the hit reaches as far
        (PLAIN, 64, 149, 96, 0),
        (PLAIN, 160, 149, 0, 128),  # all of it is known, and a hit leaves the last token
        (DRAFTED, 96, 149, 0, 64),  # of a hit at 96, the look-ahead after it would have to match too
        (DRAFTED, 104, 149, 0, 96),
    ],
)
def test_junction(geometry: Geometry, known: int, readable: int, hit: int, boundary: int) -> None:
    """Goal: the last boundary in what is known, unless a hit reaches as far. Method: around 32, 64, 96; 150 tokens."""
    assert boundary == junction(geometry, known, readable, hit)


def test_the_junction_is_admitted() -> None:
    """Goal: the tail of the junction is kept besides all others, and changes nothing at one of them.

    Method: an interval of 0 with a junction at 64, of 96 with one at 32, and with one at 96.
    """
    assert {6: 64, 7: 64, 14: 128, 15: 128} == dues(Sparse(PLAIN, 0, 64), WINDOW, 32)
    assert {6: 64, 7: 64, 8: 72, 14: 128, 15: 128, 16: 136} == dues(Sparse(DRAFTED, 0, 64), DRAFTING, 32)
    assert {2: 32, 3: 32, **dues(Sparse(PLAIN, 96), WINDOW, 32)} == dues(Sparse(PLAIN, 96, 32), WINDOW, 32)
    assert dues(Sparse(PLAIN, 96), WINDOW, 32) == dues(Sparse(PLAIN, 96, 96), WINDOW, 32)
    assert [64, 128] == list(Sparse(PLAIN, 0, 64).boundaries(0, 200, PROMPT))
    assert [128] == list(Sparse(PLAIN, 0, 64).boundaries(64, 200, PROMPT))
    assert [128] == list(Sparse(PLAIN, 0, 128).boundaries(0, 200, PROMPT))


def test_a_request_has_its_own_junction() -> None:
    """Goal: the retention of a request without a junction is that of all; dense caching has none. Method: 64 and 0."""
    sparse, dense = Sparse(PLAIN, 96), Dense(PLAIN)
    assert Sparse(PLAIN, 96, 64) == sparse.at_junction(64)
    assert sparse is sparse.at_junction(0)
    assert dense is dense.at_junction(64)


def test_other_kinds_are_read_from_every_boundary() -> None:
    """Goal: an interval is for sliding windows and states. Method: attention chunks of 48, and states, blocks of 8.

    At 32 the chunk 0..47 is read up to 31, the blocks 0 to 3; 96 begins a chunk, and reads nothing: of the chunk
    48..95, a hit at 64 reads the blocks 6 and 7. Of states those stay that end at a multiple of 96, at the replay
    boundary, 128, and at the junction, 64.
    """
    chunked, states = Group("chunked_local", 8, 48), Group("mamba", 8, states="all")
    sparse = Sparse(Geometry((FULL, WINDOW, chunked, states)), 96)
    assert {0: 32, 1: 32, 2: 32, 3: 32, 6: 64, 7: 64} == dues(sparse, chunked, 12)
    assert {11: 96, 15: 128, 23: 192} == dues(sparse, states, 32)
    assert {7: 64, 11: 96, 15: 128, 23: 192} == dues(sparse.at_junction(64), states, 32)
    assert {15: 128} == dues(Sparse(sparse.geometry, 0), states, 32)


@pytest.mark.parametrize(
    ("interval", "start", "end", "boundaries"),
    [
        (96, 0, 200, [96, 128, 192]),  # 128 for the replay of 150
        (96, 96, 128, [128]),
        (96, 128, 191, []),
        (96, 128, 192, [192]),
        (128, 0, 200, [128]),  # a multiple that is the replay's as well is one boundary
        (0, 0, 1000, [128]),
        (0, 0, 127, []),
        (0, 128, 1000, []),
    ],
)
def test_admitted_boundaries(interval: int, start: int, end: int, boundaries: list[int]) -> None:
    """Goal: multiples of the interval and the replay's, ascending, each once. Method: by hand, prompt of 150."""
    assert boundaries == list(Sparse(PLAIN, interval).boundaries(start, end, PROMPT))


def test_boundaries_inside_compressed_blocks() -> None:
    """Goal: hits that end inside a block end at every unit. Method: DeepSeek-V4-Flash on Ascend, unit 512.

    The alignment is 512 instead of 16384, so the replay of 20000 tokens hits 39 * 512 = 19968 and not 16384.
    """
    geometry = with_partial_hits(dsv4_flash_ascend(128), Tokens(512))
    assert (512, 19968) == (geometry.alignment_tokens, replay_boundary(geometry, 20000))
    assert [1024, 1536] == list(Dense(geometry).boundaries(512, 2000, 20000))
    assert [8192, 16384, 19968] == list(Sparse(geometry, 8192).boundaries(0, 20000, 20000))
    assert [19968] == list(Sparse(geometry, 0).boundaries(0, 20000, 20000))
