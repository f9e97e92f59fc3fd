"""Finding 054: A session's part that begins inside a block of states is computed past the end of that block."""

from kvgate.findings.finding import Finding

FINDING = Finding(
    id="054-part-inside-a-state-block",
    rank=54,
    statement="KV-OP-05",
    condition="a session, states kept at block ends, and a part that begins inside a block",
    unrecognised=(
        "A finding cannot change which step is taken; kvgate check generates no session where states are "
        "kept at block ends."
    ),
)
