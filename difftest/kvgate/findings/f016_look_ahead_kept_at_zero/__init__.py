"""Finding 016: A look-ahead block is kept for a replay that can hit nothing."""

from __future__ import annotations

from collections.abc import Collection

from kvgate.findings.finding import Finding
from kvgate.findings.shared_faults import KeepsReplays


class LookAheadKeptAtZero(KeepsReplays):
    """A replay that cannot resume anywhere is taken to resume at 0, where its look-ahead block is kept."""

    def boundaries(self, prompt_tokens: int) -> Collection[int]:
        alignment = self.geometry.alignment_tokens
        if not self.geometry.lookahead_tokens:
            return [(prompt_tokens - 1) // alignment * alignment]
        ends = prompt_tokens - 1, prompt_tokens
        return [max(end // alignment - 1, 0) * alignment for end in ends]


FINDING = Finding(
    id="016-look-ahead-kept-at-zero",
    rank=15,
    releases=("0.33.0",),
    fault=LookAheadKeptAtZero,
)
