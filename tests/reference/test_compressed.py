"""Compressed attention: slots and tokens, and the groups of DeepSeek-V4-Flash."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from kvreference.attention import Kind
from kvreference.compressed import (
    ASCEND_BLOCK_SIZES,
    C4,
    C128,
    STATE_WINDOWS,
    WINDOW,
    Slots,
    Tokens,
    dsv4_flash,
    dsv4_flash_ascend,
    logical_block_size,
    storage_block_size,
    with_partial_hits,
)
from kvreference.geometry import Geometry, Group


@pytest.mark.parametrize(
    ("slots", "ratio", "tokens"), [(128, 4, 512), (128, 128, 16384), (32, 128, 4096), (2, 128, 256)]
)
def test_logical_block_size(slots: int, ratio: int, tokens: int) -> None:
    """Goal: a block spans its slots times the tokens per slot, and back. Method: 128 slots of C128 are 16384 tokens."""
    assert tokens == logical_block_size(Slots(slots), ratio)
    assert slots == storage_block_size(Group("full", tokens, compress_ratio=ratio))


@pytest.mark.parametrize(("tokens", "begun", "whole"), [(0, 0, 0), (15, 1, 0), (16, 1, 1), (79, 2, 1), (80, 2, 2)])
def test_memory_for_whole_slots(tokens: int, begun: int, whole: int) -> None:
    """Goal: a block is taken with its first slot, begun or complete. Method: blocks of four slots of 16 tokens."""
    counts_begun = Group("full", 64, compress_ratio=16)
    counts_whole = Group("full", 64, compress_ratio=16, whole_slots=True)
    assert [begun, whole] == [group.blocks_occupied(tokens) for group in (counts_begun, counts_whole)]
    assert [begun, whole] == [
        group.entries(
            tokens,
            tokens,
        )
        for group in (counts_begun, counts_whole)
    ]
    assert tokens - tokens % 16 == counts_whole.tokens_stored(tokens)
    assert tokens == counts_begun.tokens_stored(tokens)


def test_an_uncompressed_block_has_a_slot_per_token() -> None:
    """Goal: without compression, slots are tokens. Method: a window block of 64."""
    slots = storage_block_size(Group("sliding_window", 64, 128))
    assert (64, int) == (slots, type(slots))


@pytest.mark.parametrize(
    ("block_size", "c4", "c128", "window", "c4_state", "c128_state"),
    [(128, 512, 16384, 128, 8, 32), (64, 256, 8192, 64, 4, 16), (32, 128, 4096, 32, 2, 8)],
)
def test_groups_on_ascend(block_size: int, c4: int, c128: int, window: int, c4_state: int, c128_state: int) -> None:
    """Goal: six groups, whose block sizes scale together. Method: spelled out; 128 slots are 512 and 16384 tokens."""
    expected = (
        Group("full", c4, compress_ratio=4),
        Group("full", c128, compress_ratio=128),
        Group("sliding_window", window, 128),
        Group("sliding_window", window, 128),
        Group("sliding_window", c4_state, 8),
        Group("sliding_window", c128_state, 128),
    )
    assert Geometry(expected) == dsv4_flash_ascend(block_size)
    assert [block_size] * 2 == [storage_block_size(group) for group in expected[:2]]


def test_groups_on_a_gpu() -> None:
    """Goal: five groups, one for all compressed layers, as vLLM forms them. Method: spelled out."""
    expected = (
        Group("full", 256, compress_ratio=128),
        Group("sliding_window", 64, 128),
        Group("sliding_window", 64, 128),
        Group("sliding_window", 4, 8),
        Group("sliding_window", 8, 128),
    )
    assert Geometry(expected) == dsv4_flash()


@pytest.mark.parametrize("build", [partial(dsv4_flash_ascend, 64), dsv4_flash], ids=["ascend", "vllm"])
def test_the_draft_layer_is_in_the_second_window_group(build: Callable[..., Geometry]) -> None:
    """Goal: MTP flags one group and changes nothing else. Method: compare the flags, then all but the flags."""
    plain, drafting = build(), build(mtp=True)
    flags = [group.lookahead for group in drafting.groups]
    windows = [index for index, group in enumerate(plain.groups) if group.window_tokens == 128][:2]
    assert [index == windows[1] for index in range(len(flags))] == flags
    assert not any(group.lookahead for group in plain.groups)
    assert [plain.groups[i] == drafting.groups[i] for i in range(len(flags))] == [not flag for flag in flags]


@pytest.mark.parametrize("block_size", [0, 16, 96, 256])
def test_a_block_size_that_is_none(block_size: int) -> None:
    """Goal: the sizes that vLLM-Ascend rejects are rejected. Method: sizes around those it has."""
    with pytest.raises(ValueError, match=f"block size {block_size} is not one of 128, 64, 32"):
        dsv4_flash_ascend(block_size)


def test_figures_cannot_be_changed() -> None:
    """Goal: a figure is a figure. Method: the values, and an attempt to set them."""
    assert (4, 128, 128, {4: 8, 128: 128}) == (C4, C128, WINDOW, dict(STATE_WINDOWS))
    assert [128, 64, 32] == list(ASCEND_BLOCK_SIZES)
    for table in (STATE_WINDOWS, ASCEND_BLOCK_SIZES):
        with pytest.raises(TypeError, match="does not support item assignment"):
            table[1] = 1  # type: ignore[index]  # what it refuses


@pytest.mark.parametrize(
    ("unit", "units", "alignment"),
    [
        (128, [128, 128], 128),  # one slot of C128, 32 slots of C4
        (512, [512, 512], 512),  # a whole block of C4: it is as it was
        (1024, [512, 1024], 1024),  # longer than a block of C4, which ends wherever a unit does
        (16384, [512, 16384], 16384),  # whole blocks: nothing is partial
    ],
)
def test_with_partial_hits(unit: int, units: list[int], alignment: int) -> None:
    """Goal: hits end at every unit, in compressed groups only. Method: blocks of 512 and 16384 tokens, and windows."""
    plain = dsv4_flash_ascend(128, mtp=True)
    partial = with_partial_hits(plain, Tokens(unit))
    assert units == [group.unit for group in partial.groups[:2]]
    assert plain.groups[2:] == partial.groups[2:]
    assert alignment == partial.alignment_tokens
    assert [unit < 512, unit < 16384] == [group.copies for group in partial.groups[:2]]


@pytest.mark.parametrize("unit", [64, 100, 1536])
def test_a_unit_that_does_not_fit(unit: int) -> None:
    """Goal: a hit ends between slots and divides the block. Method: half a slot of C128; 100; a unit that is 10.7 to a
    block of 16384.
    """
    with pytest.raises(ValueError, match=f"a unit of {unit} tokens must divide the block and be whole slots"):
        with_partial_hits(dsv4_flash_ascend(128), Tokens(unit))


def test_uncompressed_full_attention_stays_whole() -> None:
    """Goal: only compressed blocks are worth copying. Method: a full group of plain tokens next to a compressed one."""
    plain = Geometry((Group(Kind.FULL, 64), Group(Kind.FULL, 64, compress_ratio=4)))
    assert [64, 16] == [group.unit for group in with_partial_hits(plain, Tokens(16)).groups]
