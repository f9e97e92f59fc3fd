"""Finding 111: LMCache's connector asserts that a preempted request hits, also where it may not read the cache."""

from __future__ import annotations

from typing import Any

from kvgate.findings.finding import Finding
from kvgate.kernel.difference import Divergence


def _is_it(divergence: Divergence, engine: Any) -> bool:
    """Its assertion fails for a preempted request that may not read the prefix cache."""
    difference = divergence.difference
    words = difference.got.split()
    request = engine.scheduler.requests.get(words[3]) if words[1:3] == ["Preempted", "request"] else None
    return (
        (difference.statement, difference.subject) == ("KV-SYS-01", "AssertionError in _build_kv_connector_meta")
        and request is not None
        and bool(request.skip_reading_prefix_cache)
    )


FINDING = Finding(
    id="111-lmcache-asserts-that-a-preempted-request-hits",
    rank=111,
    statement="KV-SYS-01",
    condition="LMCache's connector, and a preempted request that may not read the prefix cache and whose tokens it has",
    on=lambda _stage: False,
    explains_tiers=_is_it,
    live=False,
)
