"""Finding 073: vLLM-Ascend's scheduler that recomputes takes a loaded part of a prompt for all of it."""

from __future__ import annotations

from kvgate.findings.finding import Finding

FINDING = Finding(
    id="073-part-of-a-load-counts-as-the-prompt",
    rank=73,
    statement="KV-OP-10",
    condition="vLLM-Ascend's scheduler that recomputes, and a load of less than the prompt",
    on=lambda stage: stage.connector,
    unrecognised="no case of that scheduler has other nodes",
)
