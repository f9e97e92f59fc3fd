"""Finding 104: After a reset, files are read to chunks of the host that a job under way still uses."""

from __future__ import annotations

from typing import Any

from kvgate.findings.finding import Finding
from kvgate.kernel.difference import Divergence


def _is_it(divergence: Divergence, engine: Any) -> bool:
    """Files are read to a chunk that a job on the device uses, and the connector's cache was reset when it had that."""
    difference = divergence.difference
    is_shared = (difference.statement, difference.subject) == (
        "KV-TIER-02",
        "a chunk of the host that a read of files uses",
    )
    jobs = [job for job, _ in engine.memory.culprits]
    return is_shared and bool(jobs) and all(job.number in engine.forgotten for job in jobs)


FINDING = Finding(
    id="104-promoted-to-chunks-of-a-reset",
    rank=104,
    statement="KV-TIER-02",
    condition="a tier of files, and a reset of the connector's cache while a load or a store is under way",
    on=lambda _stage: False,
    explains_tiers=_is_it,
    live=False,
)
