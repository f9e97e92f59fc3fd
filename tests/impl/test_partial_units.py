"""The unit of partial hits.

Goal: the finest unit that works for every layer, and a unit that was asked for only if it works. Method: the groups of
published models, worked out by hand, and what cannot be meant.
"""

from __future__ import annotations

import pytest

from swa_retention.config import ConfigurationError
from swa_retention.partial.units import Cuttable, Units, units_of


def full(block_tokens: int, *ratios: int) -> Cuttable:
    """A group of full attention."""
    return Cuttable(block_tokens, True, ratios or (1,))


def window(block_tokens: int) -> Cuttable:
    """A group whose blocks are not cut."""
    return Cuttable(block_tokens, False)


MODELS = {
    "DeepSeek-V4-Flash in vLLM": ([full(256, 4, 128), window(64), window(64), window(4), window(8)], 4, 128, [True]),
    "on Ascend, 128 slots": ([full(512, 4), full(16384, 128), window(128), window(8), window(32)], 8, 128, [True] * 2),
    "on Ascend, 32 slots": ([full(128, 4), full(4096, 128), window(32), window(2), window(8)], 2, 128, [False, True]),
    "large blocks next to a window": ([full(64), window(16)], 16, 16, [True]),
    "equal blocks": ([full(16), window(16)], 16, 16, [False]),
    "a window of larger blocks": ([full(16), window(64)], 16, 64, [False]),
    "blocks that fit nothing": ([full(48), full(64), window(16)], 16, 16, [True, True]),
    "hashed in larger pieces": ([full(64), window(8)], 32, 32, [True]),
}


@pytest.mark.parametrize(("groups", "hashed", "unit", "copies"), MODELS.values(), ids=MODELS)
def test_the_finest_unit(groups: list[Cuttable], hashed: int, unit: int, copies: list[bool]) -> None:
    """Whole blocks of every window, whole slots of every ratio, whole pieces of what is hashed."""
    whole = [False] * (len(groups) - len(copies))
    assert Units(unit, (*copies, *whole)) == units_of(groups, hashed, None)


def test_every_ratio_of_a_group_counts() -> None:
    """In a group of layers with the ratios 4 and 128, half a slot of the latter is none."""
    assert 64 == units_of([full(256, 4), window(64)], 4, None).unit_tokens
    assert 128 == units_of([full(256, 4, 128), window(64)], 4, None).unit_tokens


@pytest.mark.parametrize("given", [128, 256, 512])
def test_a_unit_that_was_asked_for(given: int) -> None:
    """A multiple of the finest one; a block that is not larger is not cut."""
    assert Units(given, (given < 512, True, False)) == units_of([full(512, 4), full(16384, 128), window(128)], 8, given)


@pytest.mark.parametrize("given", [1, 64, 129, 192, 384])
def test_a_unit_that_does_not_work(given: int) -> None:
    """It cuts a slot or a block of a window, or does not divide a block: the message says what works."""
    with pytest.raises(ConfigurationError, match=f"='{given}' is not possible: give auto, which is 128 tokens"):
        units_of([full(512, 4), full(16384, 128), window(128)], 8, given)


def test_a_block_that_the_unit_does_not_divide_makes_it_coarser() -> None:
    """Blocks of 24 tokens next to a window of 16: hits end at multiples of 48, or within no block at all."""
    assert Units(48, (False, True, False)) == units_of([full(24), full(96), window(16)], 8, None)
