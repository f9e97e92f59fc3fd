"""Finding 054: A session's part that begins inside a block of states is computed past the end of that block."""

from kvgate.findings.finding import Finding

FINDING = Finding(
    id="054-part-inside-a-state-block",
    rank=54,
    statement="KV-OP-05",
    condition="a session, states kept at block ends, and a part that begins inside a block",
    unrecognised="Another step than the reference's is no rule that a finding changes; kvgate check draws no session "
    "where states are kept at block ends.",
)
