"""Finding 077: A preempted request that loads while its stores are under way ends the engine."""

from __future__ import annotations

from typing import Any

from kvgate.findings.finding import Finding
from kvgate.kernel.difference import Divergence


def _is_it(divergence: Divergence, engine: Any) -> bool:
    """The connector asserts that a request that loads has no job, and it has stores from before its preemption."""
    connector, difference = engine.connector.offloading, divergence.difference
    is_raised = difference.subject == "AssertionError in update_state_after_alloc"
    if connector is None or difference.statement != "KV-SYS-01" or not is_raised:
        return False
    half = connector.half
    loading = [each for name, each in half._req_status.items() if name in engine.memory.claims]
    jobs = [[half._jobs.get(number) for number in each.transfer_jobs] for each in loading if each.req.num_preemptions]
    return any(each and all(job is not None and job.is_store for job in each) for each in jobs)


FINDING = Finding(
    id="077-load-next-to-stores",
    rank=77,
    statement="KV-SYS-01",
    condition="a request that was preempted, loads what the tier has, and has a store under way",
    on=lambda _stage: False,
    explains_tiers=_is_it,
    live=False,
)
