"""Finding 016: A look-ahead block is kept for a replay that can hit nothing."""

from __future__ import annotations

from kvgate.findings.finding import Finding
from kvgate.findings.replay_tails import keeps_replays, retains_some
from kvreference.settings import Settings


def _kept_at_zero(settings: Settings, prompt_tokens: int) -> list[int]:
    """A replay that cannot resume anywhere is taken to resume at 0, where its look-ahead block is kept."""
    alignment = settings.geometry.alignment_tokens
    if not settings.geometry.lookahead_tokens:
        return [(prompt_tokens - 1) // alignment * alignment]
    ends = prompt_tokens - 1, prompt_tokens
    return [max(end // alignment - 1, 0) * alignment for end in ends]


FINDING = Finding(
    id="016-look-ahead-kept-at-zero",
    rank=15,
    statement="KV-OP-15",
    condition="a retention interval and a group with look-ahead",
    where=lambda settings: retains_some(settings) and settings.geometry.lookahead_tokens > 0,
    acts=lambda settings, _release: keeps_replays(settings, _kept_at_zero),
)
