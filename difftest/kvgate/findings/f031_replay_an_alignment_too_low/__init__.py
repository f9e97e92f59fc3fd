"""Finding 031: Where look-ahead is shorter than the alignment, retention keeps a replay a whole alignment too low."""

from __future__ import annotations

from kvgate.findings.finding import Finding
from kvgate.findings.replay_tails import keeps_replays, retains_some
from kvreference.geometry import Group
from kvreference.retention import Sparse, replay_boundary
from kvreference.settings import Settings


def _an_alignment_lower(settings: Settings, prompt_tokens: int) -> list[int]:
    """The last alignment before the prompt's end less a whole alignment, as if look-ahead were as long as that."""
    alignment = settings.geometry.alignment_tokens
    lowered = ((end // alignment - 1) * alignment for end in (prompt_tokens - 1, prompt_tokens))
    return [boundary for boundary in lowered if boundary > 0]


def _is_an_alignment_off_at_most(
    _ideal: int | None, _answered: int | None, retention: Sparse, _group: Group, _index: int, prompt_tokens: int
) -> bool:
    geometry = retention.geometry
    below = max(0, prompt_tokens // geometry.alignment_tokens - 1) * geometry.alignment_tokens
    return abs(replay_boundary(geometry, prompt_tokens) - below) <= geometry.alignment_tokens


FINDING = Finding(
    id="031-replay-an-alignment-too-low",
    rank=2,
    statement="KV-OP-15",
    condition="a retention interval, and look-ahead that is not longer than the alignment",
    where=lambda settings: (
        retains_some(settings) and 0 < settings.geometry.lookahead_tokens <= settings.geometry.alignment_tokens
    ),
    acts=lambda settings, _release: keeps_replays(settings, _an_alignment_lower),
    holds=_is_an_alignment_off_at_most,
)
