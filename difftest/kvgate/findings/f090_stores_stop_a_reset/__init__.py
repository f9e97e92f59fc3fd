"""Finding 090: A reset that preempts raises while SimpleCPUOffloadConnector stores."""

from __future__ import annotations

from typing import Any

from kvgate.findings.finding import Finding
from kvgate.findings.tier_state import blocks_held
from kvgate.kernel.difference import Divergence


def _is_it(divergence: Divergence, engine: Any) -> bool:
    """Every block that is still held is one that stores read, and is held by no more than these."""
    simple = engine.connector.simple
    if simple is None or not divergence.difference.subject.startswith("RuntimeError in reset_prefix_cache"):
        return False
    held = blocks_held(engine)
    return bool(held) and held <= simple.blocks_stored()


FINDING = Finding(
    id="090-stores-stop-a-reset",
    rank=90,
    statement="KV-SYS-01",
    condition="a reset that preempts while SimpleCPUOffloadConnector stores",
    on=lambda _stage: False,
    explains_tiers=_is_it,
    live=False,
)
