"""Finding 024: One rejected request ends the scan of the queue, although later requests hold the blocks it needs."""

from __future__ import annotations

from typing import Any

from kvgate.findings.engine_state import can_run, holders_waiting
from kvgate.findings.finding import Engine, Finding
from kvgate.findings.tier_state import has_loaded, lacks_blocks, next_step_fits
from kvgate.kernel.difference import Divergence


def _one_can_run(divergence: Divergence, engine: Engine) -> bool:
    """A request that holds blocks could run, and is not asked because a request before it is rejected."""
    return any(can_run(engine, number) for number in holders_waiting(divergence, engine))


def _is_before_who_loaded(divergence: Divergence, engine: Any) -> bool:
    """With a second tier: the first request of the queue lacks blocks; one after it has loaded, and could run."""
    scheduler = engine.scheduler
    queue = [*getattr(scheduler, "skipped_waiting", ()), *scheduler.waiting]
    after = any(has_loaded(engine, each) and next_step_fits(engine, each) for each in queue[1:])
    return divergence.difference.statement == "KV-TIER-06" and after and lacks_blocks(engine, queue[0])


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
