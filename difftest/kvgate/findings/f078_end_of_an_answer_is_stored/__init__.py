"""Finding 078: The block that an answer ends with is stored, although its last token is never computed."""

from __future__ import annotations

from typing import Any

from kvgate.findings.finding import Finding
from kvgate.kernel.difference import Divergence


def _is_it(divergence: Divergence, engine: Any) -> bool:
    """A store takes the last block of an ended request, whose last token alone it lacks."""
    connector, culprits = engine.connector, engine.memory.culprits
    if divergence.difference.statement != "KV-TIER-04" or len(culprits) != 1:
        return False
    job, copy = culprits[0]
    end = (copy.index + 1) * engine.settings.geometry.groups[copy.group].block_size_tokens
    if job.loads or not connector.is_offloading(job) or connector.offloading.ended.get(job.number[1]) != end:
        return False
    group, slots = engine.memory.taken or (None, ())
    return group == copy.group and slots[:-1] == tuple(engine.memory.tokens[job.request][end - len(slots) : end - 1])


FINDING = Finding(
    id="078-end-of-an-answer-is-stored",
    rank=78,
    statement="KV-TIER-04",
    condition="OffloadingConnector stores answers, and an answer ends with a block",
    on=lambda _stage: False,
    explains_tiers=_is_it,
    live=False,
)
