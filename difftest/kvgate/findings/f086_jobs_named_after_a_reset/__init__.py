"""Finding 086: After a reset, requests still name jobs that the connector has forgotten."""

from __future__ import annotations

from typing import Any

from kvgate.findings.finding import Finding
from kvgate.kernel.difference import Divergence


def _is_it(divergence: Divergence, engine: Any) -> bool:
    """A request names a job from before a reset: the job is missing, or waited for, or the request is remembered.

    All requests that are left do so, and nothing else remains.
    """
    connector, difference = engine.connector.offloading, divergence.difference
    if connector is None:
        return False
    half = connector.half
    forgotten = {number for _tier, number, _part in engine.forgotten}
    named = {number for each in half._req_status.values() for number in each.transfer_jobs}
    gone = named - half._jobs.keys()
    if not gone or not gone <= forgotten:
        return False
    stale = {name for name, each in half._req_status.items() if each.transfer_jobs & gone}
    if difference.statement == "KV-SYS-01":
        is_asked_for = difference.got in [f"KeyError: {number}" for number in gone]
        # The claim that came last is of the request that is given blocks.
        loads = next(reversed(engine.memory.claims), None) in stale
        return is_asked_for or (loads and difference.subject == "AssertionError in update_state_after_alloc")
    if difference.statement == "KV-TIER-06":
        return bool(engine.alive <= stale)
    is_all = stale == half._req_status.keys() and difference.got == str({"_req_status": len(stale)})
    return difference.statement == "KV-TIER-05" and is_all


FINDING = Finding(
    id="086-jobs-named-after-a-reset",
    rank=86,
    statement="KV-SYS-01",
    condition="a reset of the cache of OffloadingConnector while a request is alive that has a job under way",
    on=lambda _stage: False,
    explains_tiers=_is_it,
    live=False,
)
