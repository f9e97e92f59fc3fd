"""A block must not be cached for a hit of no tokens."""

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


def test_no_eagle_block_is_retained_for_a_replay_of_nothing():
    init_none_hash(sha256)
    shape = dict(
        block_size=BLOCK_SIZE, num_kv_heads=1, head_size=1, dtype=torch.float32
    )
    swa = SlidingWindowSpec(sliding_window=128, **shape)
    groups = [
        KVCacheGroupSpec(["full"], FullAttentionSpec(**shape)),
        KVCacheGroupSpec(["swa"], swa),
    ]
    manager = KVCacheManager(
        KVCacheConfig(
            num_blocks=100,
            kv_cache_tensors=[],
            kv_cache_groups=groups,
            prefix_cache_retention_interval=0,
        ),
        max_model_len=1024,
        scheduler_block_size=BLOCK_SIZE,
        hash_block_size=BLOCK_SIZE,
        use_eagle=True,
    )

    # A prompt of one block: it would be dropped for EAGLE, so a replay hits nothing.
    manager.allocate_slots(make_request("0", list(range(16))), 16)
    _, (block,) = manager.get_blocks("0").blocks
    assert block.block_hash is None
