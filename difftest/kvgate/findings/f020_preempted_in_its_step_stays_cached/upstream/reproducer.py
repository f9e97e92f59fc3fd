"""A block of a request that is preempted in the step to fill it stays uncached."""

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
from vllm.v1.request import Request
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


def make_request(request_id, prompt_token_ids, priority):
    return Request(
        request_id=request_id,
        prompt_token_ids=prompt_token_ids,
        sampling_params=SamplingParams(max_tokens=8),
        pooling_params=None,
        block_hasher=get_request_block_hasher(BLOCK_SIZE, sha256),
        priority=priority,
    )


def run_step(scheduler):
    """Every scheduled request computes its tokens; those without any left sample."""
    output = scheduler.schedule()
    req_ids = list(output.num_scheduled_tokens)
    requests = [scheduler.requests[req_id] for req_id in req_ids]
    model_output = ModelRunnerOutput(
        req_ids=req_ids,
        req_id_to_index={req_id: index for index, req_id in enumerate(req_ids)},
        sampled_token_ids=[
            [0] if request.num_computed_tokens >= request.num_tokens else []
            for request in requests
        ],
    )
    scheduler.update_from_output(output, model_output)
    return output.num_scheduled_tokens


def test_preempted_in_its_step_leaves_no_unwritten_block_cached(tmp_path):
    scheduler = make_scheduler(
        tmp_path,
        8,
        policy="priority",
        max_num_batched_tokens=32,
        long_prefill_token_threshold=17,
    )
    prompt = list(range(84))

    # The less urgent request comes first and computes its prompt in chunks. Both have
    # seven blocks together.
    scheduler.add_request(make_request("late", prompt, priority=1))
    assert run_step(scheduler) == {"late": 32}
    scheduler.add_request(make_request("urgent", list(range(1000, 1015)), priority=0))
    assert run_step(scheduler) == {"late": 17, "urgent": 15}
    assert run_step(scheduler) == {"late": 17, "urgent": 1}

    # 66 tokens are computed. The next step would compute up to token 83, and fill the
    # fifth block, which is cached. Then the urgent request needs a block, and the
    # other one is preempted and taken out of the step.
    assert run_step(scheduler) == {"urgent": 1}

    # The fifth block was never filled: four blocks can be hit.
    _, num_hit_tokens, _ = scheduler.kv_cache_manager.get_computed_blocks(
        make_request("other", prompt, priority=1)
    )
    assert num_hit_tokens == 64
