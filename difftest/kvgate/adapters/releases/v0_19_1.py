"""vLLM 0.19.1: a gate asks whether a whole request fits before it gets slots."""

from __future__ import annotations

from attrs import evolve

from kvgate.adapters.releases.description import MANAGER, Additions
from kvgate.adapters.releases.v0_18_1 import RELEASE as OLDER

RELEASE = evolve(
    OLDER,
    version="0.19.1",
    wheels={
        "aarch64": "2360968773f872ef9432da667b2c25d370ea61a06535a032195847cfd73eeac3",
        "x86_64": "11e6540ca9d7098e62cbcb738ff091f58dc76efcaa92a9195cf67cd2b678fa2a",
    },
    signatures={
        **OLDER.signatures,
        f"{MANAGER}.can_fit_full_sequence": (
            "self, request, num_new_computed_tokens, new_computed_blocks, num_external_computed_tokens, "
            "num_encoder_tokens"
        ),
    },
    gate="before",
    additions=Additions(reason="its scheduler is not driven"),
)
