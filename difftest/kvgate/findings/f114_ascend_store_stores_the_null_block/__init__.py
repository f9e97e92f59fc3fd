"""Finding 114: AscendStoreConnector stores the null block under the keys of what a window has left."""

from __future__ import annotations

from typing import Any

from kvgate.findings.finding import Finding
from kvgate.kernel.difference import Divergence
from kvreference.attention import Kind
from kvreference.block_pool import NULL


def _is_it(divergence: Divergence, engine: Any) -> bool:
    """A block of a window holds what a load brought, which had been stored from the null block."""
    shown, connector = engine.memory.shown_by, engine.scheduler.connector
    if engine.stage.own != "ascend-store" or divergence.difference.statement != "KV-TIER-01" or shown is None:
        return False
    of_window = engine.settings.geometry.groups[shown.group].kind is Kind.SLIDING_WINDOW
    blocks = engine.memory.device.tensor
    is_null = connector.was_stored_from(blocks[shown.block].data_ptr(), blocks[NULL].data_ptr())
    return of_window and shown.origin is None and bool(is_null)


FINDING = Finding(
    id="114-ascend-store-stores-the-null-block",
    rank=114,
    statement="KV-TIER-01",
    condition="AscendStoreConnector, a hit past a window, and a store without a block that the window has left",
    on=lambda _stage: False,
    explains_tiers=_is_it,
    live=False,
)
