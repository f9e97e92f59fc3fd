"""Finding 112: AscendStoreConnector stores again what a window has left, from blocks that others have by then."""

from __future__ import annotations

from typing import Any

from kvgate.findings.finding import Finding
from kvgate.kernel.difference import Divergence
from kvreference.attention import Kind


def _is_it(divergence: Divergence, engine: Any) -> bool:
    """A block of a window holds what a load brought, whose key was stored more than once."""
    shown = engine.memory.shown_by
    return (
        engine.stage.own == "ascend-store"
        and divergence.difference.statement == "KV-TIER-01"
        and shown is not None
        and shown.origin is None
        and engine.settings.geometry.groups[shown.group].kind is Kind.SLIDING_WINDOW
        and bool(engine.scheduler.connector.was_stored_again(engine.memory.device.tensor[shown.block].data_ptr()))
    )


FINDING = Finding(
    id="112-ascend-store-reads-blocks-that-a-window-left",
    rank=112,
    statement="KV-TIER-01",
    condition="AscendStoreConnector, a prompt in chunks, and a store without a block that its window has left",
    on=lambda _stage: False,
    explains_tiers=_is_it,
    live=False,
)
