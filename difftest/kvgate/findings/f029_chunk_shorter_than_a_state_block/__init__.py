"""Finding 029: A chunk shorter than a block of states is rounded down to nothing in every step, so the request never
finishes."""

from kvgate.findings.finding import Finding

FINDING = Finding(
    id="029-chunk-shorter-than-a-state-block",
    rank=29,
    statement="KV-LIVE-03",
    condition="a chunk shorter than a block of states",
    unrecognised="No mark distinguishes it from another hang; kvgate check draws no chunk shorter than a state block.",
)
