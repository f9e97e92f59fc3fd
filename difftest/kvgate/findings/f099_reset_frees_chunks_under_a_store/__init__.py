"""Finding 099: A reset frees chunks of the host that a store still writes, and the next store gets them."""

from __future__ import annotations

from typing import Any

from kvgate.findings.finding import Finding
from kvgate.kernel.difference import Divergence


def _is_it(divergence: Divergence, engine: Any) -> bool:
    """Two stores write one chunk, and the connector's cache was reset when it had the earlier one."""
    difference = divergence.difference
    is_shared = (difference.statement, difference.subject) == ("KV-TIER-02", "a chunk of the host that a store uses")
    jobs = [job for job, _ in engine.memory.culprits]
    of_stores = bool(jobs) and all(not job.loads and engine.connector.is_offloading(job) for job in jobs)
    is_shared = is_shared and not difference.got.startswith("read job")
    return is_shared and of_stores and jobs[0].number in engine.forgotten


FINDING = Finding(
    id="099-reset-frees-chunks-under-a-store",
    rank=99,
    statement="KV-TIER-02",
    condition="a reset of the cache of OffloadingConnector between the making of a store and its end",
    on=lambda _stage: False,
    explains_tiers=_is_it,
    live=False,
)
