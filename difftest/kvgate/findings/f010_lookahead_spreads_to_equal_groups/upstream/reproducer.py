"""EAGLE: only the group with the draft layer needs a cached block after the hit."""

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


def test_only_the_flagged_group_needs_the_block_after_a_hit():
    init_none_hash(sha256)
    shape = dict(
        block_size=BLOCK_SIZE, num_kv_heads=1, head_size=1, dtype=torch.float32
    )
    window = SlidingWindowSpec(sliding_window=32, **shape)
    groups = [
        KVCacheGroupSpec(["full"], FullAttentionSpec(**shape)),
        KVCacheGroupSpec(["swa"], window),
        KVCacheGroupSpec(["swa_and_draft"], window, is_eagle_group=True),
    ]
    manager = KVCacheManager(
        KVCacheConfig(num_blocks=100, kv_cache_tensors=[], kv_cache_groups=groups),
        max_model_len=1024,
        scheduler_block_size=BLOCK_SIZE,
        hash_block_size=BLOCK_SIZE,
        use_eagle=True,
    )
    prompt = list(range(2 * BLOCK_SIZE))

    # Two blocks are cached in each group. The group without the draft layer loses the
    # second one, as if the block had been reused after the window moved past it.
    manager.allocate_slots(make_request("0", prompt), len(prompt))
    _, swa, _ = manager.get_block_ids("0")
    manager.evict_blocks({swa[1]})

    # The first block is cached in each group, and the block after it in the group with
    # the draft layer.
    _, num_hit_tokens, _ = manager.get_computed_blocks(make_request("1", [*prompt, 7]))
    assert num_hit_tokens == 16
