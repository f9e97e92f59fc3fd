"""Finding 020: By priority, a block is cached that was to be written by a step that its request was taken out of."""

from kvgate.findings.engine_state import reads_marked
from kvgate.findings.finding import Finding
from kvgate.monitors.slot_memory import PREEMPTED

FINDING = Finding(
    id="020-preempted-in-its-step-stays-cached",
    rank=20,
    explains_engine=reads_marked(PREEMPTED, lambda stage: stage.by_priority),
)
