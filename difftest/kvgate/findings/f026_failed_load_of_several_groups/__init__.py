"""Finding 026: A failed load ends the process where there are several groups."""

from kvgate.findings.finding import Finding

FINDING = Finding(
    id="026-failed-load-of-several-groups",
    rank=26,
    statement="KV-SYS-01",
    condition="a load that fails, and several groups",
    unrecognised="No mark distinguishes it from another exception; kvgate check fails no load with several groups.",
)
