"""vLLM 0.21.0: the gate is inside the call for slots."""

from __future__ import annotations

from attrs import evolve

from kvgate.adapters.releases.description import MANAGER, OUTPUTS, REQUEST, SCHEDULER_OUTPUT, Additions
from kvgate.adapters.releases.v0_20_2 import IF_IN_FULL
from kvgate.adapters.releases.v0_20_2 import RELEASE as OLDER
from kvgate.adapters.releases.v0_20_2 import SCHEDULER_RULES as OLDER_SCHEDULER

SCHEDULER_RULES = evolve(
    OLDER_SCHEDULER,
    in_full=False,
    signatures={
        **OLDER_SCHEDULER.signatures,
        f"{SCHEDULER_OUTPUT}:NewRequestData": (
            "req_id, prompt_token_ids, mm_features, sampling_params, pooling_params, block_ids, num_computed_tokens, "
            "lora_request, prompt_embeds, prompt_is_token_ids, prefill_token_ids"
        ),
        f"{OUTPUTS}:ModelRunnerOutput": (
            "req_ids, req_id_to_index, sampled_token_ids, logprobs, prompt_logprobs_dict, pooler_output, "
            "kv_connector_output, ec_connector_output, num_nans_in_logits, routed_experts_dict, cudagraph_stats"
        ),
    },
)

RELEASE = evolve(
    OLDER,
    version="0.21.0",
    wheels={
        "aarch64": "9282b2f62b60524cf4935d7e297871aa5161e15dc876fbba9f42799ac3bee5bf",
        "x86_64": "b3517d55b9a18d984d24e946fef5fc07410e27e96508343433de188904e0c428",
    },
    signatures={
        **OLDER.signatures,
        f"{MANAGER}.can_fit_full_sequence": None,
        f"{MANAGER}.allocate_slots": (
            "self, request, num_new_tokens, num_new_computed_tokens, new_computed_blocks, num_lookahead_tokens, "
            "num_external_computed_tokens, delay_cache_blocks, num_encoder_tokens, full_sequence_must_fit"
        ),
        f"{REQUEST}.__init__": (
            "self, request_id, prompt_token_ids, sampling_params, pooling_params, client_index, arrival_time, "
            "prompt_embeds, prompt_is_token_ids, mm_features, lora_request, cache_salt, priority, trace_headers, "
            "block_hasher, resumable, reasoning_ended, reasoning_parser_kwargs, abort_immediately"
        ),
    },
    gate="within",
    findings=(OLDER.findings - IF_IN_FULL)
    | {
        "077-load-next-to-stores",
        "079-rejected-stores-of-blocks-left",
        "088-chunk-stored-in-part",
        "089-stores-that-a-reset-leaves",
        "090-stores-stop-a-reset",
        "091-stores-of-an-idle-engine-are-kept",
        "092-stores-wait-for-no-step",
        "096-block-stored-twice",
        "097-loads-wait-for-no-step",
        "098-idle-engine-keeps-an-aborted-load",
        "109-idle-engine-keeps-its-last-stores",
    },
    scheduler=SCHEDULER_RULES,
    additions=Additions("0.20.2", reason="it adds no name"),
)
