"""Finding 025: The blocks of an aborted load are never reclaimed if its end is never reported."""

from kvgate.findings.finding import Finding

FINDING = Finding(
    id="025-aborted-load-never-reclaimed",
    rank=25,
    statement="KV-LEAK-01",
    condition="a load that is aborted and never ends",
    unrecognised="No mark distinguishes it from another leak; every transfer that kvgate check draws ends.",
)
