"""Finding 092: A store of SimpleCPUOffloadConnector does not wait for the step that writes its blocks."""

from __future__ import annotations

from typing import Any

from kvgate.findings.finding import Finding
from kvgate.kernel.difference import Divergence


def _is_it(divergence: Divergence, engine: Any) -> bool:
    """A step that may not have ended writes a block that a store reads."""
    difference = divergence.difference
    is_early = difference.statement == "KV-TIER-04" and difference.subject == "a block that a store reads at once"
    return is_early and engine.connector.simple is not None


FINDING = Finding(
    id="092-stores-wait-for-no-step",
    rank=92,
    statement="KV-TIER-04",
    condition="SimpleCPUOffloadConnector, and a store next to a step that writes its block",
    on=lambda _stage: False,
    explains_tiers=_is_it,
    live=False,
)
