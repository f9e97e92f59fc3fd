"""vLLM 0.27.1: look-ups are counted where requests are admitted, and what steps in flight read stays held."""

from __future__ import annotations

from attrs import evolve

from kvgate.adapters.releases.description import (
    COORDINATOR,
    MANAGER,
    SCHEDULER,
    SCHEDULER_OUTPUT,
    SPECS,
    UTILS,
    Additions,
)
from kvgate.adapters.releases.v0_23_0 import RELEASE as OLDER
from kvgate.adapters.releases.v0_23_0 import SCHEDULER_RULES as OLDER_SCHEDULER

SCHEDULER_RULES = evolve(
    OLDER_SCHEDULER,
    signatures={
        **OLDER_SCHEDULER.signatures,
        f"{SCHEDULER}.schedule": "self, throttle_prefills",
        f"{SCHEDULER_OUTPUT}:SchedulerOutput": (
            "scheduled_new_reqs, scheduled_cached_reqs, num_scheduled_tokens, total_num_scheduled_tokens, "
            "scheduled_spec_decode_tokens, scheduled_encoder_inputs, num_common_prefix_blocks, finished_req_ids, "
            "free_encoder_mm_hashes, scheduled_encoder_input_stats, preempted_req_ids, has_structured_output_requests, "
            "pending_structured_output_tokens, num_invalid_spec_tokens, kv_connector_metadata, ec_connector_metadata, "
            "ec_manager_metadata, new_block_ids_to_zero, kv_cache_block_copies, partial_tail_offloads, "
            "num_spec_tokens_to_schedule"
        ),
        "vllm.v1.engine:EngineCoreOutput": (
            "request_id, new_token_ids, new_logprobs, new_prompt_logprobs_tensors, pooling_output, finish_reason, "
            "stop_reason, events, kv_transfer_params, ec_transfer_params, trace_headers, prefill_stats, "
            "routed_experts, num_nans_in_logits"
        ),
        f"{MANAGER}.pop_blocks_for_free": "self, request",
    },
    counts_admitted=True,
    pads_drafts=True,
    zeroes_loaded=False,
    reports_preempted_later=True,
    frees_late=True,
    drops_answers=True,
    stops_at_junctions=True,
    ends_before_an_answer=True,
    ends_with_computed=True,
)

RELEASE = evolve(
    OLDER,
    version="0.27.1",
    wheels={
        "aarch64": "655dba6610212ccfd31492b95df3cee79c204aaee5c72cfed7683fe3b75d6055",
        "x86_64": "30b94600ca56cb8247658237e5195d48dc48c33f0cab19b3959c28fdc9616042",
    },
    signatures={
        **OLDER.signatures,
        f"{MANAGER}.__init__": (
            "self, kv_cache_config, max_model_len, scheduler_block_size, hash_block_size, max_in_flight_tokens, "
            "enable_caching, use_eagle, log_stats, enable_kv_cache_events, dcp_world_size, pcp_world_size, "
            "metrics_collector, watermark"
        ),
        f"{MANAGER}.allocate_slots": (
            "self, request, num_new_tokens, num_new_computed_tokens, new_computed_blocks, num_lookahead_tokens, "
            "num_external_computed_tokens, delay_cache_blocks, num_encoder_tokens, full_sequence_must_fit, "
            "reserved_blocks, has_scheduled_reqs"
        ),
        f"{MANAGER}.remove_skipped_blocks": "self, request_id, processed_computed_tokens, num_prompt_tokens",
        f"{UTILS}:get_request_block_hasher": "hash_block_size, caching_hash_fn",
        f"{SPECS}:FullAttentionSpec": (
            "block_size, num_kv_heads, head_size, dtype, kv_quant_mode, page_size_padded, indexes_kv_by_block_stride, "
            "head_size_v, sliding_window, attention_chunk_size, non_causal"
        ),
        f"{SPECS}:MLAAttentionSpec": (
            "block_size, num_kv_heads, head_size, dtype, kv_quant_mode, page_size_padded, indexes_kv_by_block_stride, "
            "head_size_v, sliding_window, attention_chunk_size, non_causal, cache_dtype_str, alignment, "
            "compress_ratio, model_version, non_causal_multi_token_decode"
        ),
        f"{SPECS}:SlidingWindowSpec": (
            "block_size, num_kv_heads, head_size, dtype, kv_quant_mode, page_size_padded, indexes_kv_by_block_stride, "
            "sliding_window, head_size_v"
        ),
        f"{SPECS}:SlidingWindowMLASpec": (
            "block_size, num_kv_heads, head_size, dtype, kv_quant_mode, page_size_padded, indexes_kv_by_block_stride, "
            "sliding_window, head_size_v, cache_dtype_str, alignment, compress_ratio, model_version"
        ),
        f"{SPECS}:ChunkedLocalAttentionSpec": (
            "block_size, num_kv_heads, head_size, dtype, kv_quant_mode, page_size_padded, indexes_kv_by_block_stride, "
            "attention_chunk_size"
        ),
        f"{MANAGER}.record_prefix_cache_stats": "self, request, num_hits",
        f"{COORDINATOR}.remove_skipped_blocks": "self, request_id, processed_computed_tokens, num_prompt_tokens",
        f"{UTILS}:KVCacheBlock": (
            "block_id, ref_cnt, _block_hash, _block_hash_num_tokens, prev_free_block, next_free_block, is_null"
        ),
    },
    choices="scratch-of-caches",
    cap_parameter="max_in_flight_tokens",
    counts_apart=True,
    findings=OLDER.findings
    - {
        "001-new-block-ids-never-drained",
        "008-external-tokens-take-other-hits",
        "022-given-up-while-in-flight",
        "028-window-left-while-in-flight",
        "030-ends-without-its-blocks",
        "036-states-hit-past-attention",
        "052-older-state-goes-last",
        "064-failed-load-sets-back-another",
    }
    | {
        "012-prompt-tail-that-serves-nobody",
        "071-freed-late-counts-as-shared",
        "072-state-before-a-gap-stays-held",
    },
    pins_junctions=True,
    scheduler=SCHEDULER_RULES,
    additions=Additions(reason="0.33.0 lists what came since 0.23.0"),
)
