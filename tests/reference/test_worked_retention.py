"""Numbers that a reviewer can check by hand: which windows retention keeps, and what is hit with and without it.

Sources: vLLM's pull requests 42258, 43447 and 44082, and the reports that the tests name.
"""

from __future__ import annotations

from functools import cache

import pytest

from kvreference.compressed import dsv4_flash, dsv4_flash_ascend
from kvreference.geometry import Geometry, Group
from kvreference.manager import Manager
from kvreference.operations import Evict, Run
from kvreference.retention import Dense, Retention, Sparse, replay_boundary

from .replays import cached_positions, computed, hit_of, replayed, system


def due(retention: Retention, group: Group, tokens: int) -> list[int]:
    """The blocks of a prompt that are cached once all of it is computed."""
    dates = {i: retention.due_tokens(group, i, tokens) for i in range(tokens // group.block_size_tokens)}
    return [index for index, date in dates.items() if date is not None and date <= tokens]


@cache
def prefilled(geometry: Geometry, tokens: int, interval: int | None, chunk_tokens: int = 8192) -> Manager:
    """A manager that has computed a prompt with this retention interval. A test that changes its cache takes a copy."""
    settings = system(geometry, tokens, chunk_tokens, retention_interval_tokens=interval)
    return computed(settings, Run(0, tokens))


# Tails: what masked caching leaves out


def test_a_tail_of_one_block() -> None:
    """Goal: of eight window blocks only 3 and 7 are cached.

    Method: full attention 32, window 8 in blocks of 8. Hits end at 32 and 64; one there reads the 7 tokens before it,
    ceil(7 / 8) = 1 block: 24..31 is block 3, 56..63 is block 7.
    """
    window = Group("sliding_window", 8, 8)
    geometry = Geometry((Group("full", 32), window))
    assert (32, (3, 4)) == (geometry.alignment_tokens, window.blocks_needed(32))
    assert [3, 7] == due(Sparse(geometry, 32), window, 64)
    assert [3, 7] == cached_positions(prefilled(geometry, 64, 32), 1)
    assert list(range(8)) == cached_positions(prefilled(geometry, 64, None), 1)


def test_nothing_is_cached_after_the_last_boundary() -> None:
    """Goal: after 112 tokens the blocks 0 to 5 are cached and block 6 is not; it is once 128 are computed.

    Method: full attention 32, window 32 in blocks of 16: a boundary reads ceil(31 / 16) = 2 blocks, and there are two
    between boundaries, so all are read. 96 is reached, that is blocks 0 to 5. Block 6 waits for 128.
    """
    window = Group("sliding_window", 16, 32)
    geometry = Geometry((Group("full", 32), window))
    masked = Sparse(geometry, 32)
    assert (0, 2) == window.blocks_needed(32)
    assert [0, 1, 2, 3, 4, 5] == due(masked, window, 112)
    assert 128 == masked.due_tokens(window, 6, 112)
    manager = prefilled(geometry, 112, 32)
    assert [[0, 1, 2], [0, 1, 2, 3, 4, 5]] == [cached_positions(manager, group) for group in (0, 1)]
    assert list(range(8)) == cached_positions(prefilled(geometry, 128, 32), 1)


def test_a_tail_is_one_block_longer_for_a_draft_layer() -> None:
    """Goal: with a look-ahead a tail ends one block later, after the boundary. Method: 128 tokens, as above.

    Window 8 in blocks of 8: block 3 and, after 32, block 4; 7 and 8; 11 and 12; 15 before 128, after which nothing is
    computed yet.
    """
    window = Group("sliding_window", 8, 8, lookahead=True)
    geometry = Geometry((Group("full", 32), window))
    expected = [3, 4, 7, 8, 11, 12, 15]
    assert expected == due(Sparse(geometry, 32), window, 128)
    assert expected == cached_positions(prefilled(geometry, 128, 32), 1)


EAGLE_WINDOW = Group("sliding_window", 64, 128, lookahead=True)
EAGLE = Geometry((Group("full", 256), EAGLE_WINDOW))


@pytest.mark.parametrize("interval", [None, 0, 256, 1024])
def test_look_ahead_blocks_are_written_as_they_are_read(interval: int | None) -> None:
    """Goal: masked caching and a draft layer agree, so that replays hit (vLLM's pull request 44082).

    Method: full attention 256, window 128 in blocks of 64, look-ahead. A hit at 256 * k reads ceil(127 / 64) = 2 blocks
    before it and one after: 4k - 2, 4k - 1, 4k. 4096 tokens are computed in chunks of 2048. Then 300 more tokens
    follow: 4096 lacks the block after it, 4096..4159, which was never computed with these tokens; so the hit is 3840,
    of which block 60 is the look-ahead. With 64 tokens more computed, it is 4096.
    """
    manager = prefilled(EAGLE, 4096, interval, chunk_tokens=2048)
    kept = {None: range(1, 17), 0: [15], 256: range(1, 17), 1024: [4, 8, 12, 15, 16]}[interval]
    tails = [i for k in kept for i in (4 * k - 2, 4 * k - 1, 4 * k) if i < 64]
    assert (list(range(64)) if interval is None else tails) == cached_positions(manager, 1)
    assert 3840 == replay_boundary(EAGLE, 4096)
    assert (3840, 3840) == (hit_of(manager, 4096, 300), hit_of(manager, 4096))
    assert 4096 == hit_of(prefilled(EAGLE, 4161, interval, chunk_tokens=2048), 4161, 300)


def test_without_the_look_ahead_block_nothing_would_be_hit() -> None:
    """Goal: the test above can fail as the defect did. Method: evict every block 4k, which the old mask left out."""
    manager = prefilled(EAGLE, 4096, 256, chunk_tokens=2048).copy()
    for block, content in enumerate(manager.pool.cached.contents()):
        if content is not None and content[0] == 1 and content[1].tokens % 256 == 64:
            manager.apply(Evict(block))
    assert 0 == hit_of(manager, 4096, 300)


# Intervals: what each setting keeps of a long prompt


GPU = dsv4_flash()
LONG = 100_000


@pytest.mark.parametrize(
    ("interval", "boundaries"),
    [
        (32768, [32768, 65536, 98304, 99840]),  # three multiples, and 390 * 256 = 99840 for the replay of 100,000
        (0, [99840]),
        (65536, [65536, 99840]),
    ],
)
def test_admitted_boundaries_of_a_long_prompt(interval: int, boundaries: list[int]) -> None:
    """Goal: with an interval a prompt of 100,000 tokens keeps the windows of a few boundaries, instead of all.

    Method: DeepSeek-V4-Flash on a GPU. A boundary reads ceil(127 / 64) = 2 window blocks in each of two groups,
    ceil(7 / 4) = 2 of C4 state and ceil(127 / 8) = 16 of C128 state; of full attention 99840 / 256 = 390 are read.
    """
    sparse = Sparse(GPU, interval)
    assert boundaries == list(sparse.boundaries(0, LONG, LONG))
    count = len(boundaries)
    expected = [390, 2 * count, 2 * count, 2 * count, 16 * count]
    assert expected == [len(due(sparse, group, LONG)) for group in GPU.groups]
    manager = prefilled(GPU, LONG, interval)
    assert expected == [len(cached_positions(manager, index)) for index in range(5)]
    assert 99840 == hit_of(manager, LONG)


def test_dense_and_masked_caching_of_a_long_prompt() -> None:
    """Goal: the blocks that the same prompt caches without an interval, and with the alignment as interval.

    Method: dense: 100,000 / 64 = 1562 in each window group, 25,000 and 12,500 of state. Masked: 390 boundaries, with
    2, 2, 2 and 16 blocks each. 32768 keeps 8, 8, 8 and 64.
    """
    assert [390, 1562, 1562, 25_000, 12_500] == [len(due(Dense(GPU), group, LONG)) for group in GPU.groups]
    assert [390, 780, 780, 780, 6240] == [len(due(Sparse(GPU, 256), group, LONG)) for group in GPU.groups]


@pytest.mark.parametrize(
    ("interval", "hits"),
    [
        (None, [2048, 69888, 99584, 99840]),
        (256, [2048, 69888, 99584, 99840]),
        (32768, [0, 65536, 98304, 99840]),
        (0, [0, 0, 0, 99840]),
    ],
)
def test_what_a_shared_prefix_hits(interval: int | None, hits: list[int]) -> None:
    """Goal: masking costs nothing, an interval what lies after its last multiple, an interval of 0 all but replays.

    Method: share 2100, 70,000, 99,839 and 99,840 of 100,000 tokens, then go on otherwise. Multiples of 256: 8 * 256 =
    2048, 273 * 256 = 69888, 389 * 256 = 99584, 390 * 256 = 99840. Of 32768: 0, 65536, 98304. The last is the boundary
    of the replay, which is kept with any interval.
    """
    manager = prefilled(GPU, LONG, interval)
    assert hits == [hit_of(manager, shared, 50) for shared in (2100, 70_000, 99_839, 99_840)]


# Reports


def test_a_prompt_that_diverges_in_its_last_segment_hits_nothing() -> None:
    """Goal: a known limit of an interval of 0 (vLLM's issue 57610): the tail is exactly what one boundary needs.

    Method: full attention 32, window 1024 in blocks of 16, 4100 tokens. The replay's boundary is 4096, where the window
    reads 3073..4095: blocks 192 to 255, ceil(1023 / 16) = 64. A request that shares 4090 or 4064 tokens could hit 4064,
    but there the window reads from 3041 on: blocks 190 to 253, of which 190 and 191 were not kept. Every lower boundary
    lacks more. The definition says 0, and so does the reference; with every boundary kept it is 4064.
    """
    window = Group("sliding_window", 16, 1024)
    geometry = Geometry((Group("full", 32), window))
    latest = prefilled(geometry, 4100, 0, chunk_tokens=2048)
    assert list(range(192, 256)) == cached_positions(latest, 1)
    assert ((192, 256), (190, 254)) == (window.blocks_needed(4096), window.blocks_needed(4064))
    assert [4096, 0, 0] == [hit_of(latest, shared, 20) for shared in (4099, 4090, 4064)]
    masked = prefilled(geometry, 4100, 32, chunk_tokens=2048)
    assert [4096, 4064, 4064] == [hit_of(masked, shared, 20) for shared in (4099, 4090, 4064)]


@pytest.mark.parametrize("mtp", [False, True])
@pytest.mark.parametrize("interval", [None, 0, 16384, 32768])
def test_windows_are_kept_where_compressed_blocks_end(mtp: bool, interval: int | None) -> None:
    """Goal: on Ascend, retention keeps the windows of boundaries that the look-up accepts (vllm-ascend's 11383).

    Method: 40,000 tokens in chunks of 8192, hits at multiples of 16384: 2 * 16384 = 32768. Its window is the 127 tokens
    before it: block 32768 / 128 - 1 = 255, and the draft layer's group also needs block 256 after it.
    """
    geometry = dsv4_flash_ascend(128, mtp)
    manager = prefilled(geometry, 40_000, interval)
    assert 32768 == replay_boundary(geometry, 40_000) == hit_of(manager, 40_000)
    kept = {None: [], 0: [255], 16384: [127, 255], 32768: [255]}[interval]
    ahead = sorted([*kept, *(index + 1 for index in kept if mtp)])
    expected = (kept, ahead) if interval is not None else (list(range(312)), list(range(312)))
    assert expected == (cached_positions(manager, 2), cached_positions(manager, 3))


def test_with_all_groups_flagged_an_interval_costs_nothing_either() -> None:
    """Goal: retention and look-ahead agree where the look-ahead is as long as the alignment. Method: flagged C128.

    33,000 tokens: 16384 and the block of 16384 after it are 32768, so 16384 is hit, with and without an interval.
    """
    plain = dsv4_flash_ascend(128)
    groups = tuple(Group(g.kind, g.block_size_tokens, g.window_tokens, True, g.compress_ratio) for g in plain.groups)
    assert [16384] * 3 == [
        replayed(Geometry(groups), 33_000, retention_interval_tokens=interval) for interval in (None, 0, 16384)
    ]


@pytest.mark.parametrize(
    ("groups", "tokens", "boundary"),
    [
        ((Group("full", 16, lookahead=True),), 40, 16),  # 16 and 16 after it are 32; the chunk ended at 32
        ((Group("full", 48),), 90, 48),  # the chunk ended at 80
    ],
)
def test_a_replay_may_miss_where_states_are_kept_at_chunk_ends(
    groups: tuple[Group, ...], tokens: int, boundary: int
) -> None:
    """Goal: a known limit of states kept at the ends of chunks: they need not be where the replay's boundary is.

    Method: states of 16 tokens next to full attention that looks ahead, or has longer blocks; the whole prompt is one
    chunk up to the last multiple of 16. In chunks of 16 every state is kept, and the boundary is hit.
    """
    geometry = Geometry((*groups, Group("mamba", 16, states="align")))
    assert boundary == replay_boundary(geometry, tokens)
    assert (0, boundary) == (replayed(geometry, tokens), replayed(geometry, tokens, chunk_tokens=16))
