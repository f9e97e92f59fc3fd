"""vLLM 0.33.0: a look-ahead block may hold a request's last token, and a new scheduler."""

from __future__ import annotations

from attrs import evolve

from kvgate.adapters.releases.description import (
    MANAGER,
    OUTPUTS,
    REQUEST,
    SCHEDULER,
    SCHEDULER_OUTPUT,
    SPECS,
    UTILS,
    Additions,
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
    stops_at_junctions=True,
    offers_to_readers_only=True,
    ends_with_computed=True,
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
    pins_junctions=True,
    hashes_ahead=True,
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
        "062-steps-after-a-failed-load-count",
        "063-load-fails-after-a-preemption",
        "065-evicted-state-cached-again",
        "066-sharer-of-a-failed-load-stays-cached",
        "067-events-of-embedded-prompts",
    },
    scheduler=SCHEDULER_RULES,
    additions=Additions(
        "0.23.0",
        (
            Mechanism(
                (
                    "KVCacheManager.pop_blocks_for_free",
                    "KVCacheCoordinator.pop_blocks_for_free",
                    "SingleTypeKVCacheManager.pop_blocks_for_free",
                    "MambaManager.pop_blocks_for_free",
                    "Scheduler._free_request_blocks",
                    "Scheduler._request_blocks_can_be_freed",
                    "Scheduler._drain_deferred_frees",
                ),
                compared="lockstep, blocks that are freed when the steps that write them are over",
            ),
            Mechanism(
                (
                    "BlockHashToBlockMap.contain",
                    "BlockPool._build_block_stored_event",
                    "BlockPool._emit_block_removed_events",
                    "BlockPool._generate_event_extra_keys",
                    "to_event_extra_keys",
                    "BlockPool._insert_block_hash",
                    "BlockPool._remove_cached_block_hashes",
                    "KVCacheBlock.set_block_hash",
                    "KVCacheBlock.block_hash_num_tokens",
                ),
                compared="lockstep, the events of every step",
            ),
            Mechanism(
                (
                    "BlockPool.cache_partial_block",
                    "BlockPool._get_partial_block_hash",
                    "BlockPool._get_partial_block_parent_hash_and_start",
                    "FullAttentionManager.cache_blocks",
                    "FullAttentionManager._cache_partial_tail_block",
                    "MambaManager._cache_partial_tail_block",
                ),
                compared="lockstep, the entries and events of blocks that a prompt ends in: finding 012",
            ),
            Mechanism(
                (
                    "CacheConfig.prefix_cache_retention_interval",
                    "replay_boundaries",
                    "MambaManager.reachable_block_mask",
                    "KVCacheCoordinator.reset_prefix_cache",
                ),
                compared="lockstep, what is cached of each request, and what stays",
            ),
            Mechanism(
                (
                    "KVCacheManager.prefix_cache_lookup_enabled",
                    "HybridKVCacheCoordinator._cache_hit_alignment_tokens",
                    "HybridKVCacheCoordinator._align_cacheable",
                    "HybridKVCacheCoordinator.get_num_cacheable_tokens",
                    "KVCacheCoordinator.get_num_cacheable_tokens",
                    "eagle_proof_margin",
                    "partial_hash_hits_enabled",
                    "resolve_block_hashes",
                    "Scheduler._get_local_prefix_cache_hit",
                ),
                compared="lockstep, the length of every hit",
            ),
            Mechanism(
                (
                    "SingleTypeKVCacheManager.add_local_computed_blocks",
                    "SingleTypeKVCacheManager.allocate_external_computed_blocks",
                    "SingleTypeKVCacheManager._remove_blocks_in_range",
                    "MambaManager._remove_blocks_in_range",
                    "MambaManager._relocate_speculative_block",
                    "BlockPool.is_block_writable",
                    "null_head_len",
                    "trim_null_head",
                ),
                compared="lockstep, tables, references and the free queue",
            ),
            Mechanism(
                ("Scheduler._get_new_block_ids_to_zero",),
                compared="the blocks that each step sends to be zeroed",
            ),
            Mechanism(
                (
                    "Scheduler._handle_blocked_waiting_request",
                    "Scheduler._holds_kv_blocks",
                ),
                compared="the order in which requests are admitted, and what each step computes",
            ),
            Mechanism(
                ("KVCacheManager.get_block_ids_for_computed_tokens",),
                compared="the connector check: what the end of a request reports",
            ),
            Mechanism(
                ("KVCacheManager.record_prefix_cache_stats",),
                compared="the statistics of look-ups",
            ),
            Mechanism(
                ("Scheduler._drain_deferred_loads",),
                not_compared="the fake connectors put off no load, so it has none to start",
            ),
            Mechanism(
                ("Scheduler._reserve_prefill_lookahead",),
                not_compared="no draft layer of a case reads more than one token ahead, so it changes nothing",
            ),
            Mechanism(
                ("MambaManager._needs_internal_checkpoint",),
                not_compared="no model has states at boundaries inside a step, so it is never true",
            ),
            Mechanism(
                (
                    "SingleTypeKVCacheManager._has_partial_local_hit",
                    "KVCacheManager.take_kv_cache_block_copies",
                    "SingleTypeKVCacheManager.take_pending_cow_copies",
                ),
                not_compared="no hit of these models ends inside a block, so they are false or empty",
            ),
            Mechanism(
                (
                    "KVCacheManager.take_boundary_state_offloads",
                    "SingleTypeKVCacheManager.take_pending_boundary_state_offloads",
                    "KVCacheManager.finalize_partial_tail_offloads",
                    "SingleTypeKVCacheManager.finalize_partial_tail_offload",
                    "KVConnectorBlockState",
                ),
                not_compared="the fake connectors take no states at boundaries",
            ),
            Mechanism(
                (
                    "Scheduler._load_restores_replay_window",
                    "Scheduler._mark_prefix_replay",
                ),
                not_compared="no case has a window of compressed slots that is replayed, so they change nothing",
            ),
            Mechanism(
                (
                    "EncoderCacheManager.create_manager",
                    "EncoderCacheManager.get_manager_metadata",
                    "Scheduler._ec_transfer_pending",
                    "Scheduler._get_encoder_input_updates",
                ),
                not_compared="items are driven on 0.20.2 alone, and without one they change nothing",
            ),
            Mechanism(
                (
                    "KVCacheManager.estimate_cached_tokens",
                    "Scheduler._set_kv_fetch_stage",
                ),
                not_compared="they report, and decide nothing",
            ),
            Mechanism(
                ("resolve_none_hash_seed",),
                not_compared="cached blocks are compared by their tokens, and hashes by which are equal",
            ),
            Mechanism(
                (
                    "CircularBufferManager",
                    "CircularBufferManager._claim_ring_block",
                    "CircularBufferManager.add_local_computed_blocks",
                    "CircularBufferManager.allocate_external_computed_blocks",
                    "CircularBufferManager.allocate_new_blocks",
                    "CircularBufferManager.cache_blocks",
                    "CircularBufferManager.find_longest_cache_hit",
                    "CircularBufferManager.get_num_blocks_to_allocate",
                    "CircularBufferManager.get_num_skipped_tokens",
                    "CircularBufferManager.remove_skipped_blocks",
                ),
                not_driven="no model has layers that keep a ring of blocks",
            ),
            Mechanism(
                (
                    "HiSparseHotManager",
                    "HiSparseHotManager.__init__",
                    "HiSparseHotManager.add_local_computed_blocks",
                    "HiSparseHotManager.allocate_external_computed_blocks",
                    "HiSparseHotManager.allocate_new_blocks",
                    "HiSparseHotManager.get_num_blocks_to_allocate",
                    "HiSparseHotManager.get_num_required_blocks",
                    "HiSparseHotManager.has_hot",
                    "HiSparseHotManager.pop_blocks_for_free",
                    "HiSparseHotManager.require_hot",
                    "HiSparseResidentManager",
                    "HiSparseResidentManager.__init__",
                    "HiSparseResidentManager.add_local_computed_blocks",
                    "HiSparseResidentManager.adopt_resident_page",
                    "HiSparseResidentManager.allocate_external_computed_blocks",
                    "HiSparseResidentManager.allocate_new_blocks",
                    "HiSparseResidentManager.drop_resident_page",
                    "HiSparseResidentManager.get_num_blocks_to_allocate",
                    "HiSparseResidentManager.get_residency_row",
                    "HiSparseResidentManager.get_resident_page",
                    "HiSparseResidentManager.pop_blocks_for_free",
                    "HiSparseSourceManager",
                    "HiSparseSourceManager.allocate_external_computed_blocks",
                    "HiSparseSourceManager.bind_host_pool",
                    "HiSparseSourceManager.cache_blocks",
                    "HiSparseSourceManager.get_num_blocks_to_allocate",
                    "HiSparseSourceManager.pop_blocks_for_free",
                    "HiSparseSourceManager.publish_blocks",
                    "HiSparseSourceManager.records_new_block_ids",
                    "HiSparseSourceManager.take_host_cow_copies",
                    "HiSparseSourceManager.take_new_block_ids",
                    "HiSparseSourceManager.take_pending_cow_copies",
                    "_HiSparseAuxiliaryManager",
                    "_HiSparseAuxiliaryManager.cache_blocks",
                    "_HiSparseAuxiliaryManager.find_longest_cache_hit",
                    "BlockPool._notify_reuse",
                    "BlockPool.unpin_blocks",
                ),
                not_driven="no model has layers of HiSparse",
            ),
            Mechanism(
                (
                    "RSWAManager",
                    "RSWAManager.__init__",
                    "RSWAManager.remove_skipped_blocks",
                ),
                not_driven="no model has a window that keeps the prompt",
            ),
            Mechanism(
                (
                    "CrossAttentionManager.add_local_computed_blocks",
                    "CrossAttentionManager.allocate_external_computed_blocks",
                ),
                not_driven="no model has layers that read an encoder's states",
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
                (
                    "BlockPool.move_block_hashes",
                    "SingleTypeKVCacheManager._apply_cow",
                    "Scheduler._free_cow_retained_blocks",
                    "KVCacheBlockCopy",
                ),
                not_driven="no hit of these models ends inside a block, and nothing is copied",
            ),
            Mechanism(
                (
                    "CacheConfig.prefix_match_unit",
                    "CacheConfig.enable_mamba_shared_prefix_checkpoint",
                ),
                not_driven="no case has hits inside blocks of states, or checkpoints of shared prefixes",
            ),
            Mechanism(
                (
                    "MambaManager.finalize_partial_tail_offload",
                    "KVConnectorBlockState.get_block_ids",
                ),
                not_driven="the fake connectors take no states at boundaries",
            ),
            Mechanism(
                (
                    "FreeKVCacheBlockQueue.iter_blocks_after",
                    "SingleTypeKVCacheManager.has_positionally_stable_blocks",
                    "MambaManager.has_positionally_stable_blocks",
                    "get_none_hash_seed",
                    "KVCacheManager.get_computed_blocks_for_connector",
                    "HybridKVCacheCoordinator.find_longest_cache_hit_per_group",
                    "KVCacheManager.truncate_computed_blocks",
                ),
                not_driven="vLLM's own connectors call them, and those of the gate are fakes",
            ),
            Mechanism(
                ("Scheduler._handle_failed_recving",),
                not_driven="the fake connectors name the blocks that failed to load, and never the requests",
            ),
            Mechanism(
                (
                    "KVCacheManager.record_blocks_for_zeroing",
                    "SingleTypeKVCacheManager.records_new_block_ids",
                ),
                not_driven="no case has both a load that fails and blocks to be zeroed",
            ),
            Mechanism(
                (
                    "BlockPool.emit_cached_block_events",
                    "KVCacheCoordinator.emit_cached_block_events",
                ),
                not_driven="no request asks for events of the blocks that it hits",
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
                    "Scheduler._free_encoder_input",
                    "Scheduler._make_scheduled_encoder_input_stats",
                    "Scheduler._reject_on_encoder_cache_embed_mismatch",
                    "ScheduledEncoderInputStats",
                ),
                not_driven="items are driven on 0.20.2 alone",
            ),
            Mechanism(
                (
                    "SchedulerInterface.get_ec_connector",
                    "SchedulerInterface.get_kv_cache_usage",
                    "SchedulerInterface.get_kv_event_publisher_config",
                    "SchedulerInterface.has_request",
                    "Scheduler.get_ec_connector",
                    "Scheduler.get_kv_cache_usage",
                    "Scheduler.get_kv_event_publisher_config",
                    "Scheduler.has_request",
                    "Scheduler.has_requests",
                    "NewRequestData.prompt_len",
                ),
                not_driven="an engine asks for them, and none runs",
            ),
            Mechanism(
                (
                    "SchedulerConfig.long_prefill_token_threshold_adaptive",
                    "SchedulerConfig.max_num_active_seqs",
                    "SchedulerConfig.max_num_queued_reqs",
                    "SchedulerConfig.max_num_queued_tokens",
                    "SchedulerConfig.prefill_schedule_interval",
                    "SchedulerConfig.watermark",
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
                    "_ensure_min_page_size",
                    "_get_kv_cache_bytes_per_block",
                    "_get_layer_block_stride",
                    "_get_packed_kv_cache_groups",
                    "_get_per_layer_spec",
                    "_largest_divisor_at_most",
                    "_layer_tp_replicas",
                    "_pool_bytes_per_block_from_builder",
                    "_promote_local_kv_cache_specs",
                    "_try_get_full_allocation_fallback_groups",
                    "_warn_if_unannotated_eagle_mamba",
                    "get_global_kv_cache_groups",
                    "get_kv_cache_config_builder",
                    "get_kv_cache_groups_from_builder",
                    "kv_cache_groups_tp_replicas",
                    "validate_kv_cache_layout",
                    "CacheConfig.effective_attention_block_size",
                    "CacheConfig.cache_hit_alignment_tokens",
                    "resolve_cache_hit_alignment_tokens",
                    "_kv_cache_device_name",
                    "get_kv_cache_capacity",
                    "update_kv_cache_capacity",
                ),
                not_driven="they make groups of layers, and size memory: a case gives the groups and the blocks",
            ),
            Mechanism(
                (
                    "resolve_dcp_kv_block_size",
                    "resolve_dcp_kv_cache_spec",
                ),
                not_driven="no case of a block manager has context parallelism",
            ),
            Mechanism(
                (
                    "CacheConfig.kv_cache_layout",
                    "CacheConfig.kv_cache_max_concurrency",
                    "CacheConfig.kv_cache_size_tokens",
                    "CacheConfig.skip_page_size_padded",
                    "CacheConfig.use_kda_recoverssm",
                    "CacheConfig.use_replayssm",
                    "CacheConfig.replayssm_buffer_len",
                    "CacheConfig.simple_cpu_offload_num_blocks",
                    "KVCacheDTypeHandler.name",
                ),
                not_driven="they are of bytes and kernels",
            ),
        ),
    ),
)
