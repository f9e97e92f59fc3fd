"""Finding 112: AscendStoreConnector stores again what a window has left, from blocks that others have by then."""

from __future__ import annotations

from typing import Any

from kvgate.findings.finding import Finding
from kvgate.kernel.difference import Divergence
from kvreference.attention import Kind
from kvreference.block_pool import NULL


def _is_it(divergence: Divergence, engine: Any) -> bool:
    """A block of a window holds what a load brought, which was taken from another block than the null block.

    Its key was stored more than once, or what came is of another group. Where a load brought nothing, what is read has
    that load for its origin. What came may be written over in part.
    """
    shown, connector = engine.memory.shown_by, engine.scheduler.connector
    if engine.stage.own != "ascend-store" or divergence.difference.statement != "KV-TIER-01" or shown is None:
        return False
    of_window = engine.settings.geometry.groups[shown.group].kind is Kind.SLIDING_WINDOW
    blocks = engine.memory.device.tensor
    at = blocks[shown.block].data_ptr()
    # The null block is 114.
    was_a_block = not connector.was_stored_from(at, blocks[NULL].data_ptr())
    came = [engine.memory.device.group_of(number) for number in connector.slots_read(at) if number]
    is_of_others = any(group != shown.group for group in came)
    is_late = is_of_others or connector.was_stored_again(at)
    return of_window and shown.origin is None and was_a_block and bool(is_late)


FINDING = Finding(
    id="112-ascend-store-reads-blocks-that-a-window-left",
    rank=112,
    statement="KV-TIER-01",
    condition="AscendStoreConnector, a prompt in chunks, and a store without a block that its window has left",
    on=lambda _stage: False,
    explains_tiers=_is_it,
    live=False,
)
