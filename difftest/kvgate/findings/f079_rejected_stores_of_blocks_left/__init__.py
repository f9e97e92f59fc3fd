"""Finding 079: Blocks for which the tier had no room are stored later, although the window has left them since."""

from __future__ import annotations

from typing import Any

from kvgate.findings.finding import Finding
from kvgate.findings.tier_state import is_taken_after_others
from kvgate.kernel.difference import Divergence
from kvreference.attention import Kind


def _is_it(divergence: Divergence, engine: Any) -> bool:
    """A store takes a block that the window of its request had left when it was made, and the tier had no room for its
    key before.

    The block holds what others wrote there, or a load writes it while the store reads it.
    """
    return is_taken_after_others(divergence, engine) and any(
        _is_left(engine, *culprit) for culprit in engine.memory.culprits
    )


def _is_left(engine: Any, job: Any, copy: Any) -> bool:
    group = engine.settings.geometry.groups[copy.group]
    if job.loads or not engine.connector.is_offloading(job) or group.kind is not Kind.SLIDING_WINDOW:
        return False
    is_left = copy.index < job.left[copy.group]
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
