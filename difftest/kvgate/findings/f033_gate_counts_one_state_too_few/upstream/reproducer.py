"""A request that passes the admission gate must find blocks for all its tokens."""

import pytest
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


@pytest.mark.parametrize("num_free_blocks", [4, 5])
def test_admission_gate_counts_the_state_that_is_copied_from(num_free_blocks):
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
        KVCacheConfig(
            num_blocks=num_free_blocks + 1,  # and the null block
            kv_cache_tensors=[],
            kv_cache_groups=groups,
        ),
        max_model_len=1024,
        scheduler_block_size=BLOCK_SIZE,
        hash_block_size=BLOCK_SIZE,
        max_in_flight_tokens=BLOCK_SIZE,
    )
    request = make_request("0", list(range(33)))

    # 33 tokens in steps of 16 need three blocks of full attention and two Mamba
    # states: the running one, and the one that it is copied from.
    is_admitted = manager.allocate_slots(request, 16, full_sequence_must_fit=True)
    if num_free_blocks == 5:
        assert is_admitted

    if is_admitted:
        # The gate said that it fits: the next steps must find their blocks.
        for num_new_tokens in (16, 1):
            request.num_computed_tokens += 16
            assert manager.allocate_slots(request, num_new_tokens) is not None
