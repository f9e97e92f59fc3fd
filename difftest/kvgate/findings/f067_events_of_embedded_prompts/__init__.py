"""Finding 067: Events of an embedded prompt have token 0 for each of its embeddings."""

from kvgate.findings.finding import Finding

FINDING = Finding(
    id="067-events-of-embedded-prompts",
    rank=67,
    statement="KV-OP-12",
    condition="an embedded prompt, with events enabled",
    unrecognised=(
        "The reference has no tokens that stand for embeddings; kvgate check generates no embedded prompt "
        "with events enabled."
    ),
)
