"""Finding 112: AscendStoreConnector stores again what a window has left, from blocks that others have by then."""

from __future__ import annotations

from typing import Any

from kvgate.findings.finding import Finding
from kvgate.kernel.difference import Divergence
from kvreference.attention import Kind
from kvreference.block_pool import NULL


def _is_it(divergence: Divergence, engine: Any) -> bool:
    """A block of a window holds what a load brought, which was taken from another block than the null block.

    It was read by the key of the block's place in its request, and what was stored is not what that key names.
    Its key was stored more than once, or what came is of another group. Where a load brought nothing, what is read has
    that load for its origin. What came may be written over in part.
    """
    shown, connector = engine.memory.shown_by, engine.scheduler.connector
    if engine.stage.own != "ascend-store" or divergence.difference.statement != "KV-TIER-01" or shown is None:
        return False
    group = engine.settings.geometry.groups[shown.group]
    if group.kind is not Kind.SLIDING_WINDOW or shown.origin is not None:
        return False
    blocks = engine.memory.device.tensor
    at = blocks[shown.block].data_ptr()
    # The null block is 114.
    was_a_block = not connector.was_stored_from(at, blocks[NULL].data_ptr())
    slots = list(connector.slots_read(at))
    is_of_others = any(engine.memory.device.group_of(number) != shown.group for number in slots if number)
    first, end = (place * group.block_size_tokens for place in (shown.place, shown.place + 1))
    held = engine.memory.tokens[shown.request][first:end]
    hashes = [block_hash for block_hash, prefix in engine.memory.names.items() if [prefix] == held[-1:]]
    is_of_key = any(connector.was_read_by(at, each, shown.group) for each in hashes)
    is_other = slots != engine.memory.device.numbers((shown.group, held))
    is_late = is_of_others or connector.was_stored_again(at)
    return bool(is_of_key and is_other and was_a_block and is_late)


FINDING = Finding(
    id="112-ascend-store-reads-blocks-that-a-window-left",
    rank=112,
    statement="KV-TIER-01",
    condition="AscendStoreConnector, a prompt in chunks, and a store without a block that its window has left",
    on=lambda _stage: False,
    explains_tiers=_is_it,
    live=False,
)
