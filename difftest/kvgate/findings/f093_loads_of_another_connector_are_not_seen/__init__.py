"""Finding 093: OffloadingConnector does not see the blocks that another connector of a MultiConnector loads."""

from __future__ import annotations

from typing import Any

from kvgate.findings.finding import Finding
from kvgate.kernel.difference import Divergence


def _is_it(divergence: Divergence, engine: Any) -> bool:
    """A load of another connector begins to write a block that a store of OffloadingConnector still reads."""
    if divergence.difference.statement != "KV-TIER-02" or len(engine.connector.halves) < 2:
        return False
    jobs = [job for job, _ in engine.memory.culprits]
    stores = [job for job in jobs if not job.loads and engine.connector.is_offloading(job)]
    loads = [job for job in jobs if job.loads and not engine.connector.is_offloading(job)]
    return len(stores) == len(loads) == 1 and stores[0].number in engine.memory.jobs


FINDING = Finding(
    id="093-loads-of-another-connector-are-not-seen",
    rank=93,
    statement="KV-TIER-02",
    condition="a MultiConnector with OffloadingConnector and one that loads asynchronously",
    on=lambda _stage: False,
    explains_tiers=_is_it,
    live=False,
)
