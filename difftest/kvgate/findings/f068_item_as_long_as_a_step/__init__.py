"""Finding 068: With a draft layer, an item that is as long as a step and may not be chunked is never computed."""

from kvgate.findings.finding import Finding

FINDING = Finding(
    id="068-item-as-long-as-a-step",
    rank=68,
    statement="KV-LIVE-03",
    condition="a draft layer, and an item that is read in one step and not shorter than a step of one prompt",
    unrecognised="No mark distinguishes it from another hang; kvgate check draws no whole item without a step that "
    "computes a token more of one prompt.",
)
