"""Finding 015: With a draft layer, retention keeps the tail of a boundary that a replay cannot resume at."""

from __future__ import annotations

from collections.abc import Collection

from kvgate.findings.finding import Finding
from kvgate.findings.shared_faults import KeepsReplays


class ReplayAboveItsLookAhead(KeepsReplays):
    """A replay is taken to resume at the last boundary before the prompt's last token, look-ahead or not."""

    def boundaries(self, prompt_tokens: int) -> Collection[int]:
        alignment = self.geometry.alignment_tokens
        return [(prompt_tokens - 1) // alignment * alignment]


FINDING = Finding(
    id="015-replay-above-its-look-ahead",
    rank=14,
    releases=("0.23.0",),
    fault=ReplayAboveItsLookAhead,
)
