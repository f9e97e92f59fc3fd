"""Finding 103: Chunks that are brought from files for a request evict each other, and it waits permanently."""

from __future__ import annotations

from typing import Any

from kvgate.findings.finding import Finding
from kvgate.findings.tier_state import block_tables
from kvgate.kernel.difference import Divergence


def _is_it(divergence: Divergence, engine: Any) -> bool:
    """Every request waits without blocks; files are read for one of them, and the host has lost for that what one of
    them needs as well."""
    tiering = engine.connector.tiering
    if divergence.difference.statement != "KV-TIER-06" or tiering is None:
        return False
    waits = all(engine.scheduler.requests[name].status.name in ("WAITING", "PREEMPTED") for name in engine.alive)
    holds = any(table.get(name) for table in block_tables(engine) for name in engine.alive)
    reads = [each for each in engine.memory.file_jobs.values() if each.reads and each.request in engine.alive]
    needed = tiering.keys_of(engine.alive)
    return waits and not holds and any(tiering.evicted_for[each.number] & needed for each in reads)


FINDING = Finding(
    id="103-promotions-evict-each-other",
    rank=103,
    statement="KV-TIER-06",
    condition="a tier of files, and a host that evicts for a chunk from files another one that the same requests need",
    on=lambda _stage: False,
    explains_tiers=_is_it,
    live=False,
)
