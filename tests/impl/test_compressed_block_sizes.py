"""The block sizes of DeepSeek-V4 on vLLM-Ascend.

Goal: each size that can be asked for has its row, asked for twice it must be the same, and unset nothing changes.
Method: the resolution of the variable and of ``--block-size``, against the published figures.
"""

from __future__ import annotations

import pytest
from attrs import astuple

from kvreference.compressed import ASCEND_BLOCK_SIZES
from swa_retention.compressed.block_sizes import BLOCK_SIZES, BlockSizes, ContradictionError, resolve
from swa_retention.config import COMPRESSED_BLOCK_SIZES_SLOTS, ConfigurationError

PUBLISHED = {128: (128, 128, 8, 32), 64: (64, 64, 4, 16), 32: (32, 32, 2, 8)}
"""By ``--block-size``: compressed attention, windows, C4 state and C128 state, in slots."""


@pytest.mark.parametrize("slots", PUBLISHED)
def test_all_groups_are_scaled_together(slots: int) -> None:
    """As published, and as the reference has it."""
    sizes = resolve(slots, None)
    assert sizes is not None
    assert PUBLISHED[slots] == astuple(sizes)
    assert astuple(ASCEND_BLOCK_SIZES[slots]) == astuple(sizes)
    assert (PUBLISHED[slots][2], PUBLISHED[slots][3]) == (sizes.state(4), sizes.state(128))


def test_every_size_that_the_variable_takes_has_a_row() -> None:
    """And no other."""
    assert sorted(COMPRESSED_BLOCK_SIZES_SLOTS) == sorted(BLOCK_SIZES)


@pytest.mark.parametrize(("slots", "page_bytes"), [(128, 131072), (64, 65536), (32, 32768)])
def test_pages_shrink_alike(slots: int, page_bytes: int) -> None:
    """A state is padded to the page of another group, which has fewer slots too."""
    assert page_bytes == BLOCK_SIZES[slots].page_bytes(131072)
    assert slots * 130 == BLOCK_SIZES[slots].page_bytes(16640)


@pytest.mark.parametrize(("variable", "option"), [(64, None), (None, 64), (64, 64)])
def test_either_may_ask(variable: int | None, option: int | None) -> None:
    """Or both for the same."""
    assert BlockSizes(64, 64, 4, 16) == resolve(variable, option)


def test_unset_is_vllm_ascends_own() -> None:
    """The setting is not read, and nothing is scaled."""
    assert None is resolve(None, None)


def test_a_contradiction_names_both() -> None:
    """With the value of each."""
    with pytest.raises(ContradictionError) as caught:
        resolve(32, 64)
    assert (
        "VLLM_ASCEND_DSV4_COMPRESSED_KV_BLOCK_SIZE='32' is not possible: --block-size=64 was given too, and a model "
        "has one block size: give the same, or one of them"
    ) == str(caught.value)


@pytest.mark.parametrize(("variable", "option", "named"), [(16, None, "COMPRESSED_KV"), (None, 256, "--block-size")])
def test_a_size_that_there_is_not(variable: int | None, option: int | None, named: str) -> None:
    """The message lists the existing ones."""
    with pytest.raises(ConfigurationError, match=f"{named}.* is not possible: give one of 32, 64, 128"):
        resolve(variable, option)


def test_no_other_layers_compress() -> None:
    """A ratio that DeepSeek-V4 does not have is not guessed at."""
    with pytest.raises(ValueError, match="no compressor has a ratio of 8"):
        BLOCK_SIZES[128].state(8)
