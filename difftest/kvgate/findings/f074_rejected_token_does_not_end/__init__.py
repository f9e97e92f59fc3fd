"""Finding 074: vLLM-Ascend's scheduler that recomputes continues a request whose grammar rejected a token."""

from __future__ import annotations

from kvgate.findings.finding import Finding

FINDING = Finding(
    id="074-rejected-token-does-not-end",
    rank=74,
    statement="KV-SYS-02",
    condition="vLLM-Ascend's scheduler that recomputes, and a grammar that rejects what was sampled",
    on=lambda _stage: True,
    unrecognised="no case of that scheduler has such a grammar",
)
