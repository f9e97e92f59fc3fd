"""Numbers that a reviewer can check by hand: what the published geometries can hit at all.

Each is shown twice, by the formula and by a manager that computes a prompt, releases it and looks it up again.
"""

from __future__ import annotations

import pytest
from attrs import evolve

from kvreference.compressed import C128, dsv4_flash, dsv4_flash_ascend
from kvreference.geometry import Geometry, Group
from kvreference.operations import Run
from kvreference.retention import replay_boundary

from .replays import computed, hit, hit_of, replayed, system


def all_flagged(geometry: Geometry) -> Geometry:
    """The geometry in which every group counts as a draft layer's: what vLLM falls back to when none is flagged."""
    return Geometry(tuple(evolve(group, lookahead=True) for group in geometry.groups))


def drafted(geometry: Geometry, with_mtp: Geometry, flags: str) -> Geometry:
    """One of three configurations of a model: without drafts, with the draft layer's group flagged, with
    all of them.
    """
    return {"none": geometry, "one": with_mtp, "all": all_flagged(geometry)}[flags]


@pytest.mark.parametrize(
    ("block_size", "flags", "smallest", "shortest"),
    [
        # A block of C128 is block_size * 128 tokens, and no other block is longer: 128 * 128 = 16384, 8192, 4096.
        # The last token is never served, so a prompt must be one token longer.
        (128, "none", 16384, 16384 + 1),
        (64, "none", 8192, 8192 + 1),
        (32, "none", 4096, 4096 + 1),
        # The draft layer's window group must match one of its own blocks more, of block_size tokens.
        (128, "one", 16384, 16384 + 128 + 1),
        (64, "one", 8192, 8192 + 64 + 1),
        (32, "one", 4096, 4096 + 32 + 1),
        # C128 itself must match a block more: two of them, and the last token.
        (128, "all", 16384, 2 * 16384 + 1),
        (64, "all", 8192, 2 * 8192 + 1),
        (32, "all", 4096, 2 * 4096 + 1),
    ],
)
def test_smallest_hit_on_ascend(block_size: int, flags: str, smallest: int, shortest: int) -> None:
    """Goal: how long a prompt must be to hit anything at all, and that it then hits one C128 block.

    Method: hits are multiples of lcm(4 * b, 128 * b, b, state blocks) = 128 * b. A prompt of P tokens hits L if L and
    the longest look-ahead are at most P - 1. Compute the shortest prompt that can; replay it, and one token less.
    """
    plain = dsv4_flash_ascend(block_size)
    geometry = drafted(plain, dsv4_flash_ascend(block_size, mtp=True), flags)
    assert smallest == geometry.alignment_tokens == block_size * C128
    assert (0, smallest) == (replay_boundary(geometry, shortest - 1), replay_boundary(geometry, shortest))

    manager = computed(system(geometry, shortest), Run(0, shortest))
    assert (0, smallest) == (hit_of(manager, shortest - 1), hit_of(manager, shortest))


def test_with_all_groups_flagged_two_blocks_of_c128_are_not_enough() -> None:
    """Goal: at block size 128 a prompt of 32k tokens hits nothing, if no group is known to hold the draft layer.

    Method: the hit of 16384 needs the C128 block after it, up to 32768, and one token more to compute. 32768 tokens are
    two C128 blocks exactly; 32767 is the most that may match.
    """
    geometry = all_flagged(dsv4_flash_ascend(128))
    assert 2 == geometry.groups[1].blocks_occupied(32768)
    assert (0, 16384) == (replay_boundary(geometry, 32768), replay_boundary(geometry, 32769))
    assert 0 == replayed(geometry, 32768)


@pytest.mark.parametrize(("flags", "shortest"), [("none", 256 + 1), ("one", 256 + 64 + 1), ("all", 256 + 256 + 1)])
def test_smallest_hit_on_a_gpu(flags: str, shortest: int) -> None:
    """Goal: on a GPU hits are multiples of 256 tokens. Method: lcm(256, 64, 64, 4, 8) = 256; then as on Ascend."""
    geometry = drafted(dsv4_flash(), dsv4_flash(mtp=True), flags)
    assert 256 == geometry.alignment_tokens
    assert (0, 256) == (replay_boundary(geometry, shortest - 1), replay_boundary(geometry, shortest))
    manager = computed(system(geometry, shortest), Run(0, shortest))
    assert (0, 256) == (hit_of(manager, shortest - 1), hit_of(manager, shortest))


def test_blocks_that_a_prefill_goes_through_on_ascend() -> None:
    """Goal: 8192 tokens of prefill take 1425 blocks at block size 128, most of them for states that soon slide away.

    Method: C4 8192 / 512 = 16, C128 one begun, two windows 8192 / 128 = 64 each, C4 state 8192 / 8 = 1024, C128 state
    8192 / 32 = 256: 16 + 1 + 64 + 64 + 1024 + 256.
    """
    blocks = [group.blocks_occupied(8192) for group in dsv4_flash_ascend(128).groups]
    assert [16, 1, 64, 64, 1024, 256] == blocks
    assert 1425 == sum(blocks)


@pytest.mark.parametrize(
    ("tokens", "none", "one", "every"),
    [
        (16584, 16384, 16384, 0),  # 16583 - 128 = 16455 is still after 16384; 16583 - 16384 is not
        (20000, 16384, 16384, 0),
        (32768, 16384, 16384, 0),  # 32767 - 16384 = 16383: one token short of a hit
        (33000, 32768, 32768, 16384),  # 32999 - 128 = 32871
        (40000, 32768, 32768, 16384),
        (64530, 49152, 49152, 32768),  # 3 * 16384 = 49152; 64529 - 16384 = 48145 is less
    ],
)
def test_a_replay_loses_one_block_of_the_draft_layers_group(tokens: int, none: int, one: int, every: int) -> None:
    """Goal: a drafting replay hits what the plain one does, less what its own group must match more, aligned down.

    Method: the largest multiple of 16384 that is at most ``tokens - 1 - look-ahead``, where the look-ahead is 0, a
    window block of 128, or a C128 block of 16384. The last column is what vLLM-Ascend 0.20.2rc does: its replays of
    20000, 32768 and 40000 tokens were seen to hit 0, 0 and 16384. So the defect is in the flags, not in the look-up.
    """
    for geometry, expected in (
        (dsv4_flash_ascend(128), none),
        (dsv4_flash_ascend(128, mtp=True), one),
        (all_flagged(dsv4_flash_ascend(128)), every),
    ):
        assert expected == replay_boundary(geometry, tokens)
        assert expected == replayed(geometry, tokens)


@pytest.mark.parametrize(("flags", "expected"), [("none", 16384), ("one", 16384), ("all", 0)])
def test_a_shared_prefix_just_short_of_two_units(flags: str, expected: int) -> None:
    """Goal: a prompt that diverges before a boundary hits the one before, if its look-ahead is shared as well.

    Method: of 64530 tokens the first 32274 are shared, less than 2 * 16384 = 32768. The C128 block after 16384 ends at
    32768 and is not shared, the window block after it ends at 16512 and is.
    """
    geometry = drafted(dsv4_flash_ascend(128), dsv4_flash_ascend(128, mtp=True), flags)
    assert expected == hit_of(computed(system(geometry, 64530), Run(0, 64530)), 32274, 32256)


def test_all_groups_look_ahead_once() -> None:
    """Goal: three groups with draft layers lose one block together, not one each, round after round, down to 0.

    Method: blocks of 16, windows of 64 and 128, 320 tokens cached. At 320 the block after it is missing; at 304 it is
    the last one, 304..319, in all three groups. A request of 320 tokens may match 319 only: 288.
    """
    groups = [Group("full", 16, lookahead=True)]
    groups += [Group("sliding_window", 16, window, lookahead=True) for window in (64, 128)]
    manager = computed(system(Geometry(tuple(groups)), 320, 320), Run(0, 320))
    assert (304, 288) == (hit_of(manager, 320, 40), hit_of(manager, 320))
    plain = Geometry(tuple(evolve(group, lookahead=False) for group in groups))
    assert 320 == hit_of(computed(system(plain, 320, 320), Run(0, 320)), 320, 40)


def test_a_state_group_aligns_hits_to_4096() -> None:
    """Goal: with small blocks for the compressor's state, a prompt below 4096 tokens still hits nothing.

    Method: lcm(128, 4096, 32, 2, 8) = 4096, because of the C128 group and not of the block of 2. 2048 tokens have no
    multiple of it below; 4296 have one. The sixth group of the published geometry changes nothing.
    """
    reported = Geometry(
        (
            Group("full", 128, compress_ratio=4),
            Group("full", 4096, compress_ratio=128),
            Group("sliding_window", 32, 128),
            Group("sliding_window", 2, 8),
            Group("sliding_window", 8, 8),
        )
    )
    for geometry in (reported, dsv4_flash_ascend(32)):
        assert 4096 == geometry.alignment_tokens
        assert (0, 4096) == (replayed(geometry, 2048), replayed(geometry, 4096 + 200))
    without_state = Geometry(reported.groups[:3])
    assert 4096 == without_state.alignment_tokens


@pytest.mark.parametrize(("chunk", "expected"), [(8192, 0), (528, 1056)])
def test_states_are_there_only_where_a_chunk_ended(chunk: int, expected: int) -> None:
    """Goal: with states kept at the ends of chunks alone, a shared prefix hits only if a chunk ended within it.

    Method: 1500 of 2200 tokens are shared, blocks of 528. In one chunk the states are those after 4 * 528 = 2112, which
    is not shared, and 2200: nothing is hit, though full attention has 2 * 528 = 1056. In chunks of 528 the state after
    1056 is there. What a hit needs is the same in both; this is a matter of where a scheduler cuts.
    """
    geometry = Geometry((Group("full", 528), Group("mamba", 528, states="align")))
    manager = computed(system(geometry, 2200, chunk), Run(0, 2200))
    assert expected == hit_of(manager, 1500, 700)
    assert 2112 == hit(manager, Run(0, 2200))
