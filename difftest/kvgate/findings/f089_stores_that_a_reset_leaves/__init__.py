"""Finding 089: The stores of requests that a reset preempts are not waited for before their blocks are used again."""

from __future__ import annotations

from typing import Any

from kvgate.findings.finding import Finding
from kvgate.kernel.difference import Divergence


def _is_it(divergence: Divergence, engine: Any) -> bool:
    """A store under way reads a block that is used again, and a reset has preempted its request."""
    difference = divergence.difference
    is_used = difference.statement == "KV-TIER-02" and not difference.subject.startswith("a chunk ")
    return is_used and any(job.number in engine.interrupted and not job.loads for job, _ in engine.memory.culprits)


FINDING = Finding(
    id="089-stores-that-a-reset-leaves",
    rank=89,
    statement="KV-TIER-02",
    condition="a reset that preempts a request with a store under way",
    on=lambda _stage: False,
    explains_tiers=_is_it,
    live=False,
)
