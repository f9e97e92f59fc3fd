"""Finding 105: With tiers below the host a reset forgets jobs and keeps their chunks, which are never readable."""

from __future__ import annotations

from typing import Any

from kvgate.findings.finding import Finding
from kvgate.findings.tier_state import block_tables
from kvgate.kernel.difference import Divergence


def _is_it(divergence: Divergence, engine: Any) -> bool:
    """A chunk is not readable and no job brings it any more, since a reset forgot the store that was to bring it.

    Requests wait for it; or it is all that is left.
    """
    tiering, difference = engine.connector.tiering, divergence.difference
    left = tiering.keys_left_unready() if tiering is not None else set()
    if not left or not left <= engine.keys_forgotten:
        return False
    if difference.statement == "KV-TIER-05":
        held = str({"chunks that a job uses": len(left)})
        return (difference.subject, difference.got) == ("what the connector holds", held)
    waits = all(engine.scheduler.requests[name].status.name in ("WAITING", "PREEMPTED") for name in engine.alive)
    holds = any(table.get(name) for table in block_tables(engine) for name in engine.alive)
    asks = all(left & tiering.keys_of([name]) for name in engine.alive)
    return difference.statement == "KV-TIER-06" and waits and not holds and asks


FINDING = Finding(
    id="105-reset-leaves-chunks-unready",
    rank=105,
    statement="KV-TIER-06",
    condition="a tier below the host, and a reset of the connector's cache while a store is under way",
    on=lambda _stage: False,
    explains_tiers=_is_it,
    live=False,
)
