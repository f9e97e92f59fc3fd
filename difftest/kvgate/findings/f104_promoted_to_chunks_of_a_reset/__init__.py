"""Finding 104: After a reset, files are read to chunks of the host that a job under way still uses."""

from __future__ import annotations

from typing import Any

from kvgate.findings.finding import Finding
from kvgate.kernel.difference import Divergence


def _is_it(divergence: Divergence, engine: Any) -> bool:
    """A read of files has the chunk of a job on the device, which was there when the connector's cache was reset."""
    difference = divergence.difference
    reads = "a chunk of the host that a read of files uses", "a chunk of the host that a store uses"
    is_shared = difference.statement == "KV-TIER-02" and difference.subject in reads
    is_read = difference.subject == reads[0] or difference.got.startswith("read job")
    jobs = [job for job, _ in engine.memory.culprits]
    return is_shared and is_read and bool(jobs) and all(job.number in engine.forgotten for job in jobs)


FINDING = Finding(
    id="104-promoted-to-chunks-of-a-reset",
    rank=104,
    statement="KV-TIER-02",
    condition="a tier of files, and a reset of the connector's cache between a load's or a store's making and its end",
    on=lambda _stage: False,
    explains_tiers=_is_it,
    live=False,
)
