"""Hits that are lost: what is cached, or should be, serves nobody."""

from __future__ import annotations

from kvgate.corpus.bug import Bug, Kind, Trial
from kvgate.corpus.bugs.groups import full, of, window
from kvgate.corpus.scenario import Blocks, ended, tokens
from kvgate.mutants.corpus import hits
from kvgate.mutants.plugin import reachable
from kvreference.operations import Arrive, LookUp
from kvreference.settings import Settings

_A = 0
"""The first token of the request that fills the cache."""
_OTHER = 1_000_000
"""The first token of what differs from it."""

_SPIRAL = Blocks(
    Settings(
        of(full(eagle=True), window(64, eagle=True), window(128, eagle=True)), 120, tokens_max=512, chunk_tokens=320
    ),
    (
        *ended(0, tokens(_A, 320), 320),
        Arrive(1, (*tokens(_A, 320), *tokens(_OTHER, 40))),
        LookUp(1),
    ),
)

_MASK = Blocks(
    Settings(
        of(full(256), window(128, 64, eagle=True)),
        200,
        tokens_max=8192,
        chunk_tokens=2048,
        drafts_max=1,
        retention_interval_tokens=256,
        scratch_first=True,
    ),
    (
        *ended(0, tokens(_A, 4096), 2048),
        Arrive(1, (*tokens(_A, 4096), *tokens(_OTHER, 300))),
        LookUp(1),
    ),
)

BUGS = (
    Bug(
        1,
        "eagle-drop-fixed-point-spiral",
        Kind.ZERO_HIT,
        "https://github.com/vllm-project/vllm/pull/33270",
        "With draft layers in several groups, each round of the look-up drops a block again until nothing is hit.",
        "0.14.0 to 0.19",
        (
            Trial(
                "stock",
                _SPIRAL,
                ("KV-OP-01",),
                (hits.look_ahead_dropped_at_every_visit,),
                "0.20.2 remembers whose drop it has verified; the loop without that is put back",
            ),
        ),
    ),
    Bug(
        2,
        "swa-mask-omits-eagle-lookahead",
        Kind.ZERO_HIT,
        "https://github.com/vllm-project/vllm/pull/44082",
        "The blocks that are kept of a window lack the look-ahead block that its own look-up asks for.",
        "0.21 and 0.22",
        (
            Trial(
                "retention",
                _MASK,
                ("KV-OP-15",),
                (reachable.mask_without_look_ahead,),
                "0.20.2 keeps every block; the plug-in keeps a mask of them, from which the shift is taken",
            ),
        ),
    ),
)
