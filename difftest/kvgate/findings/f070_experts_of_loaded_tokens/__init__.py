"""Finding 070: The experts that are returned for tokens that were loaded are those of other tokens, or none."""

from kvgate.findings.finding import Finding

FINDING = Finding(
    id="070-experts-of-loaded-tokens",
    rank=70,
    statement="KV-SYS-05",
    condition="experts are returned of a request of which tokens were loaded",
    unrecognised="What should be returned for a token whose experts were chosen on another node is not decided; kvgate "
    "check returns no experts where there is a connector.",
)
