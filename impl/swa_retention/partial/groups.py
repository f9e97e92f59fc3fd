"""What partial hits ask of one KV-cache group of a block manager."""

from __future__ import annotations

from collections.abc import Callable

from attrs import frozen


@frozen
class Group:
    """One group, in tokens."""

    index: int
    block_tokens: int
    lookahead_tokens: int
    """How many tokens more than it serves a hit must match here: a block, or where hits are copied a unit, with a draft
    layer; else 0."""
    copies: bool
    """Whether a hit may end inside a block."""
    is_full_attention: bool
    skipped: Callable[[int], int]
    """How many leading tokens a resume does not read."""

    def blocks_needed(self, hit_tokens: int) -> tuple[int, int]:
        """The half-open range of indices of the full blocks that must be cached to resume at ``hit_tokens``."""
        return self.skipped(hit_tokens) // self.block_tokens, self.tokens_matched(hit_tokens) // self.block_tokens

    def tokens_matched(self, hit_tokens: int) -> int:
        """How many tokens must match for a hit of ``hit_tokens``."""
        return hit_tokens + self.lookahead_tokens
