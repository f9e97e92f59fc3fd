"""Finding 045: Drafts that were accepted after a part's last answer count as computed tokens of the next part."""

from kvgate.findings.finding import Finding

FINDING = Finding(
    id="045-drafts-after-a-part-count-as-computed",
    rank=45,
    statement="KV-SYS-02",
    condition="a session with drafts, of which a part reaches its most answers within a step",
    unrecognised="No mark distinguishes it from another wrong count; kvgate check draws no session with drafts.",
)
