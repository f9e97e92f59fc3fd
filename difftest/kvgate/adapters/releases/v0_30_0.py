"""vLLM 0.30.0: the interval is part of the configuration; scratch first without prefix caching too."""

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
from kvgate.adapters.releases.v0_27_1 import RELEASE as OLDER
from kvgate.adapters.releases.v0_27_1 import SCHEDULER_RULES as OLDER_SCHEDULER

SCHEDULER_RULES = evolve(
    OLDER_SCHEDULER,
    pads_next_to_others=False,
    zeroes_windows=True,
    hits_past_states=False,
    signatures={
        **OLDER_SCHEDULER.signatures,
        f"{SCHEDULER_OUTPUT}:SchedulerOutput": (
            "scheduled_new_reqs, scheduled_cached_reqs, num_scheduled_tokens, total_num_scheduled_tokens, "
            "scheduled_spec_decode_tokens, scheduled_encoder_inputs, num_common_prefix_blocks, finished_req_ids, "
            "free_encoder_mm_hashes, scheduled_encoder_input_stats, preempted_req_ids, has_structured_output_requests, "
            "pending_structured_output_tokens, num_invalid_spec_tokens, kv_connector_metadata, has_sync_kv_loads, "
            "ec_connector_metadata, ec_manager_metadata, new_block_ids_to_zero, kv_cache_block_copies, "
            "block_table_updates, kv_connector_block_state, num_spec_tokens_to_schedule"
        ),
        f"{OUTPUTS}:ModelRunnerOutput": (
            "req_ids, req_id_to_index, sampled_token_ids, logprobs, prompt_logprobs_dict, pooler_output, "
            "kv_connector_output, ec_connector_output, num_nans_in_logits, cudagraph_stats, routed_experts, "
            "sampling_masks"
        ),
        f"{OUTPUTS}:KVConnectorOutput": (
            "finished_sending, finished_recving, kv_connector_stats, kv_cache_events, kv_connector_worker_meta, "
            "invalid_block_ids, failed_recving, expected_finished_count"
        ),
        "vllm.v1.engine:EngineCoreOutput": (
            "request_id, new_token_ids, new_logprobs, new_prompt_logprobs_tensors, pooling_output, finish_reason, "
            "stop_reason, events, kv_transfer_params, ec_transfer_params, trace_headers, prefill_stats, "
            "routed_experts, num_nans_in_logits, mm_cache_miss_hashes, new_sampling_mask, spec_decode_metrics"
        ),
    },
)

RELEASE = evolve(
    OLDER,
    version="0.30.0",
    wheels={
        "aarch64": "27fcab0599ee2be7885ae403293f2004c87708587670e4e759cc91325164d065",
        "x86_64": "52481b4d22749d2261b3ae0495cd0d2879846e85340210a275556d3ada52fd56",
    },
    signatures={
        **OLDER.signatures,
        f"{MANAGER}.__init__": (
            "self, kv_cache_config, max_model_len, scheduler_block_size, hash_block_size, max_in_flight_tokens, "
            "enable_caching, use_eagle, num_prefill_lookahead, log_stats, enable_kv_cache_events, dcp_world_size, "
            "pcp_world_size, metrics_collector, watermark, enable_mamba_fine_grained_prefix_cache"
        ),
        f"{SPECS}:KVCacheConfig": (
            "num_blocks, kv_cache_tensors, kv_cache_groups, prefix_cache_retention_interval, kv_cache_layout, "
            "hisparse_host_num_blocks, hisparse_host_block_stride, hisparse_shared_host_pool"
        ),
        f"{SPECS}:KVCacheGroupSpec": (
            "layer_names, kv_cache_spec, is_eagle_group, host_resident, enable_kv_transfer, role"
        ),
        f"{SPECS}:FullAttentionSpec": (
            "block_size, num_kv_heads, head_size, dtype, head_size_v, kv_quant_mode, page_size_padded, num_head_slots, "
            "state_content_bytes, tokens_per_state, sliding_window, attention_chunk_size, non_causal"
        ),
        f"{SPECS}:MLAAttentionSpec": (
            "block_size, num_kv_heads, head_size, dtype, head_size_v, kv_quant_mode, page_size_padded, num_head_slots, "
            "state_content_bytes, tokens_per_state, sliding_window, attention_chunk_size, non_causal, cache_dtype_str, "
            "alignment, model_version, cache_role, is_index_group_leader, storage_block_size, "
            "non_causal_multi_token_decode"
        ),
        f"{SPECS}:SlidingWindowSpec": (
            "block_size, num_kv_heads, head_size, dtype, head_size_v, kv_quant_mode, page_size_padded, num_head_slots, "
            "state_content_bytes, tokens_per_state, sliding_window, extra_retained_tokens"
        ),
        f"{SPECS}:SlidingWindowMLASpec": (
            "block_size, num_kv_heads, head_size, dtype, head_size_v, kv_quant_mode, page_size_padded, num_head_slots, "
            "state_content_bytes, tokens_per_state, sliding_window, extra_retained_tokens, cache_dtype_str, alignment, "
            "model_version"
        ),
        f"{SPECS}:ChunkedLocalAttentionSpec": (
            "block_size, num_kv_heads, head_size, dtype, head_size_v, kv_quant_mode, page_size_padded, num_head_slots, "
            "state_content_bytes, tokens_per_state, attention_chunk_size"
        ),
        f"{SPECS}:MambaSpec": (
            "block_size, shapes, dtypes, page_size_padded, mamba_type, mamba_cache_mode, num_speculative_blocks, "
            "num_prefill_checkpoint_blocks, prefill_checkpoint_alignment, num_heads, tokens_per_state, tp_replicated"
        ),
        f"{UTILS}:KVCacheBlock": (
            "block_id, ref_cnt, _block_hash, _block_hash_num_tokens, prev_free_block, next_free_block, is_null, pool"
        ),
        f"{REQUEST}.__init__": (
            "self, request_id, prompt_token_ids, sampling_params, pooling_params, client_index, arrival_time, "
            "prompt_embeds, prompt_is_token_ids, mm_features, lora_request, cache_salt, priority, trace_headers, "
            "block_hasher, resumable, session_id, reasoning_ended, reasoning_parser_kwargs, abort_immediately"
        ),
    },
    choices="scratch",
    follows_states=True,
    interval="config",
    retains_least=True,
    ratio_field="tokens_per_state",
    findings=OLDER.findings
    - {
        "014-second-full-group-not-cut",
        "015-replay-above-its-look-ahead",
        "026-failed-load-of-several-groups",
        "029-chunk-shorter-than-a-state-block",
        "049-next-item-of-a-draft-layer",
        "050-later-item-after-a-failed-load",
        "053-no-end-before-its-shortest",
        "072-state-before-a-gap-stays-held",
        "078-end-of-an-answer-is-stored",
        "091-stores-of-an-idle-engine-are-kept",
        "101-hit-past-its-state-ends-the-engine",
    }
    | {
        "016-look-ahead-kept-at-zero",
        "031-replay-an-alignment-too-low",
        "059-null-blocks-gone-over-once",
        "083-padding-longer-than-a-chunk",
        "076-room-kept-for-loads-too-small",
        "090-stores-stop-a-reset",
        "093-loads-of-another-connector-are-not-seen",
        "094-idle-engine-stores-without-end",
        "103-promotions-evict-each-other",
        "104-promoted-to-chunks-of-a-reset",
    },
    scheduler=SCHEDULER_RULES,
    additions=Additions(
        "0.27.1",
        (
            Mechanism(
                ("Scheduler._request_blocks_can_be_freed",),
                compared="lockstep, blocks that are freed when the steps that write them are over",
            ),
            Mechanism(
                (
                    "CacheConfig.prefix_cache_retention_interval",
                    "KVCacheCoordinator.reset_prefix_cache",
                ),
                compared="lockstep, what is cached of each request, and what stays",
            ),
            Mechanism(
                (
                    "HybridKVCacheCoordinator._align_cacheable",
                    "Scheduler._get_local_prefix_cache_hit",
                ),
                compared="lockstep, the length of every hit",
            ),
            Mechanism(
                (
                    "MambaManager._remove_blocks_in_range",
                    "MambaManager._relocate_speculative_block",
                    "BlockPool.is_block_writable",
                ),
                compared="lockstep, tables, references and the free queue",
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
                    "EncoderCacheManager.create_manager",
                    "Scheduler._ec_transfer_pending",
                ),
                not_compared="items are driven on 0.20.2 alone, and without one they change nothing",
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
                    "CircularBufferManager.get_num_common_prefix_blocks",
                    "KpoolTailManager",
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
                    "HiSparseResidentManager.add_local_computed_blocks",
                    "HiSparseResidentManager.adopt_resident_page",
                    "HiSparseResidentManager.allocate_external_computed_blocks",
                    "HiSparseResidentManager.allocate_new_blocks",
                    "HiSparseResidentManager.get_num_blocks_to_allocate",
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
                    "HiSparseResidentManager.cache_blocks",
                    "HiSparseSourceManager.allocate_new_blocks",
                    "_HiSparseAuxiliaryManager.__init__",
                    "_HiSparseAuxiliaryManager.get_num_common_prefix_blocks",
                ),
                not_driven="no model has layers of HiSparse",
            ),
            Mechanism(
                ("CacheConfig.enable_mamba_fine_grained_prefix_cache",),
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
                    "SingleTypeKVCacheManager.has_positionally_stable_blocks",
                    "MambaManager.has_positionally_stable_blocks",
                    "get_none_hash_seed",
                ),
                not_driven="vLLM's own connectors call them, and those of the gate are fakes",
            ),
            Mechanism(
                ("Scheduler._handle_failed_recving",),
                not_driven="the fake connectors name the blocks that failed to load, and never the requests",
            ),
            Mechanism(
                ("KVCacheCoordinator.emit_cached_block_events",),
                not_driven="no request asks for events of the blocks that it hits",
            ),
            Mechanism(
                ("Scheduler._free_encoder_input",),
                not_driven="items are driven on 0.20.2 alone",
            ),
            Mechanism(
                ("NewRequestData.prompt_len",),
                not_driven="an engine asks for them, and none runs",
            ),
            Mechanism(
                (
                    "SchedulerConfig.max_num_queued_reqs",
                    "SchedulerConfig.max_num_queued_tokens",
                ),
                not_driven="they keep their defaults, with which they change nothing",
            ),
            Mechanism(
                (
                    "_ensure_min_page_size",
                    "_get_kv_cache_bytes_per_block",
                    "_get_packed_kv_cache_groups",
                    "_get_per_layer_spec",
                    "_largest_divisor_at_most",
                    "_warn_if_unannotated_eagle_mamba",
                    "validate_kv_cache_layout",
                    "update_kv_cache_capacity",
                    "_annotate_eagle_groups",
                    "_get_kv_cache_groups_glm5_next",
                    "_glm5_next_tensor_layout",
                    "_is_deepseek_v4_eagle",
                    "_pp_balanced_mamba_group_count",
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
                ("dcp_world_size_for_kv_cache_spec",),
                not_compared="no case of a block manager has context parallelism, so it is always 1",
            ),
            Mechanism(
                (
                    "CacheConfig.kv_cache_layout",
                    "CacheConfig.use_kda_recoverssm",
                ),
                not_driven="they are of bytes and kernels",
            ),
            Mechanism(
                ("KVCacheCoordinator.get_replay_boundaries",),
                compared="lockstep, what is cached of each request, and what stays",
            ),
        ),
    ),
)
