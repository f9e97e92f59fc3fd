"""A KV event for blocks of which some are null must hold the tokens of the others."""

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


def test_event_has_the_tokens_of_the_blocks_it_names():
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
        enable_kv_cache_events=True,
    )

    # One step computes two blocks. The Mamba group keeps only the state at the end:
    # its first block is null, its second one is cached.
    manager.allocate_slots(make_request("0", list(range(32))), 32)
    _, mamba_blocks = manager.get_blocks("0").blocks
    assert [block.is_null for block in mamba_blocks] == [True, False]

    full_event, mamba_event = manager.take_events()

    # Full attention reports two blocks, with the tokens of both.
    first_hash, second_hash = full_event.block_hashes
    assert full_event.token_ids == list(range(32))

    # Mamba reports the second block, with its tokens, as the child of the first.
    assert mamba_event.block_hashes == [second_hash]
    assert mamba_event.token_ids == list(range(16, 32))
    assert mamba_event.parent_block_hash == first_hash
