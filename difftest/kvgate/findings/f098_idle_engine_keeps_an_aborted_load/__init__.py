"""Finding 098: An idle engine keeps the blocks of a request that was aborted while SimpleCPUOffloadConnector loaded."""

from __future__ import annotations

from collections import Counter
from typing import Any

from kvgate.findings.finding import Finding
from kvgate.findings.tier_state import block_tables, blocks_held
from kvgate.kernel.difference import Divergence


def _is_it(divergence: Divergence, engine: Any) -> bool:
    """No job is under way, the engine asks for no step, and every held block is of an aborted load or a last store."""
    simple, scheduler = engine.connector.simple, engine.scheduler
    if simple is None or divergence.difference.statement != "KV-LEAK-01":
        return False
    loads = {name: load for name, load in simple.half._reqs_to_load.items() if load.finished}
    tables = block_tables(engine)
    of_loads = Counter(
        block.block_id for table in tables for name in loads for block in table.get(name, ()) if not block.is_null
    )
    of_loads += Counter(block for each in loads.values() for block in each.transfer_meta.gpu_block_ids)
    held = blocks_held(engine)
    is_idle = not engine.memory.jobs and not scheduler.has_requests()
    return is_idle and bool(of_loads) and held == of_loads + simple.blocks_stored()


FINDING = Finding(
    id="098-idle-engine-keeps-an-aborted-load",
    rank=98,
    statement="KV-LEAK-01",
    condition="the last request is aborted while SimpleCPUOffloadConnector loads for it",
    on=lambda _stage: False,
    explains_tiers=_is_it,
    live=False,
)
