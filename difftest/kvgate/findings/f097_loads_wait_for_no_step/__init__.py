"""Finding 097: A load of SimpleCPUOffloadConnector does not wait for the steps that read its blocks."""

from __future__ import annotations

from typing import Any

from kvgate.findings.finding import Finding
from kvgate.kernel.difference import Divergence


def _is_it(divergence: Divergence, engine: Any) -> bool:
    """A step that may not have ended reads a block that a load writes."""
    difference = divergence.difference
    is_early = difference.statement == "KV-TIER-02" and difference.subject == "a block that a load writes at once"
    return is_early and engine.connector.simple is not None and engine.stage.asynchronous


FINDING = Finding(
    id="097-loads-wait-for-no-step",
    rank=97,
    statement="KV-TIER-02",
    condition="SimpleCPUOffloadConnector, asynchronous steps, and a block that is freed before a step has read it",
    on=lambda _stage: False,
    explains_tiers=_is_it,
    live=False,
)
