"""Finding 090: A reset that preempts raises while SimpleCPUOffloadConnector stores."""

from __future__ import annotations

from typing import Any

from kvgate.findings.finding import Finding
from kvgate.kernel.difference import Divergence


def _is_it(divergence: Divergence, engine: Any) -> bool:
    """Every block that is still held is one that a store reads."""
    simple, pool = engine.connector.simple, engine.scheduler.kv_cache_manager.block_pool
    if simple is None or not divergence.difference.subject.startswith("RuntimeError in reset_prefix_cache"):
        return False
    held = {each.block_id for each in pool.blocks if each.ref_cnt > 0 and not each.is_null}
    return bool(held) and held <= simple.blocks_stored().keys()


FINDING = Finding(
    id="090-stores-stop-a-reset",
    rank=90,
    statement="KV-SYS-01",
    condition="a reset that preempts while SimpleCPUOffloadConnector stores",
    on=lambda _stage: False,
    explains_tiers=_is_it,
    live=False,
)
