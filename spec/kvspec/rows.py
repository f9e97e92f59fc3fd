"""Rows of blocks: what one group has cached of one request, and the longest hit that it finds in it.

Full attention counts the blocks that are there from the first one on. A window looks for so many in a row as it reads.
Both look for one more block where a draft layer lives, the look-ahead block, drop it, and only then cut what is left to
the alignment.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import define

from kvspec.symbolic import Number, either


@define
class Row:
    """The row of one group."""

    cached: Sequence[Number]
    """Per block, whether it is cached: 0 or 1."""
    block_tokens: int
    alignment_tokens: int
    tokens: Number
    """How long the request is. Its last token is neither served nor matched."""
    window_blocks: int | None = None
    """How many blocks before a hit's end it reads; None: all."""
    lookahead: bool = False
    """Whether a draft layer lives here."""
    asked_before: bool = False
    rows: Sequence[Row] = ()
    """The rows of all groups, where one must know of the others."""

    @property
    def drop_tokens(self) -> int:
        """How many of the tokens that match are not served."""
        return self.block_tokens if self.lookahead else 0

    def __call__(self, hit_tokens: Number) -> Number:
        """The longest hit of at most ``hit_tokens`` that can be served here."""
        served = self.served(hit_tokens)
        self.asked_before = True
        return served

    def served(self, hit_tokens: Number) -> Number:
        """The longest hit: the look-ahead block behind it is looked for at whatever length is asked for."""
        return self.found(self.reach(hit_tokens + self.drop_tokens))

    def reach(self, tokens: Number) -> Number:
        """How far it may look: nothing matches the request's last token."""
        return either(tokens < self.tokens, tokens, self.tokens - 1)

    def found(self, reach: Number) -> Number:
        """The longest hit of which all that it needs, the look-ahead block too, ends within ``reach``."""
        longest: Number = 0
        in_a_row: Number = 0
        for index, cached in enumerate(self.cached):
            end = index + 1
            in_a_row = either(cached == 1, in_a_row + 1, 0)
            matches = (in_a_row >= self.needed(end)) & (end * self.block_tokens <= reach)
            longest = either(matches, self.cut(end), longest)
        return longest

    def needed(self, end: int) -> int:
        """How many blocks in a row before block ``end`` make a match that ends there, the dropped one among them.

        A shorter hit reads further back. So if what is left is cut, all blocks must be there, from the first one on.
        """
        exact = self.cut(end) == end * self.block_tokens - self.drop_tokens
        if self.window_blocks is None or not exact:
            return end
        return min(end, self.window_blocks + self.lookahead)

    def cut(self, end: int) -> int:
        """The hit that is served when the blocks before ``end`` match."""
        return self.aligned(end * self.block_tokens - self.drop_tokens)

    def aligned(self, tokens: int) -> int:
        """The longest hit that is not longer than ``tokens``."""
        return max(0, tokens // self.alignment_tokens * self.alignment_tokens)
