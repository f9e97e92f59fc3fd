"""Finding 031: Where look-ahead is shorter than the alignment, retention keeps a replay a whole alignment too low."""

from __future__ import annotations

from kvgate.findings.finding import Finding
from kvgate.findings.replay_tails import keeps_replays, retains_some
from kvreference.settings import Settings


def _an_alignment_lower(settings: Settings, prompt_tokens: int) -> list[int]:
    """The last alignment before the prompt's end less a whole alignment, as if look-ahead were as long as that."""
    alignment = settings.geometry.alignment_tokens
    lowered = ((end // alignment - 1) * alignment for end in (prompt_tokens - 1, prompt_tokens))
    return [boundary for boundary in lowered if boundary > 0]


FINDING = Finding(
    id="031-replay-an-alignment-too-low",
    rank=2,
    statement="KV-OP-15",
    condition="a retention interval, and look-ahead shorter than the alignment",
    where=lambda settings: (
        retains_some(settings) and 0 < settings.geometry.lookahead_tokens < settings.geometry.alignment_tokens
    ),
    acts=lambda settings, _release: keeps_replays(settings, _an_alignment_lower),
)
