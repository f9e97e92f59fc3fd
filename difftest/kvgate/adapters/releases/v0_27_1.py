"""vLLM 0.27.1: look-ups are counted where requests are admitted, what steps in flight read stays held, and a retention
interval decides about states too."""

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
    Mechanism,
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
    pads_next_to_others=True,
    zeroes_loaded=False,
    reports_preempted_later=True,
    frees_late=True,
    drops_answers=True,
    stops_at_junctions=True,
    ends_before_an_answer=True,
    ends_with_computed=True,
    hits_past_states=True,
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
        "077-load-next-to-stores",
        "105-reset-leaves-chunks-unready",
        "086-jobs-named-after-a-reset",
        "089-stores-that-a-reset-leaves",
        "092-stores-wait-for-no-step",
        "093-loads-of-another-connector-are-not-seen",
        "096-block-stored-twice",
        "097-loads-wait-for-no-step",
        "102-hit-of-a-whole-prompt-brings-a-later-state",
    }
    | {
        "012-prompt-tail-that-serves-nobody",
        "087-reloaded-in-the-step-after-a-reset",
        "101-hit-past-its-state-ends-the-engine",
        "071-freed-late-counts-as-shared",
        "072-state-before-a-gap-stays-held",
        "078-end-of-an-answer-is-stored",
        "099-reset-frees-chunks-under-a-store",
    },
    pins_junctions=True,
    retains_states=True,
    follows_states=False,
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
                    "Scheduler._drain_deferred_frees",
                ),
                compared="lockstep, blocks that are freed when the steps that write them are over",
            ),
            Mechanism(
                (
                    "BlockHashToBlockMap.contain",
                    "BlockPool._build_block_stored_event",
                    "BlockPool._emit_block_removed_events",
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
                ("MambaManager.reachable_block_mask",),
                compared="lockstep, what is cached of each request, and what stays",
            ),
            Mechanism(
                (
                    "KVCacheManager.prefix_cache_lookup_enabled",
                    "HybridKVCacheCoordinator._cache_hit_alignment_tokens",
                    "resolve_block_hashes",
                ),
                compared="lockstep, the length of every hit",
            ),
            Mechanism(
                (
                    "SingleTypeKVCacheManager.add_local_computed_blocks",
                    "SingleTypeKVCacheManager.allocate_external_computed_blocks",
                    "SingleTypeKVCacheManager._remove_blocks_in_range",
                ),
                compared="lockstep, tables, references and the free queue",
            ),
            Mechanism(
                ("Scheduler._get_new_block_ids_to_zero",),
                compared="the blocks that each step sends to be zeroed",
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
                (
                    "SingleTypeKVCacheManager._has_partial_local_hit",
                    "KVCacheManager.take_kv_cache_block_copies",
                    "SingleTypeKVCacheManager.take_pending_cow_copies",
                ),
                not_compared="no hit of these models ends inside a block, so they are false or empty",
            ),
            Mechanism(
                (
                    "KVCacheManager.take_partial_tail_offloads",
                    "SingleTypeKVCacheManager.take_pending_partial_tail_offloads",
                ),
                not_compared="the fake connectors take no states at boundaries",
            ),
            Mechanism(
                ("EncoderCacheManager.get_manager_metadata",),
                not_compared="items are driven on 0.20.2 alone, and without one they change nothing",
            ),
            Mechanism(
                ("KVCacheManager.estimate_cached_tokens",),
                not_compared="they report, and decide nothing",
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
                ("KVCacheManager.get_computed_blocks_for_connector",),
                not_driven="no case with a connector has cached states, and without them it looks up as ever",
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
                ("CacheConfig.prefix_match_unit",),
                not_driven="no case has hits inside blocks of states, or checkpoints of shared prefixes",
            ),
            Mechanism(
                (
                    "FreeKVCacheBlockQueue.iter_blocks_after",
                    "HybridKVCacheCoordinator.find_longest_cache_hit_per_group",
                    "KVCacheManager.truncate_computed_blocks",
                ),
                not_driven="vLLM's own connectors call them, and those of the gate are fakes",
            ),
            Mechanism(
                (
                    "KVCacheManager.record_blocks_for_zeroing",
                    "SingleTypeKVCacheManager.records_new_block_ids",
                ),
                not_driven="no case has both a load that fails and blocks to be zeroed",
            ),
            Mechanism(
                ("BlockPool.emit_cached_block_events",),
                not_driven="no request asks for events of the blocks that it hits",
            ),
            Mechanism(
                (
                    "Scheduler._make_scheduled_encoder_input_stats",
                    "ScheduledEncoderInputStats",
                ),
                not_driven="items are driven on 0.20.2 alone",
            ),
            Mechanism(
                (
                    "SchedulerInterface.get_ec_connector",
                    "SchedulerInterface.get_kv_cache_usage",
                    "SchedulerInterface.get_kv_event_publisher_config",
                    "Scheduler.get_ec_connector",
                    "Scheduler.get_kv_cache_usage",
                    "Scheduler.get_kv_event_publisher_config",
                    "Scheduler.has_requests",
                ),
                not_driven="an engine asks for them, and none runs",
            ),
            Mechanism(
                (
                    "SchedulerConfig.prefill_schedule_interval",
                    "SchedulerConfig.watermark",
                ),
                not_driven="they keep their defaults, with which they change nothing",
            ),
            Mechanism(
                (
                    "_promote_local_kv_cache_specs",
                    "_try_get_full_allocation_fallback_groups",
                    "get_kv_cache_capacity",
                    "_get_kv_cache_config_packed",
                    "_get_packed_kv_cache_layout",
                    "_use_packed_kv_cache_config",
                ),
                not_driven="they make groups of layers, and size memory: a case gives the groups and the blocks",
            ),
            Mechanism(
                (
                    "CacheConfig.kv_cache_max_concurrency",
                    "CacheConfig.kv_cache_size_tokens",
                    "CacheConfig.skip_page_size_padded",
                    "CacheConfig.use_replayssm",
                    "CacheConfig.replayssm_buffer_len",
                ),
                not_driven="they are of bytes and kernels",
            ),
            Mechanism(
                ("KVCacheManager.get_zeroing_block_ids_in_range",),
                not_driven="no case has both a load and blocks to be zeroed",
            ),
        ),
    ),
)
