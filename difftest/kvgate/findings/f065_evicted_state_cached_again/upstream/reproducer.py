"""An evicted block must not be cached again by a step that does not write it."""

import torch

from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    MambaSpec,
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


def test_evicted_mamba_state_is_not_cached_again():
    init_none_hash(sha256)
    full = FullAttentionSpec(
        block_size=BLOCK_SIZE, num_kv_heads=1, head_size=1, dtype=torch.float32
    )
    mamba = MambaSpec(
        block_size=BLOCK_SIZE,
        shapes=((1, 1),),
        dtypes=(torch.float32,),
        mamba_cache_mode="align",
    )
    groups = [KVCacheGroupSpec(["full"], full), KVCacheGroupSpec(["mamba"], mamba)]
    manager = KVCacheManager(
        KVCacheConfig(num_blocks=10, kv_cache_tensors=[], kv_cache_groups=groups),
        max_model_len=1024,
        scheduler_block_size=BLOCK_SIZE,
        hash_block_size=BLOCK_SIZE,
    )
    request = make_request("0", list(range(17)))

    # The first step computes one block. The state after it is cached.
    manager.allocate_slots(request, 16)
    request.num_computed_tokens = 16
    _, (state,) = manager.get_blocks("0").blocks
    assert state.block_hash is not None

    # Its content is found to be invalid.
    manager.evict_blocks({state.block_id})
    assert state.block_hash is None

    # The next step computes the last token, into another block.
    manager.allocate_slots(request, 1)
    assert state.block_hash is None
