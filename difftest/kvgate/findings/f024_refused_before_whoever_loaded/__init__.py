"""Finding 024: One rejected request ends the scan of the queue, although later requests hold the blocks it needs."""

from __future__ import annotations

from typing import Any

from kvgate.findings.engine_state import can_run, holders_waiting
from kvgate.findings.finding import Engine, Finding
from kvgate.kernel.difference import Divergence
from kvreference.scheduler.room import blocks_to_run


def _one_can_run(divergence: Divergence, engine: Engine) -> bool:
    """A request that holds blocks could run, and is not asked because a request before it is rejected."""
    return any(can_run(engine, number) for number in holders_waiting(divergence, engine))


def _is_before_who_loaded(divergence: Divergence, engine: Any) -> bool:
    """With a second tier: the first request of the queue lacks blocks, besides those kept; one after it has loaded."""
    scheduler, loaded = engine.scheduler, engine.scheduler.finished_recving_kv_req_ids
    queue = [*getattr(scheduler, "skipped_waiting", ()), *scheduler.waiting]

    def has_loaded(request: Any) -> bool:
        # What was noticed is in the queue again, and holds what was loaded.
        waits = request.status.name == "WAITING_FOR_REMOTE_KVS"
        return request.request_id in loaded or (not waits and request.num_computed_tokens > 0)

    behind = any(map(has_loaded, queue[1:]))
    if divergence.difference.statement != "KV-TIER-06" or not behind:
        return False
    first, free, kept = queue[0], scheduler.kv_cache_manager.block_pool.get_num_free_blocks(), 0
    if first.request_id in engine.connector.loads:
        # Of a request that would load, later releases ask that it leaves what others still need, and a step's drafts.
        kept = getattr(scheduler, "_inflight_prefill_reserved_blocks", lambda: 0)()
        kept += getattr(scheduler, "_spec_decode_step_blocks", 0)
    lacks = blocks_to_run(engine.settings, first.num_tokens) > free - kept
    return lacks and first.request_id not in loaded and first.status.name != "WAITING_FOR_REMOTE_KVS"


FINDING = Finding(
    id="024-refused-before-whoever-loaded",
    rank=24,
    statement="KV-LIVE-03",
    condition="a request that is rejected before others that hold the blocks it lacks and could run",
    on=lambda stage: stage.connector,
    goes_on=True,
    explains_engine=_one_can_run,
    explains_tiers=_is_before_who_loaded,
)
