"""Finding 023: Requests that have loaded hold all blocks, and none of them can compute the rest."""

from __future__ import annotations

from kvgate.findings.engine_state import can_run, holders_waiting, parked_beside_one_that_cannot_end
from kvgate.findings.finding import Engine, Finding
from kvgate.kernel.difference import Divergence


def _none_can_run(divergence: Divergence, engine: Engine) -> bool:
    """No request that holds blocks could run, in any order of scheduling; or a running one cannot finish."""
    holders = holders_waiting(divergence, engine)
    if holders:
        return not any(can_run(engine, number) for number in holders)
    return parked_beside_one_that_cannot_end(divergence, engine)


FINDING = Finding(
    id="023-parked-loads-leave-no-room",
    rank=23,
    statement="KV-LIVE-03",
    condition="requests that have loaded and wait, and hold the blocks that all of them lack",
    on=lambda stage: stage.connector,
    goes_on=True,
    explains_engine=_none_can_run,
)
