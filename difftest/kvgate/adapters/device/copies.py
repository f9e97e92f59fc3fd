"""Every layout and dtype that the plug-in copies, on one device, each next to the reference copy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from attrs import evolve, frozen

from kvgate.adapters.device.reference_copy import generate_copies, shaped, slot_by_slot
from swa_retention.copying.batch import copy_in, index_of
from swa_retention.copying.layout import Layout
from swa_retention.copying.runner import BY_INDEX
from swa_retention.copying.views import copy_views
from swa_retention.partial.copies import BlockCopy

if TYPE_CHECKING:
    import torch

BLOCKS, SLOTS, HEADS, HEAD_SIZE = 12, 16, 2, 32
DTYPES = ("float32", "bfloat16", "float16", "int8", "uint8", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu")
LAYOUTS: Mapping[str, tuple[tuple[int, ...], Layout]] = MappingProxyType(
    {
        "keys and values, blocks, slots": ((2, BLOCKS, SLOTS, HEADS, HEAD_SIZE), Layout(1, 2, 1, SLOTS, 1, True)),
        "blocks, keys and values, slots": ((BLOCKS, 2, SLOTS, HEADS, HEAD_SIZE), Layout(0, 2, 1, SLOTS, 1, True)),
        "blocks, slots, heads": ((BLOCKS, SLOTS, HEADS, HEAD_SIZE), Layout(0, 1, 1, SLOTS, 1, True)),
        "blocks, slots, latent": ((BLOCKS, SLOTS, HEAD_SIZE), Layout(0, 1, 1, SLOTS, 1, True)),
        "heads before slots, whole blocks": ((2, BLOCKS, HEADS, SLOTS, HEAD_SIZE), Layout(1, 3, 1, SLOTS, 1, False)),
    }
)
"""Shapes of KV caches, by what their axes are; blocks first is vLLM-Ascend's."""
ROWS_AND_RATIOS = ((1, 1), (3, 1), (1, 4), (1, 128))
"""Rows of the tensor a block, and tokens a slot."""
PADDINGS = (0, 64)
"""Elements between the blocks of a tensor."""


@frozen
class Copied:
    """One layout, and what was wrong with its copies, if anything was."""

    layout: str
    complaint: str | None


def shapes() -> Iterator[tuple[str, tuple[int, ...], Layout]]:
    """Every layout, with rows that are blocks and rows that are a part of one, in slots of several ratios."""
    for name, (shape, layout) in LAYOUTS.items():
        for rows, ratio in ROWS_AND_RATIOS:
            longer = tuple(size * rows if axis == layout.block_axis else size for axis, size in enumerate(shape))
            title = f"{name}, {rows} rows a block, {ratio} tokens a slot"
            yield title, longer, evolve(layout, rows_per_block=rows, tokens_per_slot=ratio)


def tried(device: str, dtype: str) -> Iterator[Copied]:
    """Do copies in every layout, as the plug-in does them on ``device``, and compare every byte of the memory."""
    for seed, (name, shape, layout) in enumerate(shapes()):
        for padding in PADDINGS:
            for count in (1, 5):
                complaint = _complaint(device, dtype, shape, layout, padding, count, seed)
                yield Copied(f"{name}, padded by {padding}, {count} copies", complaint)


def _complaint(
    device: str, dtype: str, shape: tuple[int, ...], layout: Layout, padding: int, count: int, seed: int
) -> str | None:
    copies = generate_copies(seed, layout, count, BLOCKS)
    expected, right = shaped(shape, dtype, seed, padding)
    slot_by_slot(expected, layout, copies)
    for way in ways(device):
        tensor, below = shaped(shape, dtype, seed, padding, device)
        _copy(way, tensor, layout, copies)
        wrong = (below.cpu() != right).sum().item()
        if wrong:
            return f"{way}: {wrong} of {right.numel()} bytes are wrong after {copies}"
    return None


def ways(device: str) -> tuple[str, ...]:
    """How the plug-in copies there; on the host both methods run."""
    kind = device.partition(":")[0]
    return ("by views", "by index") if kind == "cpu" else ("by index",) if kind in BY_INDEX else ("by views",)


def _copy(way: str, tensor: torch.Tensor, layout: Layout, copies: Sequence[BlockCopy]) -> None:
    if way == "by index":
        copy_in(tensor, index_of(layout, copies, tensor.device))
    else:
        copy_views([(tensor, layout)], copies)


def missing_dtype(device: str, dtype: str) -> str | None:
    """Why ``device`` has no tensors of ``dtype``; None if it has."""
    import torch

    kind = getattr(torch, dtype, None)
    if kind is None:
        return f"torch {torch.__version__} has no {dtype}"
    try:
        torch.empty(1, dtype=kind, device=device)
    except (RuntimeError, TypeError, NotImplementedError) as error:
        return f"{device} has no {dtype}: {str(error).splitlines()[0]}"
    return None
