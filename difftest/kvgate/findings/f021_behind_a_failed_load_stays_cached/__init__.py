"""Finding 021: Blocks after a failed load stay cached while they are computed again, and for good if they never are."""

from kvgate.findings.finding import Acts, Finding
from kvgate.monitors.slot_memory import FAILED, FAILED_ELSEWHERE
from kvreference.manager import blocks_still_valid
from kvreference.rules import Delta

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
    holds=lambda ideal, answered, valid, blocks: ideal == valid < answered == blocks,
)
