"""A request that passes the admission gate must find blocks for all its tokens."""

import torch

from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.kv_cache_interface import (
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


def test_admission_gate_counts_skipped_hit_blocks_once():
    init_none_hash(sha256)
    spec = SlidingWindowSpec(
        block_size=BLOCK_SIZE,
        num_kv_heads=1,
        head_size=1,
        dtype=torch.float32,
        sliding_window=64,
    )
    groups = [KVCacheGroupSpec(["layer"], spec)]
    manager = KVCacheManager(
        KVCacheConfig(num_blocks=11, kv_cache_tensors=[], kv_cache_groups=groups),
        max_model_len=1024,
        scheduler_block_size=BLOCK_SIZE,
        hash_block_size=BLOCK_SIZE,
        max_in_flight_tokens=80,
    )

    # Five blocks are cached and free; another request holds one of the ten blocks.
    first = make_request("0", list(range(80)))
    manager.allocate_slots(first, 80)
    manager.free(first)
    other = make_request("1", [1000])
    manager.allocate_slots(other, 1)
    assert manager.block_pool.get_num_free_blocks() == 9

    # A request of eleven blocks hits five. The first of them is outside its window,
    # so it needs ten, and nine are free.
    request = make_request("2", list(range(161)))
    hit_blocks, num_hit_tokens, _ = manager.get_computed_blocks(request)
    assert num_hit_tokens == 80

    def is_admitted():
        return manager.allocate_slots(
            request,
            8,
            num_new_computed_tokens=num_hit_tokens,
            new_computed_blocks=hit_blocks,
            full_sequence_must_fit=True,
        )

    if is_admitted():
        # The gate said that it fits: the next step must find its blocks.
        request.num_computed_tokens = 88
        assert manager.allocate_slots(request, 73) is not None

    # With one free block more it is admitted, and gets all its blocks.
    manager.free(other)
    assert is_admitted()
    request.num_computed_tokens = 88
    assert manager.allocate_slots(request, 73) is not None
