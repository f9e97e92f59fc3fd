"""Finding 093: OffloadingConnector does not see the blocks that another connector of a MultiConnector loads."""

from __future__ import annotations

from typing import Any

from kvgate.findings.finding import Finding
from kvgate.kernel.difference import Divergence


def _is_it(divergence: Divergence, engine: Any) -> bool:
    """A load of another connector begins to write a block that a store of OffloadingConnector still reads, or has
    brought what a store takes that begins later."""
    difference, jobs = divergence.difference, [job for job, _ in engine.memory.culprits]
    stores, loads = ([job for job in jobs if job.loads == loads] for loads in (False, True))
    if difference.statement == "KV-TIER-04" and difference.subject.startswith("what a store takes "):
        brought = (engine.memory.brought.get(copy.block) for _, copy in engine.memory.culprits)
        loads = [load for load in brought if load is not None]
    elif difference.statement != "KV-TIER-02":
        return False
    if len(stores) != 1 or len(loads) != 1 or stores[0].number not in engine.memory.jobs:
        return False
    return engine.connector.is_offloading(stores[0]) and not engine.connector.is_offloading(loads[0])


FINDING = Finding(
    id="093-loads-of-another-connector-are-not-seen",
    rank=93,
    statement="KV-TIER-02",
    condition="a MultiConnector with OffloadingConnector and one that loads asynchronously",
    on=lambda _stage: False,
    explains_tiers=_is_it,
    live=False,
)
