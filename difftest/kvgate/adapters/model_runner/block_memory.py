"""Clearing and copying blocks: what published code does to memory, next to what it should.

The oracle is written from the meaning: a block of the manager is ``parts`` neighbours among the kernel blocks, in each
tensor of its group; to clear it is to set all of its bytes to 0 and no other byte; copies that are ordered together all
read before any of them writes.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from attrs import frozen

from kvgate.adapters.ascend_wheel import PACKAGE
from kvgate.adapters.model_runner import stand_ins
from kvreference.slots import kernel_block

if TYPE_CHECKING:
    import torch

BLOCKS, HEADS, HEAD_SIZE = 7, 2, 4
KERNEL_SLOTS = (4, 8)
SHAPES = (
    ("keys and values first", 1, lambda blocks, slots: (2, blocks, slots, HEADS, HEAD_SIZE)),
    ("blocks first", 0, lambda blocks, slots: (blocks, 2, slots, HEADS, HEAD_SIZE)),
)
"""What the axes of a cache are, and which of them is of blocks."""
UTILS = "vllm.v1.worker.utils"


@frozen
class Cache:
    """A tensor of one layer."""

    tensor: torch.Tensor
    block_axis: int
    parts: int
    """Kernel blocks in a block."""

    def block(self, block: int) -> torch.Tensor:
        """A view of a block of the manager."""
        first = kernel_block(block, 0, self.parts)
        return self.tensor.narrow(self.block_axis, first, self.parts)


def new_cache(draw: Random, parts: int, slots: int, shape: int) -> Cache:
    """A cache with something in every byte."""
    import torch

    _, axis, shape_of = SHAPES[shape]
    size = shape_of(BLOCKS * parts, slots)
    generator = torch.Generator().manual_seed(draw.randrange(2**31))
    return Cache(torch.rand(size, generator=generator, dtype=torch.float32) + 1, axis, parts)


def cleared(caches: Sequence[Cache], blocks: Sequence[int]) -> list[torch.Tensor]:
    """What the tensors should be once ``blocks`` are cleared."""
    expected = [Cache(each.tensor.clone(), each.block_axis, each.parts) for each in caches]
    for each in expected:
        for block in blocks:
            each.block(block).zero_()
    return [each.tensor for each in expected]


def clear(caches: Sequence[Cache], slots: int, blocks: Sequence[int]) -> None:
    """Clear blocks with vLLM's own code, its kernel interpreted."""
    layers = [(each.tensor, each) for each in caches]
    _clear(UTILS, "KVBlockZeroer", layers, slots, [slots] * len(caches), blocks)


def clear_ascend(pairs: Sequence[tuple[Cache, Cache]], slots: int, blocks: Sequence[int], sizes: Sequence[Any]) -> None:
    """Clear blocks with vLLM-Ascend's own code, its kernel interpreted: layers have keys and values apart.

    ``sizes`` are the kernel block sizes by group, as the release keeps them.
    """
    cores: Any = importlib.import_module(f"{PACKAGE}.ops.triton.triton_utils")
    cores._NUM_VECTORCORE = stand_ins.VECTOR_CORES
    layers = [(tuple(each.tensor for each in pair), pair[0]) for pair in pairs]
    _clear(f"{PACKAGE}.worker.utils", "AscendKVBlockZeroer", layers, slots, sizes, blocks)


def _clear(
    home: str,
    zeroer_name: str,
    kept: Sequence[tuple[Any, Cache]],
    slots: int,
    sizes: Sequence[Any],
    blocks: Sequence[int],
) -> None:
    """Have a zeroer clear ``blocks`` of layers, each with what it keeps and how that is laid out."""
    import torch
    from vllm.v1.kv_cache_interface import FullAttentionSpec

    stand_ins.interpret(home, "_zero_kv_blocks_kernel")
    groups, layers = [], {}
    for index, (kv_cache, each) in enumerate(kept):
        name = f"layers.{index}.attn"
        spec = FullAttentionSpec(
            block_size=slots * each.parts, num_kv_heads=HEADS, head_size=HEAD_SIZE, dtype=torch.float32
        )
        layers[name] = SimpleNamespace(kv_cache=kv_cache)
        axis = each.block_axis
        backend = SimpleNamespace(get_kv_cache_block_dim=lambda *_, axis=axis, **__: axis)
        groups.append(SimpleNamespace(kv_cache_spec=spec, kv_cache_group_id=index, backend=backend, layer_names=[name]))
    zeroer: Any = getattr(importlib.import_module(home), zeroer_name)(torch.device("cpu"), False)
    zeroer.init_meta(groups, sizes, "auto", set(), layers)
    zeroer.zero_block_ids(list(blocks))


def copied(tensors: Sequence[torch.Tensor], copies: Sequence[tuple[int, int]]) -> list[torch.Tensor]:
    """What keys and values should be after copies from a block to another one."""
    expected = [tensor.clone() for tensor in tensors]
    for before, after in zip(tensors, expected, strict=True):
        for source, target in copies:
            after[:, target] = before[:, source]
    return expected


def copy(tensors: Sequence[torch.Tensor], copies: Sequence[tuple[int, int]]) -> None:
    """Copy blocks with vLLM-Ascend's own code."""
    import torch

    backend: Any = importlib.import_module(f"{PACKAGE}.attention.attention_v1").AscendAttentionBackend
    backend.copy_blocks(list(tensors), torch.tensor(copies, dtype=torch.int64))


def swap(source: torch.Tensor, target: torch.Tensor, copies: Sequence[tuple[int, int]]) -> None:
    """Copy blocks to another memory with vLLM-Ascend's own code."""
    import torch

    backend: Any = importlib.import_module(f"{PACKAGE}.attention.attention_v1").AscendAttentionBackend
    backend.swap_blocks(list(source), list(target), torch.tensor(copies, dtype=torch.int64))


def copy_later(tensors: Sequence[torch.Tensor], copies: Sequence[tuple[int, int]]) -> None:
    """Copy blocks with the code of vLLM-Ascend from 0.30.0rc2 on."""
    ordered = list(map(importlib.import_module("vllm.v1.core.kv_cache_utils").KVCacheBlockCopy._make, copies))
    importlib.import_module(f"{PACKAGE}.worker.utils").copy_kv_cache_blocks_inplace(tensors, BLOCKS, ordered)


def random_copies(draw: Random) -> list[tuple[int, int]]:
    """Copies with targets that differ; what is a source may be a target too."""
    targets = draw.sample(range(BLOCKS), draw.randint(1, BLOCKS - 1))
    return [(draw.randrange(BLOCKS), target) for target in targets]
