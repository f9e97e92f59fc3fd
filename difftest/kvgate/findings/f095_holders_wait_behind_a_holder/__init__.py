"""Finding 095: A rejected request that holds blocks ends the scan, although a later one that has loaded could run."""

from __future__ import annotations

from typing import Any

from kvgate.findings.finding import Finding
from kvgate.kernel.difference import Divergence
from kvreference.scheduler.room import blocks_to_run


def _is_it(divergence: Divergence, engine: Any) -> bool:
    """The first of those that hold blocks lacks room; one after it has loaded, and needs no more than is free."""
    scheduler = engine.scheduler
    holders = list(getattr(scheduler, "kv_holding_waiting", ()))
    if divergence.difference.statement != "KV-TIER-06" or len(holders) < 2:
        return False
    free = scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
    tables = [each.req_to_blocks for each in scheduler.kv_cache_manager.coordinator.single_type_managers]

    def lacks(request: Any) -> int:
        held = sum(not block.is_null for table in tables for block in table.get(request.request_id, ()))
        return blocks_to_run(engine.settings, request.num_tokens) - held

    loaded = scheduler.finished_recving_kv_req_ids
    first, *others = holders
    return lacks(first) > free and any(each.request_id in loaded and lacks(each) <= free for each in others)


FINDING = Finding(
    id="095-holders-wait-behind-a-holder",
    rank=95,
    statement="KV-TIER-06",
    condition="a request that holds what it loaded and lacks room, before one that has loaded and could run",
    on=lambda _stage: False,
    explains_tiers=_is_it,
    live=False,
)
