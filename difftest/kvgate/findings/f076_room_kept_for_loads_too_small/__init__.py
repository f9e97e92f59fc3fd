"""Finding 076: What is kept free for requests that load leaves out what their windows have left."""

from __future__ import annotations

from typing import Any

from kvgate.findings.finding import Finding
from kvgate.findings.tier_state import block_tables, has_loaded, holders_waiting, next_step_fits
from kvgate.kernel.difference import Divergence
from kvreference.scheduler.room import blocks_to_run


def _is_it(divergence: Divergence, engine: Any) -> bool:
    """No request that has loaded has room for its next step, and too little was kept free when the last was admitted.

    As the scheduler counts, enough is free for the others: with the blocks that they lack, it would not be.
    """
    scheduler = engine.scheduler
    holders = holders_waiting(engine)
    if divergence.difference.statement != "KV-TIER-06" or scheduler.running or len(holders) < 2:
        return False
    if not all(has_loaded(engine, each) and not next_step_fits(engine, each) for each in holders):
        return False
    free = scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
    tables = block_tables(engine)
    counted = {each.request_id: scheduler._request_remaining_blocks(each) for each in holders}
    lacking = {
        each.request_id: blocks_to_run(engine.settings, each.num_tokens)
        - sum(not block.is_null for table in tables for block in table.get(each.request_id, ()))
        for each in holders
    }
    dead = {name: sum(block.is_null for table in tables for block in table.get(name, ())) for name in counted}
    return any(
        sum(counted.values()) - counted[last]
        <= free
        < sum(min(lacking[name], counted[name] + dead[name]) for name in counted if name != last)
        for last in counted
    )


FINDING = Finding(
    id="076-room-kept-for-loads-too-small",
    rank=76,
    statement="KV-TIER-06",
    condition="loads that wait, of which one has a window that has left entries of its table",
    where=lambda settings: any(group.window_tokens for group in settings.geometry.groups),
    on=lambda _stage: False,
    explains_tiers=_is_it,
    live=False,
)
