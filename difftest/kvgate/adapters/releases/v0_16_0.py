"""vLLM 0.16.0: no admission gate, no compressed groups, a draft layer in all groups or in none."""

from __future__ import annotations

from kvgate.adapters.releases.description import COORDINATOR, MANAGER, REQUEST, SPECS, UTILS, Additions, Release

RELEASE = Release(
    version="0.16.0",
    wheels={
        "aarch64": "aa11dd7ccb929d182a1acdc6093921f1e82d1c555fd7af29550362f915f9d774",
        "x86_64": "26f7443d829703f87b7c583c51eec7a7033e382df779f475f28adbf5d5c055f0",
    },
    signatures={
        f"{MANAGER}.__init__": (
            "self, kv_cache_config, max_model_len, hash_block_size, enable_caching, use_eagle, log_stats, "
            "enable_kv_cache_events, dcp_world_size, pcp_world_size, metrics_collector"
        ),
        f"{MANAGER}.get_computed_blocks": "self, request",
        f"{MANAGER}.can_fit_full_sequence": None,
        f"{MANAGER}.allocate_slots": (
            "self, request, num_new_tokens, num_new_computed_tokens, new_computed_blocks, num_lookahead_tokens, "
            "num_external_computed_tokens, delay_cache_blocks, num_encoder_tokens"
        ),
        f"{MANAGER}.free": "self, request",
        f"{MANAGER}.cache_blocks": "self, request, num_computed_tokens",
        f"{MANAGER}.get_block_ids": "self, request_id",
        f"{MANAGER}.new_step_starts": None,
        f"{MANAGER}.remove_skipped_blocks": "self, request_id, total_computed_tokens",
        f"{MANAGER}.evict_blocks": "self, block_ids",
        f"{MANAGER}.reset_prefix_cache": "self",
        f"{MANAGER}.get_num_common_prefix_blocks": "self, running_request_id",
        f"{MANAGER}.take_events": "self",
        f"{MANAGER}.make_prefix_cache_stats": "self",
        f"{UTILS}:get_request_block_hasher": "block_size, caching_hash_fn",
        f"{UTILS}:init_none_hash": "hash_fn",
        f"{UTILS}:FreeKVCacheBlockQueue.__init__": "self, blocks",
        f"{REQUEST}.append_output_token_ids": "self, token_ids",
        f"{SPECS}:KVCacheConfig": "num_blocks, kv_cache_tensors, kv_cache_groups",
        f"{SPECS}:KVCacheGroupSpec": "layer_names, kv_cache_spec",
        f"{SPECS}:FullAttentionSpec": (
            "block_size, num_kv_heads, head_size, dtype, page_size_padded, head_size_v, sliding_window, "
            "attention_chunk_size"
        ),
        f"{SPECS}:MLAAttentionSpec": (
            "block_size, num_kv_heads, head_size, dtype, page_size_padded, head_size_v, sliding_window, "
            "attention_chunk_size, cache_dtype_str"
        ),
        f"{SPECS}:SlidingWindowSpec": "block_size, num_kv_heads, head_size, dtype, page_size_padded, sliding_window",
        f"{SPECS}:SlidingWindowMLASpec": None,
        f"{SPECS}:ChunkedLocalAttentionSpec": (
            "block_size, num_kv_heads, head_size, dtype, page_size_padded, attention_chunk_size"
        ),
        f"{SPECS}:MambaSpec": (
            "block_size, shapes, dtypes, page_size_padded, mamba_type, mamba_cache_mode, num_speculative_blocks"
        ),
        f"{MANAGER}.record_prefix_cache_stats": None,
        f"{COORDINATOR}.remove_skipped_blocks": "self, request_id, total_computed_tokens",
        f"{UTILS}:KVCacheBlock": "block_id, ref_cnt, _block_hash, prev_free_block, next_free_block, is_null",
        f"{REQUEST}.__init__": (
            "self, request_id, prompt_token_ids, sampling_params, pooling_params, eos_token_id, client_index, "
            "arrival_time, prompt_embeds, mm_features, lora_request, cache_salt, priority, trace_headers, "
            "block_hasher, resumable, reasoning_ended"
        ),
    },
    cap_parameter=None,
    gate=None,
    flags_drafts=False,
    ratio_field=None,
    additions=Additions(reason="its scheduler is not driven"),
)
