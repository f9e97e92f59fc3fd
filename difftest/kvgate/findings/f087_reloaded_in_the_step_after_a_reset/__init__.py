"""Finding 087: A request that a reset preempts and the next step reloads ends the engine."""

from __future__ import annotations

from typing import Any

from kvgate.findings.finding import Finding
from kvgate.kernel.difference import Divergence


def _is_it(divergence: Divergence, engine: Any) -> bool:
    """The connector asserts that a preempted request has stores alone, and it has a load that began in this step."""
    connector, difference = engine.connector.offloading, divergence.difference
    is_raised = difference.subject in (
        "AssertionError in build_connector_meta",
        "AssertionError in _build_connector_meta",
    )
    loading = {job.req_id for job in connector.half._current_batch_load_jobs.values()} if connector else set()
    return difference.statement == "KV-SYS-01" and is_raised and bool(loading & engine.preempted)


FINDING = Finding(
    id="087-reloaded-in-the-step-after-a-reset",
    rank=87,
    statement="KV-SYS-01",
    condition="a reset that preempts a request whose blocks are on the host",
    on=lambda _stage: False,
    explains_tiers=_is_it,
    live=False,
)
