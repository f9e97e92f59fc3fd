"""Where a worker keeps each token.

Goal: the slots are those that one counts by hand, and no two tokens share one that should not. Method: tables written
out, and all slots of small layouts counted one by one.
"""

from __future__ import annotations

from itertools import product

import pytest

from kvreference.compressed import dsv4_flash_ascend
from kvreference.slots import Layout, layouts_of

TABLE = (7, 3, 9, 4)


def test_slots_by_hand() -> None:
    """Token 5 is the second of the second block, which is block 3."""
    assert 13 == Layout(4).slot(TABLE, 5)
    assert [30, 31, 12] == Layout(4).written(TABLE, 2, 5)


def test_a_slot_of_several_tokens_is_written_with_its_last() -> None:
    """Tokens 4 to 7 share the second slot of block 7."""
    layout = Layout(2, compress_ratio=4)
    assert [15, 15] == [layout.slot(TABLE, token) for token in (4, 7)]
    assert [[], [15], [6]] == [layout.written(TABLE, *step) for step in ((4, 7), (5, 8), (8, 12))]


def test_workers_take_turns() -> None:
    """Of two workers with rows of two, the second has tokens 2, 3, 6 and 7."""
    layout = Layout(4, ranks=2, rank=1, interleave=2)
    assert [None, None, 28, 29, None, None, 30, 31, None, None, 12] == layout.written(TABLE, 0, 11)


@pytest.mark.parametrize(("ranks", "interleave", "ratio"), list(product((1, 2, 3), (1, 2, 4), (1, 4))))
def test_every_slot_has_one_place(ranks: int, interleave: int, ratio: int) -> None:
    """All workers together keep each slot once, inside the blocks of the table, and leave no gap in full blocks."""
    tokens = 4 * ranks * len(TABLE) * ratio
    kept = [Layout(4, ratio, ranks, rank, interleave).written(TABLE, 0, tokens) for rank in range(ranks)]
    assert [1] * (tokens // ratio) == [sum(slot is not None for slot in of_all) for of_all in zip(*kept, strict=True)]
    every = sorted(block * 4 + offset for block in TABLE for offset in range(4))
    assert [every] * ranks == [sorted(slot for slot in of_one if slot is not None) for of_one in kept]


@pytest.mark.parametrize("size", [1, 2, 4])
def test_kernel_blocks_have_the_same_slots(size: int) -> None:
    """Slot by slot, for any size of a kernel's block."""
    blocks = Layout(4).kernel_blocks(TABLE, size)
    assert [Layout(4).slot(TABLE, token) for token in range(16)] == [
        Layout(size).slot(blocks, token) for token in range(16)
    ]


def test_what_does_not_fit_is_rejected() -> None:
    """Kernel blocks that are no part of a block, a worker too many, and rows that end inside the next block."""
    with pytest.raises(ValueError, match="not whole blocks of 3"):
        Layout(4).kernel_blocks(TABLE, 3)
    with pytest.raises(ValueError, match="worker 2 is not one of 2"):
        Layout(4, ranks=2, rank=2)
    with pytest.raises(ValueError, match="not whole rows of 3"):
        Layout(4, interleave=3)


def test_layouts_of_a_published_geometry() -> None:
    """DeepSeek-V4-Flash on Ascend, as slots."""
    assert [(32, 4), (32, 128), (32, 1), (32, 1), (2, 1), (8, 1)] == [
        (layout.block_slots, layout.compress_ratio) for layout in layouts_of(dsv4_flash_ascend(32))
    ]
