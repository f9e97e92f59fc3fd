"""The KV-cache tensors of DeepSeek-V4.

Goal: where every page size is in the first group and every tensor is shared, the layout is vLLM's own to the byte.
Elsewhere, every layer has a tensor of its page size, every tensor has a layer, and memory is not exceeded. Method:
vLLM's own functions and the patched ones on generated layouts of both sorts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from swa_retention.compressed.pages import Shared, block_bytes, layout
from swa_retention.config import Configuration
from swa_retention.patches.attach import activate
from swa_retention.patches.compressed import kv_cache_tensors, max_memory_usage_bytes, pool_bytes_per_block

pytest.importorskip("vllm")

SMALL, LARGE, HUGE = 16640, 131072, 262144
MEMORY_BYTES = 10**9


@pytest.fixture(autouse=True)
def _switched_on() -> Iterator[None]:
    activate(Configuration(compressed_block_size_slots=64))
    yield
    activate(Configuration())


def group(*pages: tuple[str, int]) -> Any:
    """A KV-cache group whose layers have these names and page sizes."""
    from vllm.v1.kv_cache_interface import KVCacheGroupSpec, UniformTypeKVCacheSpecs

    specs: Any = {name: SimpleNamespace(page_size_bytes=page_bytes, block_size=64) for name, page_bytes in pages}
    return KVCacheGroupSpec(list(specs), UniformTypeKVCacheSpecs(block_size=64, kv_cache_specs=specs))


def layers(prefix: str, count: int, page_bytes: int) -> list[tuple[str, int]]:
    """So many layers with pages of one size."""
    return [(f"{prefix}.{index}", page_bytes) for index in range(count)]


REGULAR = {
    "compressed alone": [group(*layers("c4", 3, LARGE), *layers("indexer", 3, SMALL))],
    "with windows": [
        group(*layers("c4", 3, LARGE), *layers("indexer", 3, SMALL)),
        group(*layers("window", 3, LARGE)),
        group(*layers("state", 2, LARGE)),
    ],
    "interleaved": [
        group(
            *(layer for pair in zip(layers("c4", 4, LARGE), layers("indexer", 4, SMALL), strict=True) for layer in pair)
        ),
        group(*layers("state", 2, SMALL), *layers("window", 2, LARGE)),
    ],
    "one page size": [group(*layers("a", 5, LARGE)), group(*layers("b", 4, LARGE)), group(*layers("c", 5, LARGE))],
}
"""Every page size is in the first group, and every tensor is shared."""
IRREGULAR = {
    "a size of the second group": [
        group(*layers("c4", 3, LARGE), *layers("indexer", 3, SMALL)),
        group(*layers("c128", 3, HUGE)),
        group(*layers("window", 3, LARGE)),
    ],
    "more windows than compressed layers": [
        group(*layers("c4", 2, LARGE), *layers("indexer", 2, SMALL)),
        group(*layers("window", 5, LARGE)),
    ],
    "unequal in the first group": [group(*layers("c4", 4, LARGE), *layers("indexer", 1, SMALL))],
}
"""A page size that the first group does not have, or tensors without a layer."""


def config(blocks: int | None = None) -> Any:
    """The attributes that vLLM's functions read."""
    return SimpleNamespace(cache_config=SimpleNamespace(num_gpu_blocks_override=blocks))


def original() -> Any:
    """vLLM's own functions."""
    import vllm.v1.core.kv_cache_utils as utils

    from swa_retention.register import MARK

    names = ("_get_kv_cache_config_deepseek_v4", "_pool_bytes_per_block", "_max_memory_usage_bytes_from_groups")
    return [getattr(getattr(utils, name), MARK, getattr(utils, name)) for name in names]


def planned(groups: Sequence[Any], memory_bytes: int = MEMORY_BYTES, blocks: int | None = None) -> tuple[int, Any]:
    """The patched function's blocks and tensors."""
    count, tensors = kv_cache_tensors(original()[0])(config(blocks), groups, memory_bytes)
    return int(count), tensors


@pytest.mark.parametrize("name", REGULAR)
@pytest.mark.parametrize("blocks", [None, 77])
def test_it_is_vllms_layout_where_that_is_right(name: str, blocks: int | None) -> None:
    """Number of blocks, tensors, their order, and what a block takes."""
    groups = REGULAR[name]
    assert original()[0](config(blocks), groups, MEMORY_BYTES) == planned(groups, blocks=blocks)
    if len(groups) > 1:
        assert original()[1](groups) == pool_bytes_per_block(original()[1])(groups)


@pytest.mark.parametrize("name", [*REGULAR, *IRREGULAR])
def test_every_layer_has_one_tensor_of_its_size(name: str) -> None:
    """Every tensor has a layer, no two layers of a group share one, and memory is not exceeded."""
    groups = {**REGULAR, **IRREGULAR}[name]
    blocks, tensors = planned(groups)
    home = {layer: tensor for tensor in tensors for layer in tensor.shared_by}
    assert sum(len(tensor.shared_by) for tensor in tensors) == len(home)
    assert all(tensor.shared_by for tensor in tensors)
    for each in groups:
        specs = each.kv_cache_spec.kv_cache_specs
        assert {layer: spec.page_size_bytes * blocks for layer, spec in specs.items()} == {
            layer: home[layer].size for layer in specs
        }
        assert len(specs) == len({id(home[layer]) for layer in specs})
    assert sum(tensor.size for tensor in tensors) <= MEMORY_BYTES
    assert (blocks + 1) * block_bytes(layout(groups)) > MEMORY_BYTES


def test_vllm_gives_some_layers_no_tensor() -> None:
    """The page size of the second group is not in the first: what the patch is for."""
    groups = IRREGULAR["a size of the second group"]
    _blocks, tensors = original()[0](config(), groups, MEMORY_BYTES)
    assert not {"c128.0", "c128.1", "c128.2"} & {layer for tensor in tensors for layer in tensor.shared_by}


def test_vllm_allocates_memory_without_a_layer() -> None:
    """Rounds in which no layer has small pages: what the patch saves is blocks."""
    groups = IRREGULAR["more windows than compressed layers"]
    blocks, tensors = original()[0](config(), groups, MEMORY_BYTES)
    assert 3 == sum(not tensor.shared_by for tensor in tensors)
    assert blocks < planned(groups)[0]


def test_layers_that_live_alone_come_last() -> None:
    """The draft model's, on vLLM-Ascend: each with its own page size."""
    groups = [group(*layers("c4", 2, LARGE), ("mtp.0", SMALL)), group(*layers("window", 2, LARGE), ("mtp.1", LARGE))]
    assert [
        Shared(LARGE, ("c4.0", "window.0")),
        Shared(LARGE, ("c4.1", "window.1")),
        Shared(SMALL, ("mtp.0",)),
        Shared(LARGE, ("mtp.1",)),
    ] == layout(groups, lambda layer: "mtp" in layer)


def test_what_a_request_needs_is_counted_in_blocks_of_all_tensors() -> None:
    """Pages of all groups times what a block takes."""
    groups = [
        SimpleNamespace(layer_names=each.layer_names, kv_cache_spec=_Pages(each.kv_cache_spec.kv_cache_specs))
        for each in IRREGULAR["a size of the second group"]
    ]
    needed = max_memory_usage_bytes(original()[2])(config(), groups)
    assert 3 * 7 * (3 * LARGE + 3 * SMALL + 3 * HUGE) == needed


class _Pages:
    """A spec of many layers whose requests need seven pages."""

    def __init__(self, specs: Any) -> None:
        self.kv_cache_specs = specs

    def max_memory_usage_pages(self, _config: Any) -> int:
        return 7


def test_switched_off_it_is_vllms_function() -> None:
    """Wherever the result would differ."""
    activate(Configuration())
    for groups in IRREGULAR.values():
        assert original()[0](config(), groups, MEMORY_BYTES) == planned(groups)
        assert original()[1](groups) == pool_bytes_per_block(original()[1])(groups)
