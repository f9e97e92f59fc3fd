"""Finding 015: With a draft layer, retention keeps the tail of a boundary that a replay cannot resume at."""

from __future__ import annotations

from kvgate.findings.finding import Finding
from kvgate.findings.replay_tails import keeps_replays, retains_some
from kvreference.settings import Settings


def _above_its_look_ahead(settings: Settings, prompt_tokens: int) -> list[int]:
    """A replay is taken to resume at the last boundary before the prompt's last token, look-ahead or not."""
    alignment = settings.geometry.alignment_tokens
    return [(prompt_tokens - 1) // alignment * alignment]


FINDING = Finding(
    id="015-replay-above-its-look-ahead",
    rank=14,
    statement="KV-OP-15",
    condition="a retention interval and a group with look-ahead",
    where=lambda settings: retains_some(settings) and settings.geometry.lookahead_tokens > 0,
    acts=lambda settings, _release: keeps_replays(settings, _above_its_look_ahead),
)
