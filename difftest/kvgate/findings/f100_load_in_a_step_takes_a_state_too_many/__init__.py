"""Finding 100: A load within a step takes one state more than is counted, and the pool runs out."""

from __future__ import annotations

from typing import Any

from kvgate.findings.finding import Finding
from kvgate.findings.tier_state import block_tables
from kvgate.kernel.difference import Divergence


def _is_it(divergence: Divergence, engine: Any) -> bool:
    """A request is admitted that loads within the step, and no more blocks are missing than there are groups of states.

    It has the blocks of its hit already, so there was room by the scheduler's count.
    """
    difference, connector = divergence.difference, engine.connector.offloading
    is_raised = (difference.statement, difference.subject) == ("KV-SYS-01", "ValueError in get_new_blocks")
    if not is_raised or connector is None:
        return False
    loading: set[str] = getattr(connector.half, "_current_batch_sync_loads", set())
    admitted = {name for table in block_tables(engine) for name, blocks in table.items() if blocks}
    admitted -= {request.request_id for request in engine.scheduler.running}
    asked = [int(word) for word in difference.got.split() if word.isdigit()]
    free = engine.scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
    states = sum(group.keeps_states for group in engine.settings.geometry.groups)
    return bool(loading & admitted) and bool(asked) and 0 < asked[0] - free <= states


FINDING = Finding(
    id="100-load-in-a-step-takes-a-state-too-many",
    rank=100,
    statement="KV-SYS-01",
    condition="states at block ends, and a load within a step that computes further tokens of its request",
    on=lambda _stage: False,
    explains_tiers=_is_it,
    live=False,
)
