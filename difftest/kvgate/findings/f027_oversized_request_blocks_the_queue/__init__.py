"""Finding 027: A request that can never fit blocks the queue permanently."""

from kvgate.findings.finding import Finding

FINDING = Finding(
    id="027-oversized-request-blocks-the-queue",
    rank=27,
    statement="KV-LIVE-03",
    condition="a request that can never fit",
    unrecognised="No mark distinguishes it from another hang; kvgate check draws no request that can never fit.",
)
