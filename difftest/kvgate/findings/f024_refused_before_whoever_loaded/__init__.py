"""Finding 024: One rejected request ends the scan of the queue, although later requests hold the blocks it needs."""

from __future__ import annotations

from kvgate.findings.engine_state import can_run, holders_waiting
from kvgate.findings.finding import Engine, Finding
from kvgate.kernel.difference import Divergence


def _one_can_run(divergence: Divergence, engine: Engine) -> bool:
    """A request that holds blocks could run, and is not asked because a request before it is rejected."""
    return any(can_run(engine, number) for number in holders_waiting(divergence, engine))


FINDING = Finding(
    id="024-refused-before-whoever-loaded",
    rank=24,
    statement="KV-LIVE-03",
    condition="a request that is rejected before others that hold the blocks it lacks and could run",
    on=lambda stage: stage.connector,
    goes_on=True,
    explains_engine=_one_can_run,
)
