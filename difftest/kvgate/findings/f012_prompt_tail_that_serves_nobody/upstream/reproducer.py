"""A block must not be cached by a hash that no lookup asks for."""

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


def test_prompt_tail_is_not_cached_without_partial_hits():
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

    # The second block of full attention is half full.
    manager.allocate_slots(make_request("0", list(range(48))), 48)
    (first, second), _ = manager.get_blocks("0").blocks
    assert first.block_hash is not None

    # Full attention is looked up by the hashes of 32 and 64 tokens, and not of 48.
    assert second.block_hash is None
