"""Finding 022: Blocks that a step in flight still writes are given to a load."""

from kvgate.findings.finding import Acts, Finding
from kvgate.monitors.slot_memory import LATE

FINDING = Finding(
    id="022-given-up-while-in-flight",
    rank=22,
    statement="KV-MEM-01",
    condition="asynchronous steps and a connector",
    on=lambda stage: stage.asynchronous and stage.connector,
    acts=lambda *_run: Acts(misreads=lambda misread: misread.mark == LATE),
)
