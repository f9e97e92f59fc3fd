"""The copies of a step from views into views, all tensors of all layers in one call: on CPUs and on NPUs.

A gather by index would first make a contiguous copy of the whole KV cache on an NPU, because vLLM-Ascend interleaves
the tensors of a layer page by page; and on a CPU it writes everything twice. The slots before a boundary are contiguous
in themselves in most layouts, so that a view is copied as it is.

Written for torch_npu too, and **not run on an NPU**: what is not seen there is torch's own ``_foreach_copy_``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from swa_retention.copying.layout import Layout
from swa_retention.partial.copies import BlockCopy

if TYPE_CHECKING:
    import torch


def copy_views(regions: Sequence[tuple[torch.Tensor, Layout]], copies: Sequence[BlockCopy]) -> None:
    """Copy in place, in all tensors at once. No source may be a destination."""
    import torch

    sources: list[torch.Tensor] = []
    destinations: list[torch.Tensor] = []
    for tensor, layout in regions:
        for copy in copies:
            sources += _views(tensor, layout, copy.source, copy.tokens)
            destinations += _views(tensor, layout, copy.destination, copy.tokens)
    torch._foreach_copy_(destinations, sources, non_blocking=True)


def _views(tensor: torch.Tensor, layout: Layout, block: int, tokens: int) -> Iterator[torch.Tensor]:
    """The slots of a block before its boundary: the rows that are full, and the beginning of the last one."""
    first, rows, rest = block * layout.rows_per_block, layout.rows_per_block, 0
    if layout.is_slotted:
        rows, rest = divmod(layout.slots_of(tokens), layout.slots_per_row)
    if rows:
        yield tensor.narrow(layout.block_axis, first, rows)
    if rest:
        yield tensor.narrow(layout.block_axis, first + rows, 1).narrow(layout.slot_axis, 0, rest)
