"""Finding 084: A second reset of the connector's cache before a step raises."""

from __future__ import annotations

from typing import Any

from kvgate.findings.finding import Finding
from kvgate.kernel.difference import Divergence


def _is_it(divergence: Divergence, engine: Any) -> bool:
    """The connector asserts that no job waits to be flushed, and one does: an earlier reset wants it flushed."""
    difference = divergence.difference
    is_raised = difference.statement == "KV-SYS-01" and difference.subject.startswith("AssertionError in")
    name = difference.subject.rpartition(" ")[2]
    return (
        is_raised
        and name in ("reset_cache", "_reset_cache")
        and engine.resets_since_step > 1
        and bool(engine.connector.offloading)
        and bool(engine.connector.offloading.half._current_batch_jobs_to_flush)
    )


FINDING = Finding(
    id="084-second-reset-before-a-step",
    rank=84,
    statement="KV-SYS-01",
    condition="two resets of the cache of OffloadingConnector before a step, and a job under way at the first",
    on=lambda _stage: False,
    explains_tiers=_is_it,
    live=False,
)
