"""Finding 028: A window gives up blocks by counting drafts that are then rejected."""

from kvgate.findings.finding import Finding

FINDING = Finding(
    id="028-window-left-while-in-flight",
    rank=28,
    statement="KV-MEM-01",
    condition="a window, drafts and asynchronous steps",
    unrecognised="No mark distinguishes it from another block freed too early; kvgate check draws no drafts there.",
)
