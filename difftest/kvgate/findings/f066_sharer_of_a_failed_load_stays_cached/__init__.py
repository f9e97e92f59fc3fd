"""Finding 066: Where a failed load ends requests, what one computed that shares its blocks stays cached."""

from typing import Any

from kvgate.findings.failed_load import left_by_failed_load
from kvgate.findings.finding import Acts, Finding
from kvgate.kernel.difference import Divergence
from kvgate.monitors.slot_memory import FAILED_ELSEWHERE


def _is_of_a_sharer(divergence: Divergence, engine: Any) -> bool:
    """It was computed by another request than that whose load has failed."""
    shown = left_by_failed_load(divergence, engine)
    is_it = shown is not None and engine.stage.failed_loads_end
    return is_it and shown.computed_by not in ("", shown.failure.request)


FINDING = Finding(
    id="066-sharer-of-a-failed-load-stays-cached",
    rank=66,
    statement="KV-MEM-01",
    condition="a connector, failed loads that end requests, and another request with blocks of a failed load",
    on=lambda stage: stage.connector and stage.failed_loads_end,
    explains_tiers=_is_of_a_sharer,
    acts=lambda *_run: Acts(misreads=lambda misread: misread.mark == FAILED_ELSEWHERE),
)
