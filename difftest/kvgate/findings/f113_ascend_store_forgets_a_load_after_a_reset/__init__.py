"""Finding 113: AscendStoreConnector does not load what it has promised to a request that a reset has preempted."""

from __future__ import annotations

from typing import Any

from kvgate.findings.finding import Finding
from kvgate.kernel.difference import Divergence


def _is_it(divergence: Divergence, engine: Any) -> bool:
    """Nothing came to the block, the store had not lost it, and a reset has preempted the request of the load.

    That request reads it, or one that hits it in the same step.
    """
    shown = engine.memory.shown_by
    return (
        engine.stage.own == "ascend-store"
        and divergence.difference.statement in ("KV-TIER-01", "KV-MEM-01")
        and shown is not None
        and shown.failure is not None
        and not shown.failure.is_reported
        and shown.failure.request in engine.preempted_by_reset
        and not engine.scheduler.connector.was_gone(engine.memory.device.tensor[shown.block].data_ptr())
    )


FINDING = Finding(
    id="113-ascend-store-forgets-a-load-after-a-reset",
    rank=113,
    statement="KV-TIER-01",
    condition="AscendStoreConnector, and a reset that preempts a request whose tokens the store has",
    on=lambda _stage: False,
    explains_tiers=_is_it,
    live=False,
)
