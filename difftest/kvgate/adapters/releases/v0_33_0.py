"""vLLM 0.33.0: a look-ahead block may hold a request's last token, and a new scheduler."""

from __future__ import annotations

from attrs import evolve

from kvgate.adapters.releases.description import (
    MANAGER,
    OUTPUTS,
    REQUEST,
    SCHEDULER_OUTPUT,
    SPECS,
    UTILS,
    Additions,
    Mechanism,
)
from kvgate.adapters.releases.v0_30_0 import RELEASE as OLDER
from kvgate.adapters.releases.v0_30_0 import SCHEDULER_RULES as OLDER_SCHEDULER

SCHEDULER_RULES = evolve(
    OLDER_SCHEDULER,
    signatures={
        **OLDER_SCHEDULER.signatures,
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
        "vllm.v1.engine:EngineCoreOutput": (
            "request_id, new_token_ids, new_logprobs, new_prompt_logprobs_tensors, pooling_output, finish_reason, "
            "stop_reason, events, kv_transfer_params, ec_transfer_params, trace_headers, prefill_stats, "
            "routed_experts, num_nans_in_logits, mm_cache_miss_hashes, new_sampling_mask, spec_decode_metrics, "
            "prompt_token_id_logprobs, error"
        ),
    },
    caches_answers=True,
    spares_the_only_one=True,
    stops_at_usable_ends=True,
    queues=("kv_holding_waiting", "waiting"),
    joins_queues=False,
    offers_to_readers_only=True,
    # Its hashes then cover what a draft layer reads after a block: another cache, which the reference does not have.
    hashing_option="disable_lookahead_block_hashes",
)

RELEASE = evolve(
    OLDER,
    version="0.33.0",
    keeps_all_states=False,
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
    hashes_ahead=True,
    findings=OLDER.findings
    - {
        "003-salt-collides-with-adapter-name",
        "004-media-forgotten-in-prompt-tail",
        "023-parked-loads-leave-no-room",
        "024-refused-before-whoever-loaded",
        "051-loaded-state-waits-for-a-step",
        "060-computed-again-with-the-next-item",
        "068-item-as-long-as-a-step",
        "069-steps-after-a-part-count",
        "071-freed-late-counts-as-shared",
        "083-padding-longer-than-a-chunk",
        "087-reloaded-in-the-step-after-a-reset",
        "093-loads-of-another-connector-are-not-seen",
        "104-promoted-to-chunks-of-a-reset",
    }
    | {
        "065-evicted-state-cached-again",
        "095-holders-wait-behind-a-holder",
        "075-load-kept-out-by-its-own-drafts",
        "100-load-in-a-step-takes-a-state-too-many",
    },
    scheduler=SCHEDULER_RULES,
    additions=Additions(
        "0.30.0",
        (
            Mechanism(
                (
                    "BlockPool._generate_event_extra_keys",
                    "to_event_extra_keys",
                ),
                compared="lockstep, the events of every step",
            ),
            Mechanism(
                ("replay_boundaries",),
                compared="lockstep, what is cached of each request, and what stays",
            ),
            Mechanism(
                (
                    "HybridKVCacheCoordinator.get_num_cacheable_tokens",
                    "KVCacheCoordinator.get_num_cacheable_tokens",
                    "eagle_proof_margin",
                    "partial_hash_hits_enabled",
                ),
                compared="lockstep, the length of every hit",
            ),
            Mechanism(
                (
                    "null_head_len",
                    "trim_null_head",
                ),
                compared="lockstep, tables, references and the free queue",
            ),
            Mechanism(
                (
                    "Scheduler._handle_blocked_waiting_request",
                    "Scheduler._holds_kv_blocks",
                ),
                compared="the order in which requests are admitted, and what each step computes",
            ),
            Mechanism(
                ("Scheduler._drain_deferred_loads",),
                not_compared="the fake connectors put off no load, so it has none to start",
            ),
            Mechanism(
                (
                    "Scheduler._load_restores_replay_window",
                    "Scheduler._mark_prefix_replay",
                ),
                not_compared="no case has a window of compressed slots that is replayed, so they change nothing",
            ),
            Mechanism(
                ("Scheduler._get_encoder_input_updates",),
                not_compared="items are driven on 0.20.2 alone, and without one they change nothing",
            ),
            Mechanism(
                ("Scheduler._set_kv_fetch_stage",),
                not_compared="they report, and decide nothing",
            ),
            Mechanism(
                (
                    "HiSparseResidentManager.__init__",
                    "HiSparseResidentManager.drop_resident_page",
                    "HiSparseResidentManager.get_residency_row",
                ),
                not_driven="no model has layers of HiSparse",
            ),
            Mechanism(
                (
                    "DiffusionScheduler",
                    "DiffusionScheduler.update_draft_token_ids",
                    "DiffusionAsyncScheduler",
                    "DiffusionAsyncScheduler.schedule",
                    "diffusion_canvas_width",
                    "_read_in_flight",
                ),
                not_driven="no model writes by diffusion",
            ),
            Mechanism(
                ("CacheConfig.enable_mamba_shared_prefix_checkpoint",),
                not_driven="no case has hits inside blocks of states, or checkpoints of shared prefixes",
            ),
            Mechanism(
                (
                    "BlockPool._lookahead_token_ids",
                    "generate_lookahead_block_hash_extra_keys",
                ),
                compared="which blocks are cached, what is hit, and the events, of models with +hashed-ahead",
            ),
            Mechanism(
                ("Scheduler._drafts_unused",),
                not_driven="no drafter can skip a step",
            ),
            Mechanism(
                ("CacheConfig.swa_bounded_replay",),
                not_driven="no case has a window of compressed slots that is replayed",
            ),
            Mechanism(
                (
                    "EncoderCacheManager._add_cached_input_id",
                    "EncoderCacheManager.get_cached_num_encoder_embeds",
                    "Scheduler._allocate_encoder_inputs",
                    "Scheduler._reject_on_encoder_cache_embed_mismatch",
                ),
                not_driven="items are driven on 0.20.2 alone",
            ),
            Mechanism(
                (
                    "SchedulerInterface.has_request",
                    "Scheduler.has_request",
                ),
                not_driven="an engine asks for them, and none runs",
            ),
            Mechanism(
                (
                    "SchedulerConfig.long_prefill_token_threshold_adaptive",
                    "SchedulerConfig.max_num_active_seqs",
                ),
                not_driven="they keep their defaults, with which they change nothing",
            ),
            Mechanism(
                (
                    "DefaultKVCacheConfigBuilder",
                    "DefaultKVCacheConfigBuilder.get_kv_cache_config_from_groups",
                    "DefaultKVCacheConfigBuilder.get_kv_cache_groups",
                    "KVCacheConfigBuilder",
                    "KVCacheConfigBuilder._get_pool_bytes_per_block",
                    "KVCacheConfigBuilder.get_kv_cache_config_from_groups",
                    "KVCacheConfigBuilder.get_kv_cache_groups",
                    "_check_exact_partition",
                    "_get_layer_block_stride",
                    "_layer_tp_replicas",
                    "_pool_bytes_per_block_from_builder",
                    "get_global_kv_cache_groups",
                    "get_kv_cache_config_builder",
                    "get_kv_cache_groups_from_builder",
                    "kv_cache_groups_tp_replicas",
                    "CacheConfig.effective_attention_block_size",
                    "CacheConfig.cache_hit_alignment_tokens",
                    "resolve_cache_hit_alignment_tokens",
                    "_kv_cache_device_name",
                ),
                not_driven="they make groups of layers, and size memory: a case gives the groups and the blocks",
            ),
            Mechanism(
                (
                    "CacheConfig.simple_cpu_offload_num_blocks",
                    "KVCacheDTypeHandler.name",
                ),
                not_driven="they are of bytes and kernels",
            ),
            Mechanism(
                ("CacheConfig.hash_block_size",),
                not_driven="a case gives the size of the blocks that are hashed",
            ),
        ),
    ),
)
