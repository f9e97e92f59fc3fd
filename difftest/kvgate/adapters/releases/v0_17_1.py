"""vLLM 0.17.1: as 0.16.0."""

from __future__ import annotations

from attrs import evolve

from kvgate.adapters.releases.description import MANAGER, REQUEST, Additions
from kvgate.adapters.releases.v0_16_0 import RELEASE as OLDER

RELEASE = evolve(
    OLDER,
    version="0.17.1",
    wheels={
        "aarch64": "0ab962b7d7e8026b0a8da021f8424ee5914c91bae8d15428cf5a865c8e108ee1",
        "x86_64": "b0c113121f3981bd1c20c30ae7058b504f94a97b5e62cea900f9d9baeb484733",
    },
    signatures={
        **OLDER.signatures,
        f"{MANAGER}.new_step_starts": "self",
        f"{REQUEST}.__init__": (
            "self, request_id, prompt_token_ids, sampling_params, pooling_params, client_index, arrival_time, "
            "prompt_embeds, mm_features, lora_request, cache_salt, priority, trace_headers, block_hasher, resumable, "
            "reasoning_ended"
        ),
    },
    additions=Additions(reason="its scheduler is not driven"),
)
