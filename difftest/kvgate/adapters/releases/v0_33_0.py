"""vLLM 0.33.0: a look-ahead block may hold a request's last token, and a new scheduler."""

from __future__ import annotations

from types import MappingProxyType

from attrs import evolve

from kvgate.adapters.releases.description import (
    MANAGER,
    OUTPUTS,
    REQUEST,
    SCHEDULER,
    SCHEDULER_OUTPUT,
    SPECS,
    UTILS,
    Mechanism,
)
from kvgate.adapters.releases.v0_23_0 import SCHEDULER_RULES as OLDER_SCHEDULER
from kvgate.adapters.releases.v0_30_0 import RELEASE as OLDER

SCHEDULER_RULES = evolve(
    OLDER_SCHEDULER,
    signatures={
        **OLDER_SCHEDULER.signatures,
        f"{SCHEDULER}.schedule": "self, throttle_prefills",
        f"{SCHEDULER_OUTPUT}:SchedulerOutput": (
            "scheduled_new_reqs, scheduled_cached_reqs, num_scheduled_tokens, total_num_scheduled_tokens, "
            "scheduled_spec_decode_tokens, scheduled_encoder_inputs, finished_req_ids, free_encoder_mm_hashes, "
            "encoder_input_updates, scheduled_encoder_input_stats, preempted_req_ids, has_structured_output_requests, "
            "pending_structured_output_tokens, num_invalid_spec_tokens, kv_connector_metadata, has_sync_kv_loads, "
            "aux_output_connector_metadata, ec_connector_metadata, ec_manager_metadata, new_block_ids_to_zero, "
            "kv_cache_block_copies, kv_connector_block_state, num_spec_tokens_to_schedule, num_common_prefix_blocks, "
            "skip_drafts"
        ),
        f"{SCHEDULER_OUTPUT}:NewRequestData": (
            "req_id, prompt_token_ids, mm_features, sampling_params, pooling_params, block_ids, num_computed_tokens, "
            "lora_request, prompt_embeds, prompt_is_token_ids, prefill_token_ids, replay_start"
        ),
        f"{OUTPUTS}:ModelRunnerOutput": (
            "req_ids, req_id_to_index, sampled_token_ids, logprobs, prompt_logprobs_dict, "
            "prompt_token_id_logprobs_dict, pooler_output, kv_connector_output, ec_connector_output, "
            "num_nans_in_logits, cudagraph_stats, aux_output_connector_output, sampling_masks"
        ),
        f"{OUTPUTS}:KVConnectorOutput": (
            "finished_sending, finished_recving, kv_connector_stats, kv_cache_events, kv_connector_worker_meta, "
            "invalid_block_ids, failed_recving, expected_finished_count"
        ),
        "vllm.v1.engine:EngineCoreOutput": (
            "request_id, new_token_ids, new_logprobs, new_prompt_logprobs_tensors, pooling_output, finish_reason, "
            "stop_reason, events, kv_transfer_params, ec_transfer_params, trace_headers, prefill_stats, "
            "routed_experts, num_nans_in_logits, mm_cache_miss_hashes, new_sampling_mask, spec_decode_metrics, "
            "prompt_token_id_logprobs, error"
        ),
        f"{MANAGER}.pop_blocks_for_free": "self, request",
    },
    counts_admitted=True,
    pads_drafts=True,
    caches_answers=True,
    spares_the_only_one=True,
    zeroes_loaded=False,
    queues=("kv_holding_waiting", "waiting"),
    joins_queues=False,
    reports_preempted_later=True,
    frees_late=True,
    offers_to_readers_only=True,
    ends_with_computed=True,
    # Its hashes then cover what a draft layer reads after a block: another cache, which the reference does not have.
    drafting=MappingProxyType({"disable_lookahead_block_hashes": True}),
)

RELEASE = evolve(
    OLDER,
    version="0.33.0",
    wheels={
        "aarch64": "e9e404f52c8494b69bd83fe99fe7ecfa9f6b89fbd156d2a9639c24ea41d6d606",
        "x86_64": "4b6bdec4ab269990bf70d45a3c1e94c3760a27064513760193b26d6f0da883aa",
    },
    signatures={
        **OLDER.signatures,
        f"{MANAGER}.__init__": (
            "self, kv_cache_config, max_model_len, scheduler_block_size, hash_block_size, max_in_flight_tokens, "
            "enable_caching, use_eagle, num_hash_lookahead_tokens, num_prefill_lookahead, log_stats, "
            "enable_kv_cache_events, dcp_world_size, pcp_world_size, metrics_collector, watermark, "
            "enable_mamba_shared_prefix_checkpoint"
        ),
        f"{MANAGER}.get_computed_blocks": "self, request, max_cache_hit_length",
        f"{MANAGER}.allocate_slots": (
            "self, request, num_new_tokens, num_new_computed_tokens, new_computed_blocks, num_lookahead_tokens, "
            "num_external_computed_tokens, delay_cache_blocks, num_encoder_tokens, full_sequence_must_fit, "
            "reserved_blocks, has_scheduled_reqs, skip_zeroing_group_ids"
        ),
        f"{UTILS}:get_request_block_hasher": "hash_block_size, caching_hash_fn, num_hash_lookahead_tokens",
        f"{SPECS}:KVCacheConfig": (
            "num_blocks, kv_cache_tensors, kv_cache_groups, prefix_cache_retention_interval, kv_cache_layout, "
            "hash_block_size, cache_hit_alignment_tokens, hisparse_host_num_blocks, hisparse_host_block_stride, "
            "hisparse_shared_host_pool, kv_tp_replicas"
        ),
        f"{SPECS}:FullAttentionSpec": (
            "block_size, dcp_sharded, block_stride_alignment, is_draft, max_tp_shards, num_kv_heads, head_size, dtype, "
            "head_size_v, kv_quant_mode, page_size_padded, num_head_slots, state_content_bytes, tokens_per_state, "
            "sliding_window, attention_chunk_size, non_causal"
        ),
        f"{SPECS}:MLAAttentionSpec": (
            "block_size, dcp_sharded, block_stride_alignment, is_draft, max_tp_shards, num_kv_heads, head_size, dtype, "
            "head_size_v, kv_quant_mode, page_size_padded, num_head_slots, state_content_bytes, tokens_per_state, "
            "sliding_window, attention_chunk_size, non_causal, cache_dtype_str, topk_buffer_width, alignment, "
            "model_version, cache_role, is_index_group_leader, non_causal_multi_token_decode"
        ),
        f"{SPECS}:SlidingWindowSpec": (
            "block_size, dcp_sharded, block_stride_alignment, is_draft, max_tp_shards, num_kv_heads, head_size, dtype, "
            "head_size_v, kv_quant_mode, page_size_padded, num_head_slots, state_content_bytes, tokens_per_state, "
            "sliding_window, extra_retained_tokens"
        ),
        f"{SPECS}:SlidingWindowMLASpec": (
            "block_size, dcp_sharded, block_stride_alignment, is_draft, max_tp_shards, num_kv_heads, head_size, dtype, "
            "head_size_v, kv_quant_mode, page_size_padded, num_head_slots, state_content_bytes, tokens_per_state, "
            "sliding_window, extra_retained_tokens, cache_dtype_str, alignment, model_version, bounded_replay"
        ),
        f"{SPECS}:ChunkedLocalAttentionSpec": (
            "block_size, dcp_sharded, block_stride_alignment, is_draft, max_tp_shards, num_kv_heads, head_size, dtype, "
            "head_size_v, kv_quant_mode, page_size_padded, num_head_slots, state_content_bytes, tokens_per_state, "
            "attention_chunk_size"
        ),
        f"{SPECS}:MambaSpec": (
            "block_size, shapes, dtypes, page_size_padded, mamba_type, mamba_cache_mode, num_speculative_blocks, "
            "num_prefill_checkpoint_blocks, prefill_checkpoint_alignment, num_heads, tokens_per_state, tp_replicated, "
            "dcp_sharded, block_stride_alignment, is_draft"
        ),
        f"{REQUEST}.__init__": (
            "self, request_id, prompt_token_ids, sampling_params, pooling_params, client_index, arrival_time, "
            "prompt_embeds, prompt_is_token_ids, mm_features, lora_request, cache_salt, priority, trace_headers, "
            "block_hasher, resumable, session_id, reasoning_ended, reasoning_parser_kwargs, abort_immediately, "
            "kv_hints"
        ),
    },
    distribution="vllm",
    choices="look-ahead-at-the-end",
    pins_junctions=True,
    findings=OLDER.findings
    - {
        "003-salt-collides-with-adapter-name",
        "004-media-forgotten-in-prompt-tail",
        "051-loaded-state-waits-for-a-step",
    }
    | {
        "020-preempted-in-its-step-stays-cached",
        "021-behind-a-failed-load-stays-cached",
        "025-aborted-load-never-reclaimed",
        "027-oversized-request-blocks-the-queue",
        "048-item-of-a-victim-counts-as-computed",
    },
    scheduler=SCHEDULER_RULES,
    mechanisms=(
        Mechanism(
            ("CircularBufferManager*",),
            left_out="no model of kvgate has layers that keep a ring of blocks",
        ),
        Mechanism(
            (
                "HiSparse*",
                "_HiSparse*",
            ),
            left_out="no model of kvgate has layers of HiSparse",
        ),
        Mechanism(
            ("RSWAManager*",),
            left_out="no model of kvgate has a window that keeps the prompt",
        ),
        Mechanism(
            (
                "BlockPool.cache_partial_block",
                "BlockPool._get_partial_block*",
                "BlockPool.move_block_hashes",
                "BlockPool.unpin_blocks",
                "BlockPool.is_block_writable",
                "*._cache_partial_tail_block",
                "*._apply_cow",
                "*._has_partial_local_hit",
                "*.take_pending_cow_copies",
                "*.take_kv_cache_block_copies",
                "*_cow_retained_blocks",
                "KVCacheBlock*",
                "CacheConfig.prefix_match_unit",
                "CacheConfig.enable_mamba_shared_prefix_checkpoint",
                "MambaManager._needs_internal_checkpoint",
                "MambaManager._relocate_speculative_block",
                "partial_hash_hits_enabled",
                "FullAttentionManager.cache_blocks",
            ),
            left_out="hits inside blocks of states are off by default, and the reference has none there",
        ),
        Mechanism(
            (
                "*partial_tail_offload*",
                "*boundary_state_offloads",
            ),
            left_out="no case has a connector that takes states at boundaries",
        ),
        Mechanism(
            (
                "BlockPool._lookahead_token_ids",
                "generate_lookahead_block_hash_extra_keys",
                "eagle_proof_margin",
                "*get_num_cacheable_tokens",
                "*_align_cacheable",
            ),
            left_out="look-ahead block hashes are switched off",
        ),
        Mechanism(
            (
                "*.pop_blocks_for_free",
                "Scheduler._drain_deferred_frees",
                "Scheduler._free_request_blocks",
                "Scheduler._request_blocks_can_be_freed",
            ),
            compared="lockstep, asynchronous steps with a connector",
        ),
        Mechanism(
            ("Scheduler._drain_deferred_loads",),
            left_out="connectors are fakes, and start no load",
        ),
        Mechanism(
            (
                "*emit_*",
                "BlockPool._build_block_stored_event",
                "BlockPool._generate_event_extra_keys",
                "to_event_extra_keys",
                "BlockHashToBlockMap.contain",
                "BlockPool._insert_block_hash",
                "BlockPool._remove_cached_block_hashes",
            ),
            compared="lockstep, the events of every step",
        ),
        Mechanism(
            (
                "CacheConfig.prefix_cache_retention_interval",
                "replay_boundaries",
                "MambaManager.reachable_block_mask",
                "*reset_prefix_cache",
            ),
            compared="lockstep, models with +retention",
        ),
        Mechanism(
            (
                "CacheConfig.swa_bounded_replay",
                "Scheduler._load_restores_replay_window",
                "Scheduler._mark_prefix_replay",
            ),
            left_out="no case has a window of compressed slots that is replayed",
        ),
        Mechanism(
            ("SchedulerConfig.*",),
            left_out="they are off by default, and no stage sets them",
        ),
        Mechanism(
            (
                "*_to_zero",
                "KVCacheManager.record_blocks_for_zeroing",
            ),
            compared="the blocks that each step sends to be zeroed",
        ),
        Mechanism(
            (
                "EncoderCacheManager.*",
                "Scheduler.*encoder*",
                "Scheduler._ec_transfer_pending",
                "*.get_ec_connector",
            ),
            left_out="items are driven on 0.20.2 alone",
        ),
        Mechanism(
            (
                "*.get_kv_cache_usage",
                "*.get_kv_event_publisher_config",
                "*.has_request*",
                "_kv_cache_device_name",
                "*none_hash_seed",
                "*_kv_cache_capacity",
                "Scheduler._set_kv_fetch_stage",
            ),
            left_out="they report, and decide nothing",
        ),
        Mechanism(
            (
                "CacheConfig.kv_cache_*",
                "CacheConfig.skip_page_size_padded",
                "CacheConfig.use_*",
                "CacheConfig.replayssm_buffer_len",
                "CacheConfig.simple_cpu_offload_num_blocks",
                "KVCacheDTypeHandler.name",
            ),
            left_out="they are of bytes and kernels",
        ),
        Mechanism(
            ("resolve_dcp_*",),
            left_out="no case of a block manager has context parallelism",
        ),
        Mechanism(
            (
                "CacheConfig.cache_hit_alignment_tokens",
                "CacheConfig.effective_attention_block_size",
                "*_cache_hit_alignment_tokens",
                "resolve_block_hashes",
                "*.find_longest_cache_hit_per_group",
            ),
            compared="lockstep, the length of every hit",
        ),
        Mechanism(
            (
                "Scheduler._handle_*",
                "Scheduler._holds_kv_blocks",
                "Scheduler._get_local_prefix_cache_hit",
                "Scheduler._drafts_unused",
                "Scheduler._reserve_prefill_lookahead",
                "KVCacheManager.*",
            ),
            compared="lockstep, whatever the scheduler asks of the block manager",
        ),
        Mechanism(
            (
                "*.add_local_computed_blocks",
                "*.allocate_external_computed_blocks",
                "*._remove_blocks_in_range",
                "null_head_len",
                "trim_null_head",
                "FreeKVCacheBlockQueue.iter_blocks_after",
                "*.has_positionally_stable_blocks",
                "*.records_new_block_ids",
                "BlockPool._notify_reuse",
            ),
            compared="lockstep, tables, references and the free queue",
        ),
    ),
)
