"""Finding 025: The blocks of an aborted load are never freed if its end is never reported."""

from typing import Any

from kvgate.findings.finding import Finding
from kvgate.kernel.difference import Divergence


def _is_never_reported(divergence: Divergence, engine: Any) -> bool:
    """With a second tier: an idle engine takes no step in which the end of an aborted load could be reported."""
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
    id="025-aborted-load-never-reclaimed",
    rank=25,
    statement="KV-LEAK-01",
    condition="a load that is aborted and never ends",
    unrecognised="No mark distinguishes it from another leak; every transfer that kvgate check draws ends.",
    explains_tiers=_is_never_reported,
)
