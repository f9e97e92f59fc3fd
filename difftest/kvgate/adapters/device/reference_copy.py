"""What a block copy means: slot after slot, on the host; and the memory to try it on."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from swa_retention.copying.layout import Layout
from swa_retention.partial.copies import BlockCopy

if TYPE_CHECKING:
    import torch


def memory(size_bytes: int, seed: int) -> torch.Tensor:
    """Random bytes, which contain all kinds of NaN."""
    import torch

    return torch.randint(256, (size_bytes,), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def shaped(
    shape: Sequence[int], dtype: str, seed: int, padding: int = 0, device: str = "cpu"
) -> tuple[torch.Tensor, torch.Tensor]:
    """A tensor over random bytes, and these; with ``padding`` elements after each index of its first axis.

    On an NPU a tensor of a layer is such a part of larger pages, in which others of the layer lie between its blocks.
    """
    import torch

    kind: torch.dtype = getattr(torch, dtype)
    strides = list(torch.empty(tuple(shape)).stride())
    strides[0] += padding
    raw = memory(strides[0] * shape[0] * kind.itemsize, seed).to(device)
    return torch.as_strided(raw.view(kind), tuple(shape), tuple(strides)), raw


def slot_by_slot(tensor: torch.Tensor, layout: Layout, copies: Sequence[BlockCopy]) -> None:
    """What a copy means, one slot after the other."""
    import torch

    plain = tensor.view(torch.uint8) if tensor.element_size() == 1 else tensor
    slots_per_block = layout.rows_per_block * layout.slots_per_row
    for copy in copies:
        slots = copy.tokens // layout.tokens_per_slot if layout.is_slotted else slots_per_block
        for slot in range(slots):
            row, inside = divmod(slot, layout.slots_per_row)
            there, here = (
                [block * layout.rows_per_block + row if axis == layout.block_axis else slice(None) for axis in range(5)]
                for block in (copy.destination, copy.source)
            )
            for index in (there, here):
                index[layout.slot_axis] = inside
            plain[tuple(there[: plain.ndim])] = plain[tuple(here[: plain.ndim])]


def generate_copies(seed: int, layout: Layout, count: int, blocks: int) -> list[BlockCopy]:
    """Copies between ``blocks`` blocks of which none is both; two may have one source."""
    random_source = random.Random(seed)
    order = list(range(blocks))
    random_source.shuffle(order)
    slots_max = layout.rows_per_block * layout.slots_per_row
    return [
        BlockCopy(
            0,
            random_source.choice(order[count:]),
            order[index],
            random_source.randint(1, slots_max) * layout.tokens_per_slot,
        )
        for index in range(count)
    ]
