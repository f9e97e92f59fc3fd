"""Chapter 04: what a window gives up, nobody reads any more."""

from __future__ import annotations

from typing import Any

from kvreference.attention import SlidingWindow
from kvspec.obligation import Count, Obligation, only


def _blocks_dead(u: Any) -> Any:
    return SlidingWindow(u.window_tokens).tokens_dead(u.computed_tokens) // u.block_size_tokens


WINDOW = Obligation(
    id="attention-kinds.window-dead-is-unread",
    statements=("KV-OP-06", "KV-MEM-01"),
    sentence="A block that a sliding window gives up holds no token that a later token reads.",
    unknowns={
        "window_tokens": Count(2),
        "block_size_tokens": Count(1),
        "computed_tokens": Count(0),
        "later": Count(0),
        "read": Count(0),
    },
    given=lambda u: u.computed_tokens <= u.later and u.later - u.window_tokens < u.read and u.read <= u.later,
    shows=lambda u: u.read // u.block_size_tokens >= _blocks_dead(u),
    witnesses={"blocks are given up": lambda u: _blocks_dead(u) >= 2},
    mutants=(
        only(
            "window-a-token-short",
            "The window is taken to be a token shorter than it is.",
            "kvreference.attention:tokens_skipped",
            lambda tokens_computed, window_tokens: max(0, tokens_computed - window_tokens + 2),
        ),
    ),
)

OBLIGATIONS = (WINDOW,)
