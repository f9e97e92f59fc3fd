"""Finding 022: Blocks that a step in flight still writes are given to a load."""

from kvgate.findings.engine_state import reads_marked
from kvgate.findings.finding import Finding
from kvgate.monitors.slot_memory import LATE

FINDING = Finding(
    id="022-given-up-while-in-flight",
    rank=22,
    explains_engine=reads_marked(LATE, lambda stage: stage.asynchronous and stage.connector),
)
