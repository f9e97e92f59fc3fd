"""vLLM 0.26.0, on which stored cases of two tiers run: as 0.27.1, but for what its connectors do. Other levels were not
compared."""

from __future__ import annotations

from attrs import evolve

from kvgate.adapters.releases.description import MANAGER, SCHEDULER_OUTPUT, SPECS
from kvgate.adapters.releases.v0_27_1 import RELEASE as LATER
from kvgate.adapters.releases.v0_27_1 import SCHEDULER_RULES as LATER_SCHEDULER

SCHEDULER_RULES = evolve(
    LATER_SCHEDULER,
    signatures={
        **LATER_SCHEDULER.signatures,
        f"{SCHEDULER_OUTPUT}:SchedulerOutput": (
            "scheduled_new_reqs, scheduled_cached_reqs, num_scheduled_tokens, total_num_scheduled_tokens, "
            "scheduled_spec_decode_tokens, scheduled_encoder_inputs, num_common_prefix_blocks, finished_req_ids, "
            "free_encoder_mm_hashes, scheduled_encoder_input_stats, preempted_req_ids, has_structured_output_requests, "
            "pending_structured_output_tokens, num_invalid_spec_tokens, kv_connector_metadata, ec_connector_metadata, "
            "new_block_ids_to_zero, kv_cache_block_copies, num_spec_tokens_to_schedule"
        ),
    },
)

RELEASE = evolve(
    LATER,
    version="0.26.0",
    wheels={
        # Registries were seen to serve either of two uploads under one name.
        "aarch64": "b6af55979471a3c9287a6f79f1be1c5682bba704ac7126ac611781bc6509de51",
        "x86_64": "eb9f01e25cdeef89ba39385bfb776557c05d9bfc77eb95788668e9645f758652",
        "aarch64, earlier": "52a4c3e55c2c80cc8793e52ccc244457ceade25b0ad7caa1c15e5002a95a1b2c",
        "x86_64, earlier": "adb1e4c9b46d0dfdb094121ae5aad670a42412dd813ed4e5db069ed6a15006de",
    },
    signatures={
        **LATER.signatures,
        f"{SPECS}:MLAAttentionSpec": (
            "block_size, num_kv_heads, head_size, dtype, kv_quant_mode, page_size_padded, indexes_kv_by_block_stride, "
            "head_size_v, sliding_window, attention_chunk_size, non_causal, cache_dtype_str, alignment, "
            "compress_ratio, model_version"
        ),
        f"{MANAGER}.record_prefix_cache_stats": None,
    },
    findings=LATER.findings | {"106-aborted-request-is-stored-in-full"},
    scheduler=SCHEDULER_RULES,
)
