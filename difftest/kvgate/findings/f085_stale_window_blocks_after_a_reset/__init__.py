"""Finding 085: After a reset, blocks that a window has left are stored again, with what others wrote there."""

from __future__ import annotations

from typing import Any

from kvgate.findings.finding import Finding
from kvgate.findings.tier_state import is_taken_after_others
from kvgate.kernel.difference import Divergence
from kvgate.monitors.slot_memory import first_read
from kvreference.attention import Kind


def _is_it(divergence: Divergence, engine: Any) -> bool:
    """A store takes a block that the window or the state had left at the last reset, and its request has run on until
    the store was made.

    The block holds what was written there later, or a load writes it.
    """
    return is_taken_after_others(divergence, engine) and any(
        _is_stale(engine, *culprit) for culprit in engine.memory.culprits
    )


def _is_stale(engine: Any, job: Any, copy: Any) -> bool:
    group = engine.settings.geometry.groups[copy.group]
    end, computed = (copy.index + 1) * group.block_size_tokens, job.reset_at
    is_store = not job.loads and engine.connector.is_offloading(job)
    if not is_store or computed is None or not (group.keeps_states or group.kind is Kind.SLIDING_WINDOW):
        return False
    # Of states, only the last is read.
    return bool(end <= (computed - 1 if group.keeps_states else first_read(group, computed)))


FINDING = Finding(
    id="085-stale-window-blocks-after-a-reset",
    rank=85,
    statement="KV-TIER-04",
    condition="a reset of the cache of OffloadingConnector while a request is alive whose window has left a block",
    on=lambda _stage: False,
    explains_tiers=_is_it,
    live=False,
)
