"""Finding 025: The blocks of a load that was given up are never reclaimed if its end is never told."""

from kvgate.findings.finding import Finding

FINDING = Finding(
    id="025-aborted-load-never-reclaimed",
    rank=25,
    statement="KV-LEAK-01",
    condition="a load that is given up and never ends",
    unrecognised="No mark distinguishes it from another leak; every transfer that kvgate check draws ends.",
)
