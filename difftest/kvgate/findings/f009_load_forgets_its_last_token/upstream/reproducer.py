"""A KV connector loads a whole prompt: what its last token reads must have a block."""

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
WINDOW = 32


def make_request(request_id, prompt_token_ids):
    return Request(
        request_id=request_id,
        prompt_token_ids=prompt_token_ids,
        sampling_params=SamplingParams(max_tokens=1),
        pooling_params=None,
        block_hasher=get_request_block_hasher(BLOCK_SIZE, sha256),
    )


def test_fully_loaded_prompt_keeps_the_window_of_its_last_token():
    init_none_hash(sha256)
    spec = SlidingWindowSpec(
        block_size=BLOCK_SIZE,
        num_kv_heads=1,
        head_size=1,
        dtype=torch.float32,
        sliding_window=WINDOW,
    )
    groups = [KVCacheGroupSpec(["layer"], spec)]
    manager = KVCacheManager(
        KVCacheConfig(num_blocks=10, kv_cache_tensors=[], kv_cache_groups=groups),
        max_model_len=1024,
        scheduler_block_size=BLOCK_SIZE,
        hash_block_size=BLOCK_SIZE,
    )

    # The connector has all 47 tokens: the scheduler allocates slots for an
    # asynchronous load.
    manager.allocate_slots(
        make_request("0", list(range(47))),
        0,
        num_external_computed_tokens=47,
        delay_cache_blocks=True,
    )

    # After the load, the scheduler sets num_computed_tokens to 46. Token 46 is
    # computed again, and reads from token 15 on, which is in the first block.
    first_read_token = 46 - WINDOW + 1
    (blocks,) = manager.get_blocks("0").blocks
    assert not any(block.is_null for block in blocks[first_read_token // BLOCK_SIZE :])
