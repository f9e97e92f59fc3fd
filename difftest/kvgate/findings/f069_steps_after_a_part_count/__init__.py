"""Finding 069: What a step in flight computes and answers after a session's part has ended still counts."""

from kvgate.findings.finding import Finding

FINDING = Finding(
    id="069-steps-after-a-part-count",
    rank=69,
    statement="KV-SYS-02",
    condition="a session, asynchronous steps, and a part that a token stops while a step with it is in flight",
    unrecognised="No mark distinguishes it from another wrong count; kvgate check draws no session where steps are "
    "asynchronous.",
)
