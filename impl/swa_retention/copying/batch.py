"""The copies of a step in one tensor: one gather and one scatter, however many copies there are.

If the slots of a block can be distinguished, only those before the boundary are copied; the rest of the destination
stays as it is, bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from attrs import frozen

from swa_retention.copying.layout import Layout
from swa_retention.partial.copies import BlockCopy

if TYPE_CHECKING:
    import torch


@frozen
class Index:
    """What is read and what is written: an index for each of ``axes``."""

    axes: tuple[int, ...]
    source: tuple[torch.Tensor, ...]
    destination: tuple[torch.Tensor, ...]


def index_of(layout: Layout, copies: Sequence[BlockCopy], device: torch.device) -> Index:
    """The index of ``copies`` in every tensor that is laid out like this, on its device."""
    import torch

    if layout.is_slotted:
        counts = torch.tensor([layout.slots_of(copy.tokens) for copy in copies])
    else:
        counts = torch.full((len(copies),), layout.rows_per_block)
    # Every slot, or every row, of every copy: which copy it is of, and the how manieth it is there.
    which = torch.repeat_interleave(torch.arange(len(copies)), counts)
    within = torch.arange(len(which)) - (counts.cumsum(0) - counts)[which]
    row = within // layout.slots_per_row if layout.is_slotted else within
    source, destination = (
        torch.tensor(blocks)[which] * layout.rows_per_block + row
        for blocks in ([copy.source for copy in copies], [copy.destination for copy in copies])
    )
    if not layout.is_slotted:
        source, destination = _move(torch.stack((source, destination)), device)
        return Index((layout.block_axis,), (source,), (destination,))
    source, destination, slot = _move(torch.stack((source, destination, within % layout.slots_per_row)), device)
    return Index((layout.block_axis, layout.slot_axis), (source, slot), (destination, slot))


def _move(indices: torch.Tensor, device: torch.device) -> torch.Tensor:
    """``indices`` on ``device``, in one transfer for which the host does not wait."""
    if device.type != "cuda":
        return indices.to(device)
    return indices.pin_memory().to(device, non_blocking=True)


def copy_in(tensor: torch.Tensor, index: Index) -> None:
    """Copy in place. All is read before anything is written."""
    import torch

    # Elements of a byte may be of a type that cannot be indexed; they are copied as bytes.
    plain = tensor.view(torch.uint8) if tensor.element_size() == 1 else tensor
    rows = plain.movedim(index.axes, tuple(range(len(index.axes))))
    rows[index.destination] = rows[index.source]
