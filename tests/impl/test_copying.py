"""The copies of partial hits in the tensors that vLLM's backends lay out.

Goal: of each copy exactly the slots before the boundary arrive, or the whole block where slots cannot be distinguished,
and no other byte changes. Method: random bytes in the shapes of real backends, with seeded copies, next to a copy slot
by slot; every byte of the memory below is compared, padding too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from attrs import evolve

from kvgate.adapters.device.reference_copy import generate_copies, shaped, slot_by_slot
from swa_retention.copying.batch import copy_in, index_of
from swa_retention.copying.layout import Layout, LayoutError, axes_of, keeps_slots_apart
from swa_retention.copying.views import copy_views
from swa_retention.partial.copies import BlockCopy

pytest.importorskip("vllm")

BLOCKS, HEADS, HEAD_SIZE = 12, 2, 32
DTYPES = ("float32", "bfloat16", "float16", "uint8", "float8_e4m3fn", "float8_e8m0fnu")
BACKENDS = {
    "flash": ("flash_attn.FlashAttentionBackend", HEADS, (1, 2), True),
    "triton": ("triton_attn.TritonAttentionBackend", HEADS, (0, 2), True),
    "flex": ("flex_attention.FlexAttentionBackend", HEADS, (1, 2), True),
    "latent": ("mla.triton_mla.TritonMLABackend", 1, (0, 1), True),
    "latent, flash": ("mla.flashmla.FlashMLABackend", 1, (0, 1), True),
    "cpu": ("cpu_attn.CPUAttentionBackend", HEADS, (1, 3), False),
    "rocm": ("rocm_attn.RocmAttentionBackend", HEADS, (1, 2), False),
    "rocm, shuffled": ("rocm_aiter_fa.AiterFlashAttentionBackend", HEADS, (1, 2), False),
    "indexer": ("mla.indexer.DeepseekV32IndexerBackend", 1, (0, 1), False),
}
"""Each with its heads, the axes of its blocks and slots, and whether its kernels keep slots apart."""


def backend_of(name: str) -> Any:
    """The class of a backend."""
    import importlib

    module, _, backend = BACKENDS[name][0].rpartition(".")
    return getattr(importlib.import_module(f"vllm.v1.attention.backends.{module}"), backend)


def spec_of(heads: int, block_size: int = 16, compress_ratio: int = 1) -> Any:
    """A group's layers, of ``block_size`` tokens a block."""
    import torch
    from vllm.v1.kv_cache_interface import FullAttentionSpec, MLAAttentionSpec

    shape: dict[str, Any] = {"num_kv_heads": heads, "head_size": HEAD_SIZE, "dtype": torch.float32}
    if compress_ratio == 1:
        return FullAttentionSpec(block_size=block_size, **shape)
    return MLAAttentionSpec(block_size=block_size, compress_ratio=compress_ratio, **shape)


def layouts() -> Iterator[tuple[str, tuple[int, ...], Layout]]:
    """The shapes of real backends, with rows that are blocks and rows that are a part of one."""
    for name, (_, heads, axes, is_slotted) in BACKENDS.items():
        for rows_per_block, ratio in ((1, 1), (3, 1), (1, 4)):
            shape = backend_of(name).get_kv_cache_shape(BLOCKS * rows_per_block, 16, heads, HEAD_SIZE)
            yield name, tuple(shape), Layout(*axes, rows_per_block, 16, ratio, is_slotted)


@pytest.mark.parametrize("name", BACKENDS)
def test_axes(name: str) -> None:
    """They are found by unique sizes; slots are distinguished where the kernels are known to do so."""
    _, heads, axes, is_slotted = BACKENDS[name]
    assert (axes, is_slotted) == (
        axes_of(backend_of(name), spec_of(heads), "auto"),
        keeps_slots_apart(backend_of(name)),
    )


@pytest.mark.few(6)
@pytest.mark.parametrize("how", ["by index", "by views"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("padding", [0, 64])
def test_exactly_the_slots_before_the_boundary(how: str, dtype: str, padding: int) -> None:
    """In every layout, for one copy and for several."""
    for seed, (name, shape, layout) in enumerate(layouts()):
        for count in (1, 5):
            copies = generate_copies(seed, layout, count, BLOCKS)
            tensor, raw = shaped(shape, dtype, seed, padding)
            expected, below = shaped(shape, dtype, seed, padding)
            slot_by_slot(expected, layout, copies)
            if how == "by index":
                copy_in(tensor, index_of(layout, copies, tensor.device))
            else:
                copy_views([(tensor, layout)], copies)
            assert below.equal(raw), (name, layout, copies)


def test_the_comparison_sees_a_slot() -> None:
    """A copy of one slot more, and one of one slot less, differ."""
    _, shape, layout = next(layouts())
    for tokens in (6, 8):
        tensor, raw = shaped(shape, "float32", 0)
        expected, below = shaped(shape, "float32", 0)
        slot_by_slot(expected, layout, [BlockCopy(0, 1, 2, 7)])
        copy_in(tensor, index_of(layout, [BlockCopy(0, 1, 2, tokens)], tensor.device))
        assert not below.equal(raw)


@pytest.mark.parametrize("tokens", [0, 3, 68])
def test_no_whole_slots(tokens: int) -> None:
    """A boundary inside a slot, before the first one or after the last one is not a boundary."""
    layout = Layout(0, 1, 1, 16, 4, True)
    assert 16 == layout.slots_of(64)
    with pytest.raises(LayoutError, match=f"{tokens} tokens are no whole slots"):
        layout.slots_of(tokens)


def test_whole_blocks_need_no_whole_slots() -> None:
    """Where slots cannot be distinguished, no boundary is looked for in them."""
    import torch

    layout = evolve(Layout(0, 1, 2, 16, 4, True), is_slotted=False)
    index = index_of(layout, [BlockCopy(0, 3, 5, 7)], torch.device("cpu"))
    assert ([6, 7], [10, 11]) == (index.source[0].tolist(), index.destination[0].tolist())
