"""Finding 016: A look-ahead block is kept for a replay that can hit nothing."""

from __future__ import annotations

from collections.abc import Callable

from kvgate.findings.finding import Acts, Finding
from kvgate.findings.replay_tails import ends_at, retains_some, when_reached
from kvreference.caching import due_tokens
from kvreference.geometry import Group
from kvreference.retention import Retention
from kvreference.rules import Delta
from kvreference.settings import Settings


def _acts(settings: Settings, _release: str) -> Acts:
    alignment = settings.geometry.alignment_tokens

    def due(
        due_tokens: Callable[..., int | None], retention: Retention, group: Group, index: int, prompt_tokens: int
    ) -> int | None:
        """A replay that is taken to resume at 0 has a look-ahead block there, in groups with a draft layer."""
        answer = due_tokens(retention, group, index, prompt_tokens)
        is_kept = group.slides and group.lookahead and (prompt_tokens - 1) // alignment < 2
        return (
            when_reached(settings, group, index) if answer is None and is_kept and ends_at(group, index, 0) else answer
        )

    return Acts([Delta(due_tokens.__name__, due)])


FINDING = Finding(
    id="016-look-ahead-kept-at-zero",
    rank=15,
    statement="KV-OP-15",
    condition="a retention interval and a group with look-ahead",
    where=lambda settings: retains_some(settings) and settings.geometry.lookahead_tokens > 0,
    acts=_acts,
    holds=lambda ideal, _answered, _retention, group, *_rest: ideal is None and group.lookahead,
)
