"""Finding 022: Blocks that a step in flight still writes are given to a load."""

from kvgate.findings.finding import Acts, Finding
from kvgate.monitors.slot_memory import LATE
from kvreference.ahead import is_fenced
from kvreference.rules import Delta

FINDING = Finding(
    id="022-given-up-while-in-flight",
    rank=22,
    statement="KV-MEM-01",
    condition="asynchronous steps and a connector",
    where=lambda settings: settings.loads_out_of_turn,
    on=lambda stage: stage.asynchronous and stage.connector,
    # No free waits for a step.
    acts=lambda *_run: Acts(
        [Delta(is_fenced.__name__, lambda _rule, _request: False)],
        misreads=lambda misread: misread.mark == LATE,
    ),
    holds=lambda ideal, answered, request: ideal and not answered and bool(request.in_flight),
)
