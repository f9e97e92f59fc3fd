"""Finding 066: Where a failed load ends requests, what one computed that shares its blocks stays cached."""

from kvgate.findings.finding import Acts, Finding
from kvgate.monitors.slot_memory import FAILED_ELSEWHERE

FINDING = Finding(
    id="066-sharer-of-a-failed-load-stays-cached",
    rank=66,
    statement="KV-MEM-01",
    condition="a connector, failed loads that end requests, and another request with blocks of a failed load",
    on=lambda stage: stage.connector and stage.failed_loads_end,
    acts=lambda *_run: Acts(misreads=lambda misread: misread.mark == FAILED_ELSEWHERE),
)
