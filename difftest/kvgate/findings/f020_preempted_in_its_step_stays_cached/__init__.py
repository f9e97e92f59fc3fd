"""Finding 020: By priority, a block is cached that was to be written by a step that its request was taken out of."""

from kvgate.findings.finding import Acts, Finding
from kvgate.monitors.slot_memory import PREEMPTED

FINDING = Finding(
    id="020-preempted-in-its-step-stays-cached",
    rank=20,
    statement="KV-MEM-01",
    condition="priorities, and a request preempted in the step that was to write the block",
    on=lambda stage: stage.by_priority,
    acts=lambda *_run: Acts(misreads=lambda misread: misread.mark == PREEMPTED),
)
