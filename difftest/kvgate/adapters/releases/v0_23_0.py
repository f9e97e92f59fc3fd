"""vLLM 0.23.0: a retention interval, and scratch first in the free queue for groups with a window."""

from __future__ import annotations

from attrs import evolve

from kvgate.adapters.releases.description import MANAGER, Additions, Mechanism
from kvgate.adapters.releases.v0_22_1 import RELEASE as OLDER
from kvgate.adapters.releases.v0_22_1 import SCHEDULER_RULES as OLDER_SCHEDULER

SCHEDULER_RULES = evolve(
    OLDER_SCHEDULER,
    lookahead_when_admitted=True,
    resets_no_connector=True,
)

RELEASE = evolve(
    OLDER,
    version="0.23.0",
    wheels={
        "aarch64": "ae800b65a6374544c879b4ca824d9956cf9eddb5d591e0275ddfec05904cd49f",
        "x86_64": "eaed69109c3d0416a1c4cb43929512516af3f6504c2e0b32a20321195fa234f7",
    },
    signatures={
        **OLDER.signatures,
        f"{MANAGER}.__init__": (
            "self, kv_cache_config, max_model_len, scheduler_block_size, hash_block_size, max_num_batched_tokens, "
            "enable_caching, use_eagle, log_stats, enable_kv_cache_events, dcp_world_size, pcp_world_size, "
            "metrics_collector"
        ),
        f"{MANAGER}.allocate_slots": (
            "self, request, num_new_tokens, num_new_computed_tokens, new_computed_blocks, num_lookahead_tokens, "
            "num_external_computed_tokens, delay_cache_blocks, num_encoder_tokens, full_sequence_must_fit, "
            "reserved_blocks"
        ),
    },
    choices="scratch-of-windows",
    interval="environment",
    takes_alignment=True,
    findings=OLDER.findings
    - {
        "011-mask-omits-look-ahead",
        "035-next-item-has-no-room",
        "037-fewer-drafts-end-the-process",
        "038-adapter-of-a-paused-request",
        "079-rejected-stores-of-blocks-left",
    }
    | {
        "015-replay-above-its-look-ahead",
        "052-older-state-goes-last",
        "093-loads-of-another-connector-are-not-seen",
        "102-hit-of-a-whole-prompt-brings-a-later-state",
        "105-reset-leaves-chunks-unready",
    },
    scheduler=SCHEDULER_RULES,
    additions=Additions(
        "0.22.1",
        (
            Mechanism(
                (
                    "SingleTypeKVCacheManager.reachable_block_mask",
                    "SlidingWindowManager.reachable_block_mask",
                    "_validate_prefix_cache_retention_interval",
                ),
                compared="lockstep, models with +masked and +retention",
            ),
            Mechanism(
                ("FreeKVCacheBlockQueue.prepend_n", "SlidingWindowManager.free"),
                compared="lockstep, models with +scratch",
            ),
            Mechanism(
                ("Scheduler._inflight_prefill_reserved_blocks", "Scheduler._request_remaining_blocks"),
                compared="lockstep is given what is reserved, and progress is checked",
            ),
            Mechanism(
                ("SlidingWindowManager._contiguous_blocks_for_hit",),
                compared="lockstep, every look-up in a window",
            ),
            Mechanism(
                ("SpecGroup",),
                compared="lockstep, every look-up in several groups",
            ),
            Mechanism(
                ("register_all_kvcache_specs",),
                not_compared="it enters the classes of managers in a table, before the first manager is built",
            ),
            Mechanism(
                ("_bucket_layers_by_page_size",),
                not_driven="it makes groups of layers, and a case gives the groups",
            ),
        ),
    ),
)
