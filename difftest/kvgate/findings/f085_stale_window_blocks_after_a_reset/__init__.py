"""Finding 085: After a reset, blocks that a window has left are stored again, with what others wrote there."""

from __future__ import annotations

from typing import Any

from kvgate.findings.finding import Finding
from kvgate.kernel.difference import Divergence
from kvgate.monitors.slot_memory import first_read
from kvreference.attention import Kind


def _is_it(divergence: Divergence, engine: Any) -> bool:
    """What is stored is a block that the window had left when the connector was reset."""
    if divergence.difference.statement != "KV-TIER-04" or engine.memory.culprit is None:
        return False
    job, copy = engine.memory.culprit
    group = engine.settings.geometry.groups[copy.group]
    end = (copy.index + 1) * group.block_size_tokens
    computed = (alive[job.request] for alive in engine.resets if job.request in alive)
    return group.kind is Kind.SLIDING_WINDOW and any(end <= first_read(group, tokens) for tokens in computed)


FINDING = Finding(
    id="085-stale-window-blocks-after-a-reset",
    rank=85,
    statement="KV-TIER-04",
    condition="a reset of the cache of OffloadingConnector while a request is alive whose window has left a block",
    on=lambda _stage: False,
    explains_tiers=_is_it,
    live=False,
)
