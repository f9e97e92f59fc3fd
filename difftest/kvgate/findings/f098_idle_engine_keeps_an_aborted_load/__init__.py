"""Finding 098: An idle engine keeps the blocks of a request that was aborted while a connector loaded."""

from __future__ import annotations

from collections import Counter
from typing import Any

from kvgate.findings.finding import Finding
from kvgate.findings.tier_state import block_tables, blocks_held
from kvgate.kernel.difference import Divergence


def _is_it(divergence: Divergence, engine: Any) -> bool:
    """No job is under way, the engine asks for no step, and every held block is of an aborted load or a last store."""
    simple, offloading, scheduler = engine.connector.simple, engine.connector.offloading, engine.scheduler
    if divergence.difference.statement != "KV-LEAK-01" or engine.memory.jobs or scheduler.has_requests():
        return False
    aborted, others = set[str](), Counter[int]()
    if simple:
        loads = {name: load for name, load in simple.half._reqs_to_load.items() if load.finished}
        aborted |= loads.keys()
        others += simple.blocks_stored()
        others += Counter(block for each in loads.values() for block in each.transfer_meta.gpu_block_ids)
    if offloading:
        named = {each.req_id for each in offloading.half._jobs.values() if not each.is_store}
        aborted |= {name for name in named if offloading.half._req_status[name].req.is_finished()}
    tables = block_tables(engine)
    of_loads = [block for table in tables for name in aborted for block in table.get(name, ()) if not block.is_null]
    is_all = blocks_held(engine) == others + Counter(block.block_id for block in of_loads)
    return bool(of_loads) and is_all


FINDING = Finding(
    id="098-idle-engine-keeps-an-aborted-load",
    rank=98,
    statement="KV-LEAK-01",
    condition="the last request is aborted while a connector loads for it",
    on=lambda _stage: False,
    explains_tiers=_is_it,
    live=False,
)
