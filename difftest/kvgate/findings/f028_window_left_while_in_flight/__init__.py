"""Finding 028: A window gives up blocks by counting drafts that are then rejected."""

from kvgate.findings.finding import Acts, Finding
from kvgate.monitors.slot_memory import NO_BLOCK
from kvreference.holdings import blocks_left
from kvreference.rules import Delta

FINDING = Finding(
    id="028-window-left-while-in-flight",
    rank=28,
    statement="KV-MEM-01",
    condition="a window, drafts and asynchronous steps",
    where=lambda settings: settings.drafts_max > 0 and not all(group.keeps_all for group in settings.geometry.groups),
    on=lambda stage: stage.asynchronous,
    # Drafts in flight count as computed for good.
    acts=lambda *_run: Acts(
        [Delta(blocks_left.__name__, lambda _rule, _surely, counted: counted)],
        misreads=lambda misread: misread.got == NO_BLOCK,
    ),
    holds=lambda ideal, answered, surely, counted: ideal == surely < answered == counted,
)
