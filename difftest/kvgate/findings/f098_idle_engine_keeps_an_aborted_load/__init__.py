"""Finding 098: An idle engine keeps the blocks of a request that was aborted while SimpleCPUOffloadConnector loaded."""

from __future__ import annotations

from typing import Any

from kvgate.findings.finding import Finding
from kvgate.kernel.difference import Divergence


def _is_it(divergence: Divergence, engine: Any) -> bool:
    """No job is under way, the engine asks for no step, and every held block is of an aborted load or a last store."""
    simple, scheduler = engine.connector.simple, engine.scheduler
    if simple is None or divergence.difference.statement != "KV-LEAK-01":
        return False
    loading = {name for name, load in simple.half._reqs_to_load.items() if load.finished}
    tables = [each.req_to_blocks for each in scheduler.kv_cache_manager.coordinator.single_type_managers]
    of_loads = {block.block_id for table in tables for name in loading for block in table.get(name, ())}
    pool = scheduler.kv_cache_manager.block_pool
    held = {each.block_id for each in pool.blocks if each.ref_cnt and not each.is_null}
    is_idle = not engine.memory.jobs and not scheduler.has_requests()
    return is_idle and bool(held) and held <= of_loads | simple.blocks_stored().keys()


FINDING = Finding(
    id="098-idle-engine-keeps-an-aborted-load",
    rank=98,
    statement="KV-LEAK-01",
    condition="the last request is aborted while SimpleCPUOffloadConnector loads for it",
    on=lambda _stage: False,
    explains_tiers=_is_it,
    live=False,
)
