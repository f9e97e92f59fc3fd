"""vLLM 0.20.2: a cap on the tokens of a step, compressed groups, a flag for the groups with a draft layer.

This is the release that is installed, and that the system ``stock`` is; its scheduler is the one that the others are
described against.
"""

from __future__ import annotations

from attrs import evolve

from kvgate.adapters.releases.description import (
    CONNECTOR,
    MANAGER,
    OUTPUTS,
    REQUEST,
    SCHEDULER,
    SCHEDULER_OUTPUT,
    SPECS,
    Additions,
    SchedulerRules,
)
from kvgate.adapters.releases.v0_19_1 import RELEASE as OLDER

SCHEDULER_RULES = SchedulerRules(
    signatures={
        f"{SCHEDULER}.__init__": (
            "self, vllm_config, kv_cache_config, structured_output_manager, block_size, hash_block_size, mm_registry, "
            "include_finished_set, log_stats"
        ),
        f"{SCHEDULER}.schedule": "self",
        f"{SCHEDULER}.update_from_output": "self, scheduler_output, model_runner_output",
        f"{SCHEDULER}.update_draft_token_ids": "self, draft_token_ids",
        f"{SCHEDULER}.add_request": "self, request",
        f"{SCHEDULER}.finish_requests": "self, request_ids, finished_status",
        f"{SCHEDULER}.reset_prefix_cache": "self, reset_running_requests, reset_connector",
        f"{SCHEDULER}.has_unfinished_requests": "self",
        "vllm.v1.core.sched.async_scheduler:AsyncScheduler.__init__": "self, args, kwargs",
        f"{SCHEDULER_OUTPUT}:SchedulerOutput": (
            "scheduled_new_reqs, scheduled_cached_reqs, num_scheduled_tokens, total_num_scheduled_tokens, "
            "scheduled_spec_decode_tokens, scheduled_encoder_inputs, num_common_prefix_blocks, finished_req_ids, "
            "free_encoder_mm_hashes, preempted_req_ids, has_structured_output_requests, "
            "pending_structured_output_tokens, num_invalid_spec_tokens, kv_connector_metadata, ec_connector_metadata, "
            "new_block_ids_to_zero"
        ),
        f"{SCHEDULER_OUTPUT}:NewRequestData": (
            "req_id, prompt_token_ids, mm_features, sampling_params, pooling_params, block_ids, num_computed_tokens, "
            "lora_request, prompt_embeds, prefill_token_ids"
        ),
        f"{SCHEDULER_OUTPUT}:CachedRequestData": (
            "req_ids, resumed_req_ids, new_token_ids, all_token_ids, new_block_ids, num_computed_tokens, "
            "num_output_tokens"
        ),
        f"{OUTPUTS}:ModelRunnerOutput": (
            "req_ids, req_id_to_index, sampled_token_ids, logprobs, prompt_logprobs_dict, pooler_output, "
            "kv_connector_output, ec_connector_output, num_nans_in_logits, cudagraph_stats"
        ),
        f"{OUTPUTS}:KVConnectorOutput": (
            "finished_sending, finished_recving, kv_connector_stats, kv_cache_events, kv_connector_worker_meta, "
            "invalid_block_ids, expected_finished_count"
        ),
        f"{OUTPUTS}:DraftTokenIds": "req_ids, draft_token_ids",
        "vllm.v1.engine:EngineCoreOutput": (
            "request_id, new_token_ids, new_logprobs, new_prompt_logprobs_tensors, pooling_output, finish_reason, "
            "stop_reason, events, kv_transfer_params, trace_headers, prefill_stats, routed_experts, num_nans_in_logits"
        ),
        f"{CONNECTOR}.__init__": "self, vllm_config, role, kv_cache_config",
        f"{CONNECTOR}.get_num_new_matched_tokens": "self, request, num_computed_tokens",
        f"{CONNECTOR}.update_state_after_alloc": "self, request, blocks, num_external_tokens",
        f"{CONNECTOR}.build_connector_meta": "self, scheduler_output",
        f"{CONNECTOR}.request_finished": "self, request, block_ids",
        f"{MANAGER}.pop_blocks_for_free": None,
    },
)

IF_IN_FULL = frozenset(
    {
        "041-session-keeps-a-stale-hash",
        "042-session-says-an-old-stop",
        "043-sessions-leave-no-room",
        "044-session-keeps-its-place",
        "045-drafts-after-a-part-count-as-computed",
        "046-adapters-of-one-name-share-blocks",
        "054-part-inside-a-state-block",
        "055-eviction-events-never-taken",
        "056-experts-of-hybrid-models",
        "057-experts-of-released-blocks",
        "058-next-item-cuts-a-whole-one",
        "070-experts-of-loaded-tokens",
    }
)
"""The findings of what is driven only where a scheduler is driven in full: sessions, adapters of one name, options."""

RELEASE = evolve(
    OLDER,
    version="0.20.2",
    wheels={},
    signatures={
        **OLDER.signatures,
        f"{MANAGER}.__init__": (
            "self, kv_cache_config, max_model_len, hash_block_size, max_num_batched_tokens, enable_caching, use_eagle, "
            "log_stats, enable_kv_cache_events, dcp_world_size, pcp_world_size, metrics_collector"
        ),
        f"{SPECS}:KVCacheGroupSpec": "layer_names, kv_cache_spec, is_eagle_group",
        f"{SPECS}:FullAttentionSpec": (
            "block_size, num_kv_heads, head_size, dtype, kv_quant_mode, page_size_padded, head_size_v, sliding_window, "
            "attention_chunk_size"
        ),
        f"{SPECS}:MLAAttentionSpec": (
            "block_size, num_kv_heads, head_size, dtype, kv_quant_mode, page_size_padded, head_size_v, sliding_window, "
            "attention_chunk_size, cache_dtype_str, alignment, compress_ratio, model_version"
        ),
        f"{SPECS}:SlidingWindowSpec": (
            "block_size, num_kv_heads, head_size, dtype, kv_quant_mode, page_size_padded, sliding_window, head_size_v"
        ),
        f"{SPECS}:SlidingWindowMLASpec": (
            "block_size, num_kv_heads, head_size, dtype, kv_quant_mode, page_size_padded, sliding_window, head_size_v, "
            "cache_dtype_str, alignment, compress_ratio, model_version"
        ),
        f"{SPECS}:ChunkedLocalAttentionSpec": (
            "block_size, num_kv_heads, head_size, dtype, kv_quant_mode, page_size_padded, attention_chunk_size"
        ),
        f"{REQUEST}.__init__": (
            "self, request_id, prompt_token_ids, sampling_params, pooling_params, client_index, arrival_time, "
            "prompt_embeds, mm_features, lora_request, cache_salt, priority, trace_headers, block_hasher, resumable, "
            "reasoning_ended, reasoning_parser_kwargs"
        ),
    },
    cap_parameter="max_num_batched_tokens",
    flags_drafts=True,
    ratio_field="compress_ratio",
    findings=frozenset(
        {
            "001-new-block-ids-never-drained",
            "002-gate-subtracts-skipped-blocks",
            "003-salt-collides-with-adapter-name",
            "004-media-forgotten-in-prompt-tail",
            "005-lookahead-verified-at-another-length",
            "006-aligned-before-the-drop",
            "007-events-span-null-blocks",
            "008-external-tokens-take-other-hits",
            "009-load-forgets-its-last-token",
            "010-lookahead-spreads-to-equal-groups",
            "014-second-full-group-not-cut",
            "020-preempted-in-its-step-stays-cached",
            "021-behind-a-failed-load-stays-cached",
            "022-given-up-while-in-flight",
            "023-parked-loads-leave-no-room",
            "024-refused-before-whoever-loaded",
            "025-aborted-load-never-reclaimed",
            "026-failed-load-of-several-groups",
            "027-oversized-request-blocks-the-queue",
            "028-window-left-while-in-flight",
            "029-chunk-shorter-than-a-state-block",
            "030-ends-without-its-blocks",
            "033-gate-counts-one-state-too-few",
            "034-window-released-before-a-failed-load",
            "035-next-item-has-no-room",
            "036-states-hit-past-attention",
            "037-fewer-drafts-end-the-process",
            "038-adapter-of-a-paused-request",
            "047-chunk-past-a-state",
            "048-item-of-a-victim-counts-as-computed",
            "049-next-item-of-a-draft-layer",
            "050-later-item-after-a-failed-load",
            "051-loaded-state-waits-for-a-step",
            "053-no-end-before-its-shortest",
            "060-computed-again-with-the-next-item",
            "061-sent-with-what-follows-the-end",
            "062-steps-after-a-failed-load-count",
            "063-load-fails-after-a-preemption",
            "064-failed-load-sets-back-another",
            "066-sharer-of-a-failed-load-stays-cached",
            "067-events-of-embedded-prompts",
            "068-item-as-long-as-a-step",
            "069-steps-after-a-part-count",
        }
    )
    | IF_IN_FULL,
    scheduler=SCHEDULER_RULES,
    additions=Additions(reason="the first release whose scheduler is driven: others are described against it"),
)
