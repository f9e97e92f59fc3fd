"""Which of vLLM's own tests are run, and which may fail with something switched on: each with its reason."""

from __future__ import annotations

FOLDER = "tests/v1/core"

RUN = {
    "test_prefix_caching": "the block manager and its caching",
    "test_single_type_kv_cache_manager": "the managers of single groups",
    "test_kv_cache_utils": "hashes, the free queue, and how layers become groups",
    "test_kv_cache_metrics": "the metrics of the block pool",
    "test_kv_sharing": "layers that share a cache",
    "test_scheduler": "the scheduler",
    "test_async_scheduler": "the scheduler that does not wait for the worker",
    "test_output": "what the scheduler sends the worker",
    "test_encoder_cache_manager": "the scheduler's cache of pictures",
    "test_repetition_detection": "when the scheduler stops a request",
}
"""Of vLLM 0.20.2."""
BLAST = "test_priority_scheduler_random"
"""20,000 steps of a scheduler with priorities: the short ones, in which requests are preempted, are run with pins. The
other six are the same with a pool that is never full; they take four minutes."""
NOT_RUN = {
    "test_scheduler_e2e": "needs the weights of a model",
    "test_reset_prefix_cache_e2e": "needs the weights of a model",
}

_MIDDLE = "hits in the middle of a prompt, of which retention keeps the last boundary alone"
DENSE = {
    "test_prefix_caching::test_prefill_hybrid_model": _MIDDLE,
    "test_prefix_caching::test_prefill_hybrid_model_eagle": f"{_MIDDLE}, with a draft layer",
    "test_prefix_caching::test_different_block_size": f"{_MIDDLE}, in blocks of two sizes",
}
"""Tests that assert a dense cache, which retention is there to avoid."""

_FREE = "that every unheld block is in the free queue; pinned blocks wait apart"
ALL_FREE = {
    "test_prefix_caching::test_prefill[sha256]": _FREE,
    "test_prefix_caching::test_prefill[sha256_cbor]": _FREE,
    "test_prefix_caching::test_prefill_plp": _FREE,
    "test_prefix_caching::test_evict": _FREE,
    "test_prefix_caching::test_prefill_not_enough_free_blocks_with_computed_blocks": _FREE,
    "test_scheduler::test_kv_connector_basic[False]": _FREE,
    "test_scheduler::test_kv_connector_basic[True]": _FREE,
    "test_scheduler::test_kv_connector_unable_to_allocate[False-None]": _FREE,
    "test_scheduler::test_kv_connector_unable_to_allocate[True-ec_consumer]": _FREE,
    "test_scheduler::test_kv_connector_handles_preemption[False-None-False]": _FREE,
    "test_scheduler::test_kv_connector_handles_preemption[False-None-True]": _FREE,
    "test_scheduler::test_kv_connector_handles_preemption[True-ec_consumer-False]": _FREE,
    "test_scheduler::test_kv_connector_handles_preemption[True-ec_consumer-True]": _FREE,
    "test_scheduler::test_memory_leak": _FREE,
    "test_scheduler::test_ec_connector_unable_to_allocate[False]": _FREE,
    "test_scheduler::test_ec_connector_unable_to_allocate[True]": _FREE,
}
"""Tests that assert, when all requests are finished, how many blocks are in the free queue."""

_MAMBA = "0.33 leaves out states of Mamba layers as well; the plug-in leaves out blocks of sliding windows alone"
_JUNCTION = "0.33 also keeps where prompts of several requests part, and its look-up reports where that is"
_MASK = "asks a function of 0.33's managers; the plug-in's is another (``reachable.Reach``), with tests of its own"
NEWEST = {
    "test_zero_retention_is_ignored_for_full_attention": "reads an attribute of 0.33's coordinator",
    "test_hybrid_local_kv_retention_mtp_reuses_latest_boundary": "with a draft layer 0.33 goes back by a whole aligned "
    "unit, 0.20.2 by a block: the last boundary is another",
    "test_hybrid_mamba_retention_mtp_resend_of_aligned_prompt": _MAMBA,
    "test_hybrid_mamba_retention_lookahead_keeps_last_prompt_boundary": _MAMBA,
    "test_mamba_reachable_block_mask_sparsifies_retention": _MAMBA,
    "test_mamba_shared_prefix_reuse_under_zero_retention": _MAMBA,
    "test_swa_shared_prefix_reuse_under_zero_retention[False]": _JUNCTION,
    "test_swa_shared_prefix_reuse_under_zero_retention[True]": _JUNCTION,
    "test_swa_reachable_block_mask_final_partial_segment": _MASK,
    "test_swa_reachable_block_mask_pins_shared_prefix": f"{_MASK}; {_JUNCTION}",
    "test_swa_reachable_block_mask_with_dcp_scaling": f"{_MASK}; context parallelism",
    "test_swa_reachable_block_mask_sub_block_alignment_is_dense[16-1-24]": _MASK,
    "test_swa_reachable_block_mask_sub_block_alignment_is_dense[16-3-64]": _MASK,
}
"""Tests of the features in vLLM 0.33 that do not pass on 0.20.2 with the plug-in."""

STAND_INS = {
    "torch_npu": "a mock: it cannot be imported without CANN's libraries",
    "torchair": "a mock: it comes with torch_npu and compiles graphs",
    "acl": "a mock: CANN's own bindings",
    "triton.language.extra.cann": "a mock: what triton-ascend adds to Triton's language",
    "Triton's compiler": "Triton's own interpreter (`TRITON_INTERPRET=1`)",
    "the device's half of a buffer": "the host's half: on a CPU both are the same memory",
}
"""What the unit tests of vLLM-Ascend need that cannot be had without an NPU, and what stands in for it."""

RUN_ON_NEWEST = (
    *("test_prefix_caching", "test_single_type_kv_cache_manager", "test_kv_cache_utils", "test_kv_cache_metrics"),
    *("test_kv_sharing", "test_output", "test_async_scheduler", "test_deferred_block_free"),
    *("test_swa_inflight_window_free", "test_prefix_replay", "test_mamba_align_chunk_split"),
)
"""Of vLLM 0.33.0, on it. Its ``test_scheduler`` and what it plans memory by are not run."""
ALL_FREE_ON_NEWEST = {
    **dict.fromkeys(("test_prefill[sha256]", "test_prefill[sha256_cbor]", "test_prefill_plp", "test_evict"), _FREE),
    "test_prefill_not_enough_free_blocks_with_computed_blocks": _FREE,
    "test_swa_free_split_keeps_cached_tail_ahead_of_scratch": _FREE,
}
"""Of its tests of prefix caching, those that assert what ``ALL_FREE`` does."""
HISPARSE = {
    "test_connector_completes_partial_prefix_without_importing_missing_host_kv",
    "test_device_eviction_keeps_host_prefix",
    "test_hisparse_cleanup_publishes_only_finalized_terminal_pages",
    "test_hisparse_events_report_host_and_device_placement",
    "test_hisparse_finished_request_leaves_free_copies",
    "test_hisparse_host_backed_request_accepts_local_prefix_hit",
    "test_hisparse_host_exhaustion_defers_allocation",
    "test_hisparse_host_prefix_can_be_completed_by_indexer_offload",
    "test_hisparse_indexer_offload_is_capped_by_missing_host_prefix",
    "test_hisparse_keeps_resident_pages_until_hot_buffer_is_allocated",
    "test_hisparse_materialization_respects_per_step_spill_budget",
    "test_hisparse_materializes_prefix_without_allocating_hot_blocks",
    "test_hisparse_preempted_prefill_resumes_from_durable_prefix",
    "test_hisparse_prefill_reads_host_once_it_fills_admission_window",
    "test_hisparse_prefix_hit_adopts_gpu_shadow_pages",
    "test_hisparse_prefix_hit_under_pressure_adopts_surviving_copies",
    "test_hisparse_recomputation_does_not_complete_failed_host_import",
    "test_hisparse_reset_prefix_cache_drops_copies",
    "test_hisparse_reused_copy_is_not_adopted",
    "test_hisparse_terminal_prefix_waits_for_all_workers_and_preserves_identity",
    "test_nixl_hisparse_full_block_import_keeps_a_writable_tail",
}
"""Its tests that build a block manager with HiSparse, with which pins are rejected."""
