"""vLLM 0.27.1: look-ups are counted by the scheduler. Its scheduler is not described yet."""

from __future__ import annotations

from attrs import evolve

from kvgate.adapters.releases.description import COORDINATOR, MANAGER, SPECS, UTILS, Additions
from kvgate.adapters.releases.v0_23_0 import RELEASE as OLDER

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
        "036-states-hit-past-attention",
        "048-item-of-a-victim-counts-as-computed",
        "049-next-item-of-a-draft-layer",
        "050-later-item-after-a-failed-load",
        "052-older-state-goes-last",
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
    | {
        "012-prompt-tail-that-serves-nobody",
    },
    scheduler=None,
    additions=Additions(reason="its scheduler is not driven: 0.33.0 lists what came since 0.23.0"),
)
