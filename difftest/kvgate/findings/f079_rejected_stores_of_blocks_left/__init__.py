"""Finding 079: Blocks for which the tier had no room are stored later, although the window has left them since."""

from __future__ import annotations

from typing import Any

from kvgate.findings.finding import Finding
from kvgate.findings.tier_state import block_tables
from kvgate.kernel.difference import Divergence
from kvgate.monitors.slot_memory import first_read
from kvreference.attention import Kind


def _is_it(divergence: Divergence, engine: Any) -> bool:
    """A store takes a block that the window of its request has left, and the tier had no room for its key before."""
    difference = divergence.difference
    is_of_it = difference.statement in ("KV-TIER-04", "KV-TIER-02") and not difference.subject.startswith("a chunk ")
    return is_of_it and any(_is_left(engine, *culprit) for culprit in engine.memory.culprits)


def _is_left(engine: Any, job: Any, copy: Any) -> bool:
    group = engine.settings.geometry.groups[copy.group]
    if job.loads or not engine.connector.is_offloading(job) or group.kind is not Kind.SLIDING_WINDOW:
        return False
    table = block_tables(engine)[copy.group].get(job.request, ())
    if table:
        is_left = copy.index < len(table) and table[copy.index].is_null
    else:
        # It has ended.
        end = (copy.index + 1) * group.block_size_tokens
        is_left = end <= first_read(group, len(engine.memory.tokens[job.request]))
    return bool(is_left and job.keys[copy.chunk] in engine.connector.offloading.rejected)


FINDING = Finding(
    id="079-rejected-stores-of-blocks-left",
    rank=79,
    statement="KV-TIER-04",
    condition="a tier that has no room for a store, and a window that leaves its blocks before there is room",
    on=lambda _stage: False,
    explains_tiers=_is_it,
    live=False,
)
