"""Finding 021: Blocks after a failed load stay cached while they are computed again, and for good if they never are."""

from typing import Any

from kvgate.findings.failed_load import left_by_failed_load
from kvgate.findings.finding import Acts, Finding
from kvgate.kernel.difference import Divergence
from kvgate.monitors.slot_memory import FAILED, FAILED_ELSEWHERE
from kvreference.manager import blocks_still_valid
from kvreference.rules import Delta


def _is_hit(divergence: Divergence, engine: Any) -> bool:
    """A request that is to compute again has its blocks cached, and another hits them, or itself once preempted."""
    shown = left_by_failed_load(divergence, engine)
    return shown is not None and not engine.stage.failed_loads_end and not shown.failure.is_late


FINDING = Finding(
    id="021-behind-a-failed-load-stays-cached",
    rank=21,
    statement="KV-MEM-01",
    condition="a connector, and a load that failed while what follows it was cached",
    on=lambda stage: stage.connector and not stage.failed_loads_end,
    # All of it stays cached.
    acts=lambda *_run: Acts(
        [Delta(blocks_still_valid.__name__, lambda _rule, _valid, blocks: blocks)],
        misreads=lambda misread: misread.mark in (FAILED, FAILED_ELSEWHERE),
    ),
    explains_tiers=_is_hit,
    holds=lambda ideal, answered, valid, blocks: ideal == valid < answered == blocks,
)
