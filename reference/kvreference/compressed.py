"""Compressed attention (DeepSeek-V4): slots are not tokens.

Compressed MLA keeps one entry, one *slot*, for ``compress_ratio`` tokens: 4 in the C4 layers and their indexer, 128 in
the C128 layers. A block of ``S`` slots thus spans ``S * compress_ratio`` tokens, its *logical block size*, and in
everything that counts tokens it is a block of full attention of that size. The compressor's state is a sliding window
over plain tokens: 8 of them in the C4 layers, 128 in the C128 layers.

Slots and tokens have types of their own, so that one is never taken for the other.

Source of the figures: DeepSeek-V4-Flash's configuration in vLLM 0.20.2 and vLLM-Ascend 0.20.2rc.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NewType

from attrs import evolve, frozen

from kvreference.attention import Kind
from kvreference.geometry import Geometry, Group

Slots = NewType("Slots", int)
"""A count of physical slots: entries of the cache."""
Tokens = NewType("Tokens", int)
"""A count of tokens of a request."""

C4 = 4
"""Tokens per slot in the C4 layers and in their indexer."""
C128 = 128
"""Tokens per slot in the C128 layers."""
WINDOW = Tokens(128)
"""The sliding window of every layer of DeepSeek-V4-Flash, the draft layer's among them."""
STATE_WINDOWS: Mapping[int, Tokens] = MappingProxyType({C4: Tokens(8), C128: Tokens(128)})
"""Per compress ratio, how many tokens the compressor's state looks back on."""


def logical_block_size(storage_block_size: Slots, compress_ratio: int) -> Tokens:
    """How many tokens a block of ``storage_block_size`` slots spans."""
    return Tokens(storage_block_size * compress_ratio)


def storage_block_size(group: Group) -> Slots:
    """How many slots a block of ``group`` has."""
    return Slots(group.block_size_tokens // group.compress_ratio)


@frozen
class BlockSizes:
    """The storage block sizes that vLLM-Ascend scales together, in slots."""

    mla: Slots
    swa: Slots
    c4_state: Slots
    c128_state: Slots


ASCEND_BLOCK_SIZES: Mapping[int, BlockSizes] = MappingProxyType(
    {
        mla: BlockSizes(Slots(mla), Slots(mla), Slots(c4_state), Slots(c128_state))
        for mla, c4_state, c128_state in ((128, 8, 32), (64, 4, 16), (32, 2, 8))
    }
)
"""vLLM-Ascend's ``--block-size`` to the block size of every kind of group."""


def _compressed(storage: Slots, compress_ratio: int) -> Group:
    return Group(Kind.FULL, logical_block_size(storage, compress_ratio), compress_ratio=compress_ratio)


def _window(block_size: Slots, window: Tokens, lookahead: bool = False) -> Group:
    return Group(Kind.SLIDING_WINDOW, block_size, window, lookahead)


def dsv4_flash_ascend(block_size: int, mtp: bool = False) -> Geometry:
    """DeepSeek-V4-Flash as vLLM-Ascend groups it, where ``--block-size`` counts slots.

    C4 (with the indexer), C128, two sliding-window groups of which the second holds the draft layer, C4 state and C128
    state. With ``mtp`` the draft layer's group is flagged.

    Raises:
        ValueError: a block size that vLLM-Ascend does not have.
    """
    sizes = ASCEND_BLOCK_SIZES.get(block_size)
    if sizes is None:
        raise ValueError(f"block size {block_size} is not one of {', '.join(map(str, ASCEND_BLOCK_SIZES))}")
    return Geometry(
        (
            _compressed(sizes.mla, C4),
            _compressed(sizes.mla, C128),
            _window(sizes.swa, WINDOW),
            _window(sizes.swa, WINDOW, lookahead=mtp),
            _window(sizes.c4_state, STATE_WINDOWS[C4]),
            _window(sizes.c128_state, STATE_WINDOWS[C128]),
        )
    )


def dsv4_flash(mtp: bool = False) -> Geometry:
    """DeepSeek-V4-Flash as vLLM groups it on a GPU, where block sizes count tokens.

    One group of 256 tokens for all compressed layers, whose slots are counted at the coarsest ratio in it: what is
    whole slots there is whole slots in all. Two sliding-window groups of 64, of which the second holds the draft
    layer; C4 state 4, C128 state 8.
    """
    return Geometry(
        (
            Group(Kind.FULL, 256, compress_ratio=C128),
            _window(Slots(64), WINDOW),
            _window(Slots(64), WINDOW, lookahead=mtp),
            _window(Slots(4), STATE_WINDOWS[C4]),
            _window(Slots(8), STATE_WINDOWS[C128]),
        )
    )


def with_partial_hits(geometry: Geometry, unit: Tokens) -> Geometry:
    """The same geometry, in which a hit may end inside a compressed block, at every multiple of ``unit`` tokens.

    Raises:
        ValueError: ``unit`` neither divides the block size of a compressed group, in whole slots, nor is a multiple.
    """
    return Geometry(tuple(_with_unit(group, unit) for group in geometry.groups))


def _with_unit(group: Group, unit: Tokens) -> Group:
    """``group`` with that unit, where it is compressed and its blocks do not end at every multiple anyway."""
    if group.compress_ratio == 1 or unit % group.block_size_tokens == 0:
        return group
    return evolve(group, unit_tokens=unit)
