"""Finding 109: An idle engine does not notice that the last stores of OffloadingConnector have ended."""

from __future__ import annotations

from typing import Any

from kvgate.findings.finding import Finding
from kvgate.kernel.difference import Divergence


def _is_it(divergence: Divergence, engine: Any) -> bool:
    """No job is under way, the engine asks for no step, and all that remains is of stores of ended requests."""
    offloading, difference = engine.connector.offloading, divergence.difference
    is_held = (difference.statement, difference.subject) == ("KV-TIER-05", "what the connector holds")
    if not offloading or not is_held or engine.memory.jobs or engine.scheduler.has_requests():
        return False
    half = offloading.half
    jobs, requests, blocks = half._jobs, half._req_status, half._block_id_to_pending_jobs
    of_stores = {each.req_id for each in jobs.values() if each.is_store and requests[each.req_id].req.is_finished()}
    known = jobs.keys() >= {number for numbers in blocks.values() for number in numbers}
    chunks = {key for each in jobs.values() for key in each.keys}
    held = {"_req_status": len(requests), "_jobs": len(jobs), "_block_id_to_pending_jobs": len(blocks)}
    is_all = difference.got == str(held | {"chunks that a job uses": len(chunks)})
    return known and is_all and of_stores == requests.keys()


FINDING = Finding(
    id="109-idle-engine-keeps-its-last-stores",
    rank=109,
    statement="KV-TIER-05",
    condition="the last stores of OffloadingConnector end when no request is left",
    on=lambda _stage: False,
    explains_tiers=_is_it,
    live=False,
)
