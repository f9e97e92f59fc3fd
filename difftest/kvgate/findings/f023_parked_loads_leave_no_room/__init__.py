"""Finding 023: Requests that have loaded hold all blocks, and none of them can compute the rest."""

from __future__ import annotations

from typing import Any

from kvgate.findings import tier_state
from kvgate.findings.engine_state import can_run, holders_waiting, parked_beside_one_that_cannot_end
from kvgate.findings.finding import Engine, Finding
from kvgate.kernel.difference import Divergence


def _none_can_run(divergence: Divergence, engine: Engine) -> bool:
    """No request that holds blocks could run, in any order of scheduling; or a running one cannot finish."""
    holders = holders_waiting(divergence, engine)
    if holders:
        return not any(can_run(engine, number) for number in holders)
    return parked_beside_one_that_cannot_end(divergence, engine)


def _loaded_and_none_fits(divergence: Divergence, engine: Any) -> bool:
    """With a second tier: several requests have loaded and hold all blocks that are not free; none has room to step."""
    holders = tier_state.holders_waiting(engine)
    stuck = all(tier_state.has_loaded(engine, each) and not tier_state.next_step_fits(engine, each) for each in holders)
    tables = tier_state.block_tables(engine)
    theirs = {block.block_id for table in tables for each in holders for block in table.get(each.request_id, ())}
    is_hang = divergence.difference.statement == "KV-TIER-06" and not engine.scheduler.running
    return is_hang and len(holders) > 1 and stuck and tier_state.blocks_held(engine).keys() <= theirs


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
