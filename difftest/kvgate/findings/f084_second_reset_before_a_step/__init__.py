"""Finding 084: A second reset of the connector's cache before a step raises."""

from __future__ import annotations

from typing import Any

from kvgate.findings.finding import Finding
from kvgate.kernel.difference import Divergence


def _is_it(divergence: Divergence, engine: Any) -> bool:
    """The connector asserts that no job waits to be flushed, and one does: an earlier reset wants it flushed.

    Or nothing but such jobs remains, because an engine without requests takes no step.
    """
    difference = divergence.difference
    if not engine.connector.offloading:
        return False
    wanted = engine.connector.offloading.half._current_batch_jobs_to_flush
    if difference.statement == "KV-TIER-05":
        held = str({"_current_batch_jobs_to_flush": len(wanted)})
        is_all = (difference.subject, difference.got) == ("what the connector holds", held)
        is_forgotten = wanted <= {number for _tier, number, _part in engine.forgotten}
        return bool(engine.resets_since_step and is_all and is_forgotten)
    is_raised = difference.statement == "KV-SYS-01" and difference.subject.startswith("AssertionError in")
    name = difference.subject.rpartition(" ")[2]
    return bool(is_raised and name in ("reset_cache", "_reset_cache") and engine.resets_since_step > 1 and wanted)


FINDING = Finding(
    id="084-second-reset-before-a-step",
    rank=84,
    statement="KV-SYS-01",
    condition="two resets of the cache of OffloadingConnector before a step, and a job under way at the first",
    on=lambda _stage: False,
    explains_tiers=_is_it,
    live=False,
)
