"""Finding 088: A chunk of which some blocks are stored counts as a hit for all of them."""

from __future__ import annotations

from typing import Any

from kvgate.findings.finding import Finding
from kvgate.kernel.difference import Divergence
from kvreference.attention import Kind


def _is_it(divergence: Divergence, engine: Any) -> bool:
    """What a load brings to a window is a part of a chunk that was left out when the chunk was stored."""
    if divergence.difference.statement != "KV-TIER-01" or not engine.memory.culprits:
        return False
    job, copy = engine.memory.culprits[0]
    is_window = engine.settings.geometry.groups[copy.group].kind is Kind.SLIDING_WINDOW
    return (
        is_window and engine.stage.blocks_per_chunk > 1 and (job.tier, copy.chunk, copy.part) in engine.memory.left_out
    )


FINDING = Finding(
    id="088-chunk-stored-in-part",
    rank=88,
    statement="KV-TIER-01",
    condition="chunks of several blocks, and a window that has left some of them",
    on=lambda _stage: False,
    explains_tiers=_is_it,
    live=False,
)
