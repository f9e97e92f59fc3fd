"""Finding 023: Requests that have loaded hold all blocks, and none of them can compute the rest."""

from __future__ import annotations

from typing import Any

from kvgate.findings.engine_state import can_run, holders_waiting, parked_beside_one_that_cannot_end
from kvgate.findings.finding import Engine, Finding
from kvgate.findings.tier_state import has_loaded, next_step_fits
from kvgate.kernel.difference import Divergence


def _none_can_run(divergence: Divergence, engine: Engine) -> bool:
    """No request that holds blocks could run, in any order of scheduling; or a running one cannot finish."""
    holders = holders_waiting(divergence, engine)
    if holders:
        return not any(can_run(engine, number) for number in holders)
    return parked_beside_one_that_cannot_end(divergence, engine)


def _loaded_and_none_fits(divergence: Divergence, engine: Any) -> bool:
    """With a second tier: several requests have loaded and hold all blocks that are not free; none has room to step."""
    scheduler = engine.scheduler
    queue = [*getattr(scheduler, "skipped_waiting", ()), *scheduler.waiting]
    holders = [each for each in queue if each.num_computed_tokens]
    stuck = all(has_loaded(engine, each) and not next_step_fits(engine, each) for each in holders)
    tables = [each.req_to_blocks for each in scheduler.kv_cache_manager.coordinator.single_type_managers]
    theirs = {block.block_id for table in tables for each in holders for block in table.get(each.request_id, ())}
    pool = scheduler.kv_cache_manager.block_pool
    is_all = all(each.block_id in theirs for each in pool.blocks if each.ref_cnt > 0 and not each.is_null)
    is_hang = divergence.difference.statement == "KV-TIER-06" and not scheduler.running
    return is_hang and len(holders) > 1 and stuck and is_all


FINDING = Finding(
    id="023-parked-loads-leave-no-room",
    rank=23,
    statement="KV-LIVE-03",
    condition="requests that have loaded and wait, and hold the blocks that all of them lack",
    on=lambda stage: stage.connector,
    goes_on=True,
    explains_engine=_none_can_run,
    explains_tiers=_loaded_and_none_fits,
)
