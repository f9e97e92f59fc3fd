"""The longest hit, where hits may end inside blocks.

It is the largest multiple of the unit at which every group is satisfied: all full blocks that a resume reads are
cached, and where what must match ends inside a block, that is an entry. Each group lowers the length to the next one
that it could serve, in turn, until none has to. The length only goes down, and each group remembers what it has seen:
so a block is looked up once at most, and the cost is linear in the request's length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from swa_retention.partial.groups import Group
from swa_retention.partial.hit import HitBlocks, Source


class Leading:
    """Full attention: every block from the first on must be there."""

    def __init__(self, group: Group, unit_tokens: int, cached: Iterable[Any], entry: Callable[[int], Any]) -> None:
        self.group = group
        self.unit_tokens = unit_tokens
        self.found = list(cached)
        """The leading blocks that are cached, without a gap."""
        self.entry = entry
        """The block that begins with the request's first so many tokens, or None."""

    def at_most(self, hit_tokens: int) -> int:
        """``hit_tokens`` if the group can serve that, else the next lower length that it may be able to serve.

        Where the end lies inside a block, every length down to the next entry is tried.
        """
        size = self.group.block_tokens
        # What lies behind the first block that is missing cannot match, except for what that block begins with.
        longest = (len(self.found) + self.group.copies) * size - self.group.lookahead_tokens
        if longest < hit_tokens:
            hit_tokens = max(0, longest) // self.unit_tokens * self.unit_tokens
        while hit_tokens > 0 and not self._ends(self.group.tokens_matched(hit_tokens)):
            hit_tokens -= self.unit_tokens
        return hit_tokens

    def _ends(self, matched_tokens: int) -> bool:
        """Whether what is cached may end there."""
        full, inside = divmod(matched_tokens, self.group.block_tokens)
        return full <= len(self.found) and (not inside or self.entry(matched_tokens) is not None)

    def source(self, hit_tokens: int) -> Any:
        """The block that begins with what a hit must match, or ends with it."""
        matched = self.group.tokens_matched(hit_tokens)
        full, inside = divmod(matched, self.group.block_tokens)
        return self.entry(matched) if inside else self.found[full - 1]

    def blocks(self, hit_tokens: int) -> list[Any]:
        """The blocks that serve ``hit_tokens``, which the group can serve."""
        return self.found[: hit_tokens // self.group.block_tokens]


class Window:
    """A window: the blocks before the end must be there, and nothing before them."""

    def __init__(self, group: Group, unit_tokens: int, cached: Callable[[int], Any], null: Any) -> None:
        self.group = group
        self.unit_tokens = unit_tokens
        self.cached = cached
        """The cached block at an index of the request, or None."""
        self.null = null
        self.found: dict[int, Any] = {}
        """Neighbouring blocks that are cached, by index."""

    def at_most(self, hit_tokens: int) -> int:
        """The same for a window: a block that is missing rules out every length that reads it."""
        while hit_tokens > 0:
            missing = self._missing(hit_tokens)
            if missing is None:
                return hit_tokens
            behind = missing * self.group.block_tokens - self.group.lookahead_tokens
            hit_tokens = max(0, behind) // self.unit_tokens * self.unit_tokens
        return 0

    def _missing(self, hit_tokens: int) -> int | None:
        """The first block that a hit of ``hit_tokens`` reads and that is not cached; None if there is none.

        The first rules out most: where a window has nothing, it is one look-up for each window, and not for each block.
        """
        first, end = self.group.blocks_needed(hit_tokens)
        for index in range(first, end):
            if index in self.found:
                continue
            block = self.cached(index)
            if block is None:
                return index
            self.found[index] = block
        return None

    def blocks(self, hit_tokens: int) -> list[Any]:
        """The same for a window: nothing is read before it."""
        first, _ = self.group.blocks_needed(hit_tokens)
        end = hit_tokens // self.group.block_tokens
        return [*(self.null,) * first, *(self.found[index] for index in range(first, end))]


class Worthwhile:
    """The minimum: a hit that is shorter ends inside no block, for it is not worth a copy."""

    def __init__(self, tokens_min: int, whole_tokens: int) -> None:
        self.tokens_min = tokens_min
        self.whole_tokens = whole_tokens
        """At multiples of this, blocks end in every group."""

    def at_most(self, hit_tokens: int) -> int:
        """``hit_tokens`` if it is long enough, else the next lower length at which blocks end in every group."""
        return hit_tokens if hit_tokens >= self.tokens_min else hit_tokens // self.whole_tokens * self.whole_tokens


def longest(length: int, groups: Sequence[Callable[[int], int]]) -> int:
    """The longest length, of at most ``length``, that no group lowers."""
    while True:
        before = length
        for at_most in groups:
            length = at_most(length)
        if length == before:
            return length


def with_source(leading: Leading, hit_tokens: int, key: bytes) -> HitBlocks:
    """What serves a hit that ends inside a block."""
    group = leading.group
    source = Source(group.index, leading.source(hit_tokens), hit_tokens % group.block_tokens, key)
    return HitBlocks(leading.blocks(hit_tokens), source)
