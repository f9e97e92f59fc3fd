"""A request that the KV cache can never hold must not block the others."""

import json

import torch

from vllm.config import (
    CacheConfig,
    DeviceConfig,
    ModelConfig,
    SchedulerConfig,
    VllmConfig,
)
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
)
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager

BLOCK_SIZE = 16
# Of a model that is never loaded.
HF_CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "vocab_size": 512,
    "max_position_embeddings": 1024,
}


def make_scheduler(model_path, num_blocks, **kwargs):
    init_none_hash(sha256)
    (model_path / "config.json").write_text(json.dumps(HF_CONFIG))
    cache_config = CacheConfig(block_size=BLOCK_SIZE, enable_prefix_caching=True)
    cache_config.num_gpu_blocks = num_blocks
    vllm_config = VllmConfig(
        model_config=ModelConfig(
            model=str(model_path), skip_tokenizer_init=True, dtype="float32"
        ),
        device_config=DeviceConfig(device="cpu"),
        cache_config=cache_config,
        scheduler_config=SchedulerConfig(
            max_num_seqs=4,
            max_model_len=1024,
            is_encoder_decoder=False,
            async_scheduling=False,
            **kwargs,
        ),
    )
    spec = FullAttentionSpec(
        block_size=BLOCK_SIZE, num_kv_heads=1, head_size=1, dtype=torch.float32
    )
    return Scheduler(
        vllm_config=vllm_config,
        kv_cache_config=KVCacheConfig(
            num_blocks=num_blocks,
            kv_cache_tensors=[],
            kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)],
        ),
        structured_output_manager=StructuredOutputManager(vllm_config),
        block_size=BLOCK_SIZE,
        hash_block_size=BLOCK_SIZE,
    )


def make_request(request_id, prompt_token_ids):
    return Request(
        request_id=request_id,
        prompt_token_ids=prompt_token_ids,
        sampling_params=SamplingParams(max_tokens=8),
        pooling_params=None,
        block_hasher=get_request_block_hasher(BLOCK_SIZE, sha256),
    )


def run_step(scheduler):
    output = scheduler.schedule()
    req_ids = list(output.num_scheduled_tokens)
    model_output = ModelRunnerOutput(
        req_ids=req_ids,
        req_id_to_index={req_id: index for index, req_id in enumerate(req_ids)},
        sampled_token_ids=[[0] for _ in req_ids],
    )
    scheduler.update_from_output(output, model_output)


def test_a_request_that_can_never_fit_ends_with_an_error(tmp_path):
    # One block besides the null block: 16 tokens.
    scheduler = make_scheduler(tmp_path, 2, max_num_batched_tokens=64)
    too_long = make_request("too long", list(range(17)))
    short = make_request("short", [0])
    scheduler.add_request(too_long)
    scheduler.add_request(short)

    # The first request needs two blocks. No request runs that it could wait for, and
    # the second one fits.
    for _ in range(10):
        run_step(scheduler)
    assert short.num_output_tokens > 0
    assert too_long.status == RequestStatus.FINISHED_ERROR
