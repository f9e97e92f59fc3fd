"""EAGLE: the block after a hit must be cached in every group."""

import torch

from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    SlidingWindowSpec,
)
from vllm.v1.request import Request

BLOCK_SIZE = 16


def make_request(request_id, prompt_token_ids):
    return Request(
        request_id=request_id,
        prompt_token_ids=prompt_token_ids,
        sampling_params=SamplingParams(max_tokens=1),
        pooling_params=None,
        block_hasher=get_request_block_hasher(BLOCK_SIZE, sha256),
    )


def test_eagle_block_is_verified_at_the_length_that_is_served():
    init_none_hash(sha256)
    shape = dict(
        block_size=BLOCK_SIZE, num_kv_heads=1, head_size=1, dtype=torch.float32
    )
    groups = [
        KVCacheGroupSpec(["full"], FullAttentionSpec(**shape)),
        KVCacheGroupSpec(["swa64"], SlidingWindowSpec(sliding_window=64, **shape)),
        KVCacheGroupSpec(["swa128"], SlidingWindowSpec(sliding_window=128, **shape)),
    ]
    manager = KVCacheManager(
        KVCacheConfig(num_blocks=100, kv_cache_tensors=[], kv_cache_groups=groups),
        max_model_len=1024,
        scheduler_block_size=BLOCK_SIZE,
        hash_block_size=BLOCK_SIZE,
        use_eagle=True,
    )
    prompt = list(range(7 * BLOCK_SIZE))

    # Seven blocks are cached in each group.
    manager.allocate_slots(make_request("0", prompt), len(prompt))

    # The window of 64 loses its second block, that of 128 its third one.
    _, swa64, swa128 = manager.get_block_ids("0")
    manager.evict_blocks({swa64[1], swa128[2]})

    # The window of 128 has the first block, and the block after it for EAGLE. The
    # window of 64 has the first block, but not the block after it: no hit.
    _, num_hit_tokens, _ = manager.get_computed_blocks(make_request("1", [*prompt, 7]))
    assert num_hit_tokens == 0
