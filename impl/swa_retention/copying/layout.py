"""Where a layer's KV cache keeps a block, and where in it a slot.

Each attention backend orders the axes of its tensors as its kernels like it. Which axis counts blocks and which counts
slots is asked of the backend's own shape function, with sizes that nothing else has.

That a tensor *has* an axis of slots does not mean that a slot is one index of it. Some backends pack the slots of a
block together. vLLM's on CPUs keeps keys by element and not by token. The fp8 caches of DeepSeek-V4 keep the scales of
all slots after the data of all slots, both under a shape that does not show it. So slots are distinguished only where
the kernels are known to do so. Everywhere else a whole block is copied, which is equally correct: no request reads the
copy after the boundary before the request has written its own tokens there.
"""

from __future__ import annotations

from typing import Any

from attrs import frozen

from swa_retention.compressed.prefix_block_size import compress_ratio

SLOTTED = frozenset(
    {
        "vllm.v1.attention.backends.flash_attn",
        "vllm.v1.attention.backends.flashinfer",
        "vllm.v1.attention.backends.flex_attention",
        "vllm.v1.attention.backends.triton_attn",
        "vllm.v1.attention.backends.mla.cutlass_mla",
        "vllm.v1.attention.backends.mla.flashattn_mla",
        "vllm.v1.attention.backends.mla.flashmla",
        "vllm.v1.attention.backends.mla.triton_mla",
        "vllm_ascend.attention.dsa_v1",
    }
)
"""The modules of the backends whose kernels write the elements of a slot, and no others, at its index."""

_BLOCKS, _SLOTS = 1_000_003, 1_600_048
"""Sizes that no other axis has; backends want the slots to be a multiple of 16."""


class LayoutError(RuntimeError):
    """A KV cache is not laid out as its backend says, and nothing may be copied in it."""


@frozen
class Layout:
    """Where blocks and slots are in one tensor."""

    block_axis: int
    slot_axis: int
    rows_per_block: int
    """How many indices of the block axis a block has: kernels may work with smaller blocks than the block manager."""
    slots_per_row: int
    tokens_per_slot: int
    """The compress ratio."""
    is_slotted: bool
    """Whether the elements of a slot are at its index; if not, a block is copied whole."""

    def slots_of(self, tokens: int) -> int:
        """How many slots hold the first ``tokens`` tokens of a block.

        Raises:
            LayoutError: they end inside a slot, or after the block.
        """
        slots, rest = divmod(tokens, self.tokens_per_slot)
        if rest or not 0 < slots <= self.rows_per_block * self.slots_per_row:
            raise LayoutError(f"{tokens} tokens are no whole slots of one block of {self}")
        return slots


def axes_of(backend: Any, spec: Any, cache_dtype: str) -> tuple[int, int]:
    """The axes of the blocks and of the slots in the tensors of ``backend``.

    Raises:
        LayoutError: its shape has not one of each.
    """
    shape = list(
        backend.get_kv_cache_shape(_BLOCKS, _SLOTS, spec.num_kv_heads, spec.head_size, cache_dtype_str=cache_dtype)
    )
    if (shape.count(_BLOCKS), shape.count(_SLOTS)) != (1, 1):
        raise LayoutError(f"{backend.__qualname__} has KV caches of the shape {shape}, without an axis for each slot")
    return shape.index(_BLOCKS), shape.index(_SLOTS)


def layout_of(tensor: Any, axes: tuple[int, int], blocks: int, spec: Any, is_slotted: bool) -> Layout:
    """The layout of ``tensor``, which holds ``blocks`` blocks of ``spec``.

    Raises:
        LayoutError: it does not hold them.
    """
    block_axis, slot_axis = axes
    rows, slots_per_row = tensor.shape[block_axis], tensor.shape[slot_axis]
    ratio = compress_ratio(spec)
    slots = rows // blocks * slots_per_row
    # vLLM's specs count a block's tokens, those of vLLM-Ascend its slots.
    if rows % blocks or spec.block_size not in (slots, slots * ratio):
        raise LayoutError(
            f"a KV cache of the shape {tuple(tensor.shape)} does not hold {blocks} blocks of {spec.block_size} in its "
            f"axes {axes}"
        )
    # An element of an unusual type may be a part of a number, or the scale of others.
    is_slotted = is_slotted and tensor.dtype.is_floating_point and tensor.element_size() > 1
    return Layout(block_axis, slot_axis, rows // blocks, slots_per_row, ratio, is_slotted)


def keeps_slots_apart(backend: Any) -> bool:
    """Whether the kernels of ``backend`` are known to keep the slots of a block apart.

    It is known by its module: classes of other layouts carry the same names.
    """
    return backend.__module__ in SLOTTED
