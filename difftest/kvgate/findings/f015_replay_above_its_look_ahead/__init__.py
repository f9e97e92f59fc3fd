"""Finding 015: With a draft layer, retention keeps the tail of a boundary that a replay cannot resume at."""

from __future__ import annotations

from kvgate.findings.finding import Finding
from kvgate.findings.replay_tails import keeps_replays, retains_some
from kvreference.geometry import Group
from kvreference.retention import Sparse, replay_boundary
from kvreference.settings import Settings


def _above_its_look_ahead(settings: Settings, prompt_tokens: int) -> list[int]:
    """A replay is taken to resume at the last boundary before the prompt's last token, look-ahead or not."""
    alignment = settings.geometry.alignment_tokens
    return [(prompt_tokens - 1) // alignment * alignment]


def _is_an_alignment_above_at_most(
    _ideal: int | None, _answered: int | None, retention: Sparse, _group: Group, _index: int, prompt_tokens: int
) -> bool:
    geometry = retention.geometry
    above = (prompt_tokens - 1) // geometry.alignment_tokens * geometry.alignment_tokens
    return 0 <= above - replay_boundary(geometry, prompt_tokens) <= geometry.alignment_tokens


FINDING = Finding(
    id="015-replay-above-its-look-ahead",
    rank=14,
    statement="KV-OP-15",
    condition="a retention interval and a group with look-ahead",
    where=lambda settings: retains_some(settings) and settings.geometry.lookahead_tokens > 0,
    acts=lambda settings, _release: keeps_replays(settings, _above_its_look_ahead),
    holds=_is_an_alignment_above_at_most,
)
