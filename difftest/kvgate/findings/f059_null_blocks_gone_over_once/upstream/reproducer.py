"""A decode step must not read more of a Mamba block table in a longer context."""

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


class CountingList(list):
    """A list that counts how many of its entries are read."""

    num_reads = 0

    def __getitem__(self, index):
        self.num_reads += 1
        return super().__getitem__(index)


def num_reads_after_hit(num_hit_blocks):
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
        KVCacheConfig(num_blocks=1000, kv_cache_tensors=[], kv_cache_groups=groups),
        max_model_len=4096,
        scheduler_block_size=BLOCK_SIZE,
        hash_block_size=BLOCK_SIZE,
    )
    prompt = list(range(num_hit_blocks * BLOCK_SIZE + 1))

    # One request caches the state before the last token of the prompt.
    first = make_request("0", prompt)
    manager.allocate_slots(first, len(prompt) - 1)
    manager.new_step_starts()

    # Another one hits it, and computes the last token.
    request = make_request("1", prompt)
    hit_blocks, num_hit_tokens, _ = manager.get_computed_blocks(request)
    assert num_hit_tokens == len(prompt) - 1
    manager.allocate_slots(request, 1, num_hit_tokens, hit_blocks)

    # Its next step decodes one token.
    request.num_computed_tokens = len(prompt)
    request.append_output_token_ids(0)
    tables = manager.coordinator.single_type_managers[1].req_to_blocks
    tables["1"] = CountingList(tables["1"])
    manager.allocate_slots(request, 1)
    return tables["1"].num_reads


def test_decode_step_after_a_hit_does_not_walk_its_null_blocks():
    assert num_reads_after_hit(100) == num_reads_after_hit(10)
