"""Finding 096: A store of SimpleCPUOffloadConnector names a block twice, and the block is freed twice."""

from __future__ import annotations

from typing import Any

from kvgate.findings.finding import Finding
from kvgate.kernel.difference import Divergence


def _is_it(divergence: Divergence, engine: Any) -> bool:
    """The free queue counts more blocks than are free, and no more than stores have named again of those."""
    simple, difference = engine.connector.simple, divergence.difference
    if simple is None or (difference.statement, difference.subject) != ("KV-INV-03", "the free queue"):
        return False
    pool = engine.scheduler.kv_cache_manager.block_pool
    unused = [each.block_id for each in pool.blocks if not each.ref_cnt and not each.is_null]
    more = pool.get_num_free_blocks() - len(unused)
    again = sum(simple.stored_again[block] for block in unused)
    return bool(0 < more <= again)


FINDING = Finding(
    id="096-block-stored-twice",
    rank=96,
    statement="KV-INV-03",
    condition="eager stores of SimpleCPUOffloadConnector, and a request that reuses a block that its window left",
    on=lambda _stage: False,
    explains_tiers=_is_it,
    live=False,
)
