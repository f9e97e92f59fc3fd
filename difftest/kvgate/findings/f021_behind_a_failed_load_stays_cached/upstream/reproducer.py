"""Blocks that a failed KV load did not fill must not stay in the prefix cache."""

import json
from unittest.mock import Mock

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
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput
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


def connect(scheduler, num_loaded_tokens):
    """A connector that loads so many tokens of each request within the step."""
    scheduler.connector = Mock()
    scheduler.connector.get_num_new_matched_tokens.side_effect = lambda request, _: (
        num_loaded_tokens.get(request.request_id, 0),
        False,
    )
    scheduler.connector.get_external_cache_hit_sources.return_value = {}
    scheduler.connector.request_finished.return_value = (False, None)
    scheduler.connector.take_events.return_value = ()


def run_step(scheduler, invalid_block_ids=()):
    output = scheduler.schedule()
    req_ids = list(output.num_scheduled_tokens)
    model_output = ModelRunnerOutput(
        req_ids=req_ids,
        req_id_to_index={req_id: index for index, req_id in enumerate(req_ids)},
        sampled_token_ids=[[0] for _ in req_ids],
        kv_connector_output=KVConnectorOutput(invalid_block_ids=set(invalid_block_ids)),
    )
    scheduler.update_from_output(output, model_output)


def test_failed_load_is_not_hit_if_its_request_never_recomputes(tmp_path):
    scheduler = make_scheduler(tmp_path, 10, max_num_batched_tokens=64)
    scheduler.recompute_kv_load_failures = True  # kv_load_failure_policy="recompute"
    prompt = list(range(48))

    # The connector loads two blocks within the step, which computes a third one. All
    # are cached when the step is scheduled. The second block fails to load.
    connect(scheduler, {"0": 32})
    request = make_request("0", prompt)
    scheduler.add_request(request)
    run_step(scheduler, invalid_block_ids=[2])
    assert request.num_computed_tokens == 16

    # The client aborts the request, so it computes nothing again.
    scheduler.finish_requests("0", RequestStatus.FINISHED_ABORTED)

    # Only the first block holds the KV of its tokens.
    _, num_hit_tokens, _ = scheduler.kv_cache_manager.get_computed_blocks(
        make_request("1", [*prompt, 7])
    )
    assert num_hit_tokens == 16
