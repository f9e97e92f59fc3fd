"""Finding 091: An idle engine keeps the blocks that SimpleCPUOffloadConnector stored last."""

from __future__ import annotations

from typing import Any

from kvgate.findings.finding import Finding
from kvgate.findings.tier_state import blocks_held
from kvgate.kernel.difference import Divergence


def _is_it(divergence: Divergence, engine: Any) -> bool:
    """No job is under way, the engine asks for no step, and every block that is held is one that a store has read."""
    simple = engine.connector.simple
    if simple is None or divergence.difference.statement not in ("KV-LEAK-01", "KV-TIER-05"):
        return False
    held = blocks_held(engine)
    ended = not engine.memory.jobs and not engine.scheduler.has_requests()
    return ended and bool(held) and held == simple.blocks_stored()


FINDING = Finding(
    id="091-stores-of-an-idle-engine-are-kept",
    rank=91,
    statement="KV-LEAK-01",
    condition="the last stores of SimpleCPUOffloadConnector end when no request is left",
    on=lambda _stage: False,
    explains_tiers=_is_it,
    live=False,
)
