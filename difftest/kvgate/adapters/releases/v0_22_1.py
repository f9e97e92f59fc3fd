"""vLLM 0.22.1: blocks that no hit can read are left out of the cache."""

from __future__ import annotations

from attrs import evolve

from kvgate.adapters.releases.description import OUTPUTS, Additions, Mechanism
from kvgate.adapters.releases.v0_21_0 import RELEASE as OLDER
from kvgate.adapters.releases.v0_21_0 import SCHEDULER_RULES as OLDER_SCHEDULER

SCHEDULER_RULES = evolve(
    OLDER_SCHEDULER,
    signatures={
        **OLDER_SCHEDULER.signatures,
        f"{OUTPUTS}:ModelRunnerOutput": (
            "req_ids, req_id_to_index, sampled_token_ids, logprobs, prompt_logprobs_dict, pooler_output, "
            "kv_connector_output, ec_connector_output, num_nans_in_logits, cudagraph_stats, routed_experts"
        ),
    },
    announces_requests=True,
)

RELEASE = evolve(
    OLDER,
    version="0.22.1",
    wheels={
        "aarch64": "05c74a8115f47a0bd228b823d2952c9219b02b7891094606b3187acdc9706740",
        "x86_64": "3f0919213a01fdf64427b84d73738596a34e5075d26c87d5ebca550167d8d888",
    },
    masks=True,
    findings=OLDER.findings - {"098-idle-engine-keeps-an-aborted-load", "109-idle-engine-keeps-its-last-stores"}
    | {
        "011-mask-omits-look-ahead",
        "084-second-reset-before-a-step",
        "085-stale-window-blocks-after-a-reset",
        "086-jobs-named-after-a-reset",
    },
    scheduler=SCHEDULER_RULES,
    additions=Additions(
        "0.21.0",
        (
            Mechanism(
                ("SlidingWindowManager._cache_block_mask", "HybridKVCacheCoordinator.cache_blocks"),
                compared="lockstep, models with +masked",
            ),
            Mechanism(
                ("SingleTypeKVCacheManager._cache_block_mask",),
                not_driven="of groups without a window, none has smaller blocks than the alignment",
            ),
        ),
    ),
)
