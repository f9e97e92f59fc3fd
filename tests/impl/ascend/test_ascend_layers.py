"""vLLM-Ascend's layers of DeepSeek-V4 with a block size that was asked for.

Goal: every layer's spec has the blocks and pages of that size, the groups and tensors that vLLM-Ascend makes of them
fit together, and ``--block-size`` is what it was said to be. Method: the published modules of the layers: what is
computed from the specs is run, what an NPU would do with them is not.
"""

from __future__ import annotations

from typing import Any

import pytest

from .process import output_of

pytestmark = pytest.mark.ci

PROGRAM = """
enter(folder)
install(Configuration(compressed_block_size_slots=32))
import_managers(folder)
stand_ins.install()
from types import SimpleNamespace as Stand
import torch
utils, compressor, layer, groups = map(importlib.import_module, (
    "vllm_ascend.utils", "vllm_ascend.patch.worker.patch_deepseek_compressor",
    "vllm_ascend.models.layer.attention.layer", "vllm_ascend.patch.platform.patch_kv_cache_utils"))
from vllm.v1.core import kv_cache_utils
from swa_retention.register import MARK

def config(asked=None):
    cache = Stand(block_size=asked or 16, user_specified_block_size=asked is not None, cache_dtype="auto",
                  enable_prefix_caching=True, num_gpu_blocks_override=None)
    model = Stand(dtype=torch.bfloat16, hf_config=Stand(model_type="deepseek_v4"), is_hybrid=False, max_model_len=65536)
    return Stand(cache_config=cache, model_config=model, scheduler_config=Stand(max_num_batched_tokens=8192,
                 enable_chunked_prefill=True), parallel_config=Stand(decode_context_parallel_size=1,
                 prefill_context_parallel_size=1))

def of(kind, **values):
    made = Stand(**values)
    return lambda given: kind.get_kv_cache_spec(made, given)

cache = config().cache_config
main = dict(head_size=512, kv_cache_dtype="auto")
LAYERS = {
    "c4.attn": of(layer.DSAAttention, compress_ratio=4, **main),
    "c4.indexer.attn": of(compressor.AscendDeepseekV4IndexerCache, head_dim=128, dtype=torch.int8, compress_ratio=4,
                          cache_config=cache),
    "c128.attn": of(layer.DSAAttention, compress_ratio=128, **main),
    "window.attn": of(compressor.AscendDeepseekV4SWACache, block_size=128, head_dim=512, dtype=torch.bfloat16,
                      window_size=128, cache_config=cache),
    "c4.attn.state": of(compressor.AscendCompressorStateCache, block_size=8, state_dim=2048, dtype=torch.float32,
                        sliding_window=8, compress_ratio=4),
    "c4.indexer.attn.state": of(compressor.AscendCompressorStateCache, block_size=8, state_dim=512, dtype=torch.float32,
                                sliding_window=8, compress_ratio=4),
    "c128.attn.state": of(compressor.AscendCompressorStateCache, block_size=32, state_dim=1024, dtype=torch.float32,
                          sliding_window=128, compress_ratio=128),
}

def refreshed(asked):
    given = config(asked)
    try:
        utils.refresh_block_size(given)
    except ValueError as error:
        return str(error)
    return given.cache_config.block_size

def planned():
    specs = {name: spec(config()) for name, spec in LAYERS.items()}
    results = {name: [spec.block_size, spec.page_size_bytes] for name, spec in specs.items()}
    made = groups._get_kv_cache_groups_uniform_groups(groups.group_and_unify_kv_cache_specs(specs))
    blocks, tensors = kv_cache_utils._get_kv_cache_config_deepseek_v4(config(), made, 10**8)
    return dict(specs=results, groups=[group.layer_names for group in made], blocks=blocks,
                tensors=[[tensor.size, tensor.shared_by] for tensor in tensors])

found = {}
for slots in (None, 128, 64, 32):
    activate(Configuration(compressed_block_size_slots=slots))
    utils.get_ascend_config = lambda: Stand(xlite_graph_config=Stand(enabled=False))
    found[slots] = dict(planned=planned(), refreshed=[refreshed(asked) for asked in (None, 128, 64, 32)])
dense = of(layer.DSAAttention, compress_ratio=1, **main)(config())
bound = kv_cache_utils._get_kv_cache_config_deepseek_v4 is groups._get_kv_cache_config_deepseek_v4
tell(found={str(slots): value for slots, value in found.items()}, dense=dense, bound=bound)
"""


@pytest.fixture(scope="module")
def results() -> Any:
    """By the block size that the variable asks for: specs, groups, tensors, and what ``--block-size`` becomes."""
    return output_of(PROGRAM)


def of_size(slots: int) -> dict[str, list[int]]:
    """Per layer: slots per block, and bytes per page."""
    share = 128 // slots
    return {
        "c4.attn": [slots, 131072 // share],
        "c4.indexer.attn": [slots, 16640 // share],
        "c128.attn": [slots, 131072 // share],
        "window.attn": [slots, 131072 // share],
        "c4.attn.state": [8 // share, 131072 // share],
        "c4.indexer.attn.state": [8 // share, 16640 // share],
        "c128.attn.state": [32 // share, 131072 // share],
    }


@pytest.mark.parametrize("slots", [128, 64, 32])
def test_every_layer_is_scaled(results: Any, slots: int) -> None:
    """Blocks and pages; 128 is what vLLM-Ascend has unasked."""
    assert of_size(slots) == results["found"][str(slots)]["planned"]["specs"]


def test_unset_it_is_vllm_ascends_own(results: Any) -> None:
    """Specs and groups as with 128."""
    unset, asked = results["found"]["None"]["planned"], results["found"]["128"]["planned"]
    assert of_size(128) == unset["specs"]
    assert unset["groups"] == asked["groups"]
    assert [128, 128, 128, 128] == results["found"]["None"]["refreshed"]


@pytest.mark.parametrize("slots", [128, 64, 32])
def test_the_groups_and_tensors_fit_together(results: Any, slots: int) -> None:
    """The same groups at each size; every layer has one tensor, of its page size."""
    planned = results["found"][str(slots)]["planned"]
    assert results["found"]["128"]["planned"]["groups"] == planned["groups"]
    home = {layer: size for size, layers in planned["tensors"] for layer in layers}
    assert {layer: page * planned["blocks"] for layer, (_block, page) in planned["specs"].items()} == home
    assert all(layers for _size, layers in planned["tensors"])
    assert results["bound"]


def test_smaller_blocks_are_more(results: Any) -> None:
    """In the same memory, twice and four times as many."""
    blocks = [results["found"][slots]["planned"]["blocks"] for slots in ("128", "64", "32")]
    assert [blocks[0]] * 2 == [blocks[1] // 2, blocks[2] // 4]


def test_block_size_is_what_was_asked_for(results: Any) -> None:
    """Where vLLM-Ascend sets 128; and a contradiction is an error that names both."""
    refused = "VLLM_ASCEND_DSV4_COMPRESSED_KV_BLOCK_SIZE='64' is not possible: --block-size={} was given too"
    seen = results["found"]["64"]["refreshed"]
    assert (64, 64) == (seen[0], seen[2])
    assert seen[1].startswith(refused.format(128))
    assert seen[3].startswith(refused.format(32))


def test_a_layer_without_compression_has_no_cache_here(results: Any) -> None:
    """Its window is a layer of its own."""
    assert None is results["dense"]
