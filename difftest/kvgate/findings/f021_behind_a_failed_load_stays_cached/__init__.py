"""Finding 021: What is behind a failed load stays cached while it is computed again, and for good if it never is."""

from kvgate.findings.engine_state import reads_marked
from kvgate.findings.finding import Finding
from kvgate.monitors.slot_memory import FAILED

FINDING = Finding(
    id="021-behind-a-failed-load-stays-cached",
    rank=21,
    explains_engine=reads_marked(FAILED, lambda stage: stage.connector and not stage.failed_loads_end),
)
