"""What of a model runner is copied: of each copy's KV-cache group, all tensors of all layers.

Here a runner is vLLM's or vLLM-Ascend's. A layer's KV cache is one tensor, or several that are ordered block first and
slot second: vLLM-Ascend keeps keys, values and scales apart. Layers that share a KV cache are one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from attrs import frozen

from swa_retention.copying.batch import Index, copy_in, index_of
from swa_retention.copying.layout import Layout, LayoutError, axes_of, keeps_slots_apart, layout_of
from swa_retention.copying.views import copy_views
from swa_retention.partial.copies import BlockCopy

if TYPE_CHECKING:
    import torch

BY_INDEX = ("cuda",)
"""The devices on which the copies of a tensor are one gather and one scatter; on others they are made of views."""

_BLOCKS_FIRST = (0, 1)
"""The axes of vLLM-Ascend, which reshapes each tensor of a layer so that all of them have blocks first."""


@frozen
class Regions:
    """The tensors of a runner by group, found once for each KV cache that the runner is given."""

    config: Any
    """The configuration of the KV cache: a new one, a new cache."""
    by_group: dict[int, tuple[tuple[torch.Tensor, Layout], ...]]


def copy_blocks(runner: Any, copies: Sequence[BlockCopy]) -> None:
    """Do ``copies`` in the KV cache of ``runner``, on the stream that the step is computed on.

    Raises:
        LayoutError: the KV cache is not laid out as expected; nothing was copied in the group's layers.
        ValueError: a copy reads or writes what another one writes. The block manager orders none such: what a step
            writes serves no copy of the same step.
    """
    _check_apart(copies)
    for group in sorted({copy.group for copy in copies}):
        ours = [copy for copy in copies if copy.group == group]
        regions = _regions(runner, group)
        _by_index([region for region in regions if region[0].device.type in BY_INDEX], ours)
        by_views = [region for region in regions if region[0].device.type not in BY_INDEX]
        if by_views:
            copy_views(by_views, ours)


def _by_index(regions: Sequence[tuple[torch.Tensor, Layout]], copies: Sequence[BlockCopy]) -> None:
    indices: dict[tuple[Layout, torch.device], Index] = {}
    for tensor, layout in regions:
        # Most layers of a group are laid out alike: they share an index.
        key = (layout, tensor.device)
        if key not in indices:
            indices[key] = index_of(layout, copies, tensor.device)
        copy_in(tensor, indices[key])


def _check_apart(copies: Sequence[BlockCopy]) -> None:
    written = {copy.destination for copy in copies}
    if len(written) < len(copies) or any(copy.source in written for copy in copies):
        raise ValueError(f"these copies of one step get in each other's way: {list(copies)}")


def _regions(runner: Any, group: int) -> tuple[tuple[torch.Tensor, Layout], ...]:
    """The tensors of a group with their layouts, each once."""
    config = runner.kv_cache_config
    found: Regions | None = getattr(runner, "swa_retention_regions", None)
    if found is None or found.config is not config:
        found = runner.swa_retention_regions = Regions(config, {})
    if group not in found.by_group:
        regions = {_identity(tensor): (tensor, layout) for tensor, layout in _look(runner, group)}
        found.by_group[group] = tuple(regions.values())
    return found.by_group[group]


def _identity(tensor: torch.Tensor) -> tuple[Any, ...]:
    """What two names of the same elements have in common."""
    return tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype


def _look(runner: Any, group: int) -> Iterator[tuple[torch.Tensor, Layout]]:
    config = runner.kv_cache_config
    layers = runner.compilation_config.static_forward_context
    backends = {name: part.backend for parts in runner.attn_groups for part in parts for name in part.layer_names}
    whole = config.kv_cache_groups[group].kv_cache_spec
    parallel = runner.vllm_config.parallel_config
    # With context parallelism, which slots of a block are before a boundary is another question on each rank.
    is_split = parallel.decode_context_parallel_size * parallel.prefill_context_parallel_size > 1
    for name in config.kv_cache_groups[group].layer_names:
        if name in runner.runner_only_attn_layers:
            # It uses the KV cache of another layer, or has none.
            continue
        if name not in backends:
            raise LayoutError(f"layer {name} of KV-cache group {group} has no attention backend")
        backend, spec = backends[name], getattr(whole, "kv_cache_specs", {}).get(name, whole)
        is_slotted = keeps_slots_apart(backend) and not is_split
        bound = layers[name].kv_cache
        if isinstance(bound, (list, tuple)):
            yield from (
                (tensor, layout_of(tensor, _BLOCKS_FIRST, config.num_blocks, spec, is_slotted))
                for tensor in _flat(bound)
            )
        else:
            axes = axes_of(backend, spec, runner.cache_config.cache_dtype)
            yield bound, layout_of(bound, axes, config.num_blocks, spec, is_slotted)


def _flat(bound: Any) -> Iterator[Any]:
    """The tensors in lists of lists."""
    if isinstance(bound, (list, tuple)):
        for each in bound:
            yield from _flat(each)
    else:
        yield bound
