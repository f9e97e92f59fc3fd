"""EAGLE, block sizes 32 and 16: the last block is dropped before the hit is aligned."""

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


def test_eagle_drop_keeps_an_aligned_hit_that_is_shorter_than_the_window():
    init_none_hash(sha256)
    shape = dict(num_kv_heads=1, head_size=1, dtype=torch.float32)
    full = FullAttentionSpec(block_size=2 * BLOCK_SIZE, **shape)
    swa = SlidingWindowSpec(block_size=BLOCK_SIZE, sliding_window=64, **shape)
    groups = [KVCacheGroupSpec(["full"], full), KVCacheGroupSpec(["swa"], swa)]
    manager = KVCacheManager(
        KVCacheConfig(num_blocks=100, kv_cache_tensors=[], kv_cache_groups=groups),
        max_model_len=1024,
        scheduler_block_size=2 * BLOCK_SIZE,
        hash_block_size=BLOCK_SIZE,
        use_eagle=True,
    )
    prompt = list(range(64))

    # All 64 tokens are cached: two blocks of full attention, four of the window.
    manager.allocate_slots(make_request("0", prompt), len(prompt))

    # 32 tokens can be hit: each group has them, and one block more for EAGLE.
    _, num_hit_tokens, _ = manager.get_computed_blocks(make_request("1", [*prompt, 7]))
    assert num_hit_tokens == 32
