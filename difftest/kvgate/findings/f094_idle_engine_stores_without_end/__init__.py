"""Finding 094: With lazy stores an idle engine stores the same blocks again and again."""

from __future__ import annotations

from typing import Any

from kvgate.findings.finding import Finding
from kvgate.kernel.difference import Divergence


def _is_it(divergence: Divergence, engine: Any) -> bool:
    """The engine stores more blocks than it has since it has no requests, and the tier holds fewer than the device."""
    stage = engine.stage
    is_spinning = divergence.difference.subject == "an engine without requests, which stores"
    return (
        is_spinning and engine.connector.simple is not None and stage.is_lazy and stage.chunks < engine.settings.blocks
    )


FINDING = Finding(
    id="094-idle-engine-stores-without-end",
    rank=94,
    statement="KV-LIVE-03",
    condition="SimpleCPUOffloadConnector with lazy stores and a tier that is smaller than the device's pool",
    on=lambda _stage: False,
    explains_tiers=_is_it,
    live=False,
)
