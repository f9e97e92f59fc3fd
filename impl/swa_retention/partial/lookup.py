"""The longest hit: where hits may end inside blocks, and wherever retention leaves holes in windows.

It is the largest multiple of the unit at which every group is satisfied: all full blocks that a resume reads are
cached, and where what must match ends inside a block, that is an entry. Each group lowers the length to the next one
that it could serve, in turn, until none has to. The length only goes down, and each group remembers what it has seen:
so a block is looked up once at most, and the cost is linear in the request's length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice, takewhile
from typing import Any

from swa_retention.junctions import cached_in_order, cached_of
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
        # After the first missing block nothing can match, except the beginning of that block.
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
        found, cached, unit_tokens = self.found, self.cached, self.unit_tokens
        # Where a window has nothing, this is done once for each window in the prompt: no call that can be left out.
        skipped, block_tokens, lookahead_tokens = (
            self.group.skipped,
            self.group.block_tokens,
            self.group.lookahead_tokens,
        )
        while hit_tokens > 0:
            # The first that is missing rules out most.
            for index in range(skipped(hit_tokens) // block_tokens, (hit_tokens + lookahead_tokens) // block_tokens):
                if index in found:
                    continue
                block = cached(index)
                if block is None:
                    hit_tokens = (index * block_tokens - lookahead_tokens) // unit_tokens * unit_tokens
                    break
                found[index] = block
            else:
                return hit_tokens
        return 0

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


class LookUp:
    """The look-up of one block manager of vLLM; it takes the place of vLLM's own."""

    def __init__(self, pool: Any, groups: Sequence[Group], unit_tokens: int, worthwhile: Worthwhile) -> None:
        self.pool = pool
        self.groups = groups
        self.unit_tokens = unit_tokens
        """Every hit is a multiple of this."""
        self.worthwhile = worthwhile
        self.found: dict[int, int] = {}
        """By group of full attention, how many blocks from the first on the last look-up has found; at least."""
        # Full attention first: it needs all there is, and so lowers the length most. Then small blocks: keys of large
        # ones are made of many hashes, and where windows have nothing, the first of them rules out everything.
        self._order = sorted(groups, key=lambda group: (not group.is_full_attention, group.block_tokens))
        self._lookahead_tokens = max(group.lookahead_tokens for group in groups)

    def find(self, hashes: Sequence[bytes], tokens_max: int) -> tuple[tuple[Sequence[Any], ...], int]:
        """The longest hit of at most ``tokens_max`` tokens: per group its blocks, and its length in tokens."""
        self.found.clear()
        length = (tokens_max - self._lookahead_tokens) // self.unit_tokens * self.unit_tokens
        serving: dict[int, Leading | Window] = {}
        for group in self._order:
            each = serving[group.index] = self._serving(group, hashes, tokens_max)
            length = each.at_most(length)
            if length <= 0:
                # Most prompts are new: the first group has nothing of them, and no other is asked.
                return tuple([[] for _ in self.groups]), 0
        hit = longest(length, [self.worthwhile.at_most, *(each.at_most for each in serving.values())])
        return tuple([self._blocks(serving[group.index], hashes, hit) for group in self.groups]), hit

    def _serving(self, group: Group, hashes: Sequence[bytes], tokens_max: int) -> Leading | Window:
        at = self.pool, hashes, group.index, group.block_tokens
        if not group.is_full_attention:
            return Window(group, self.unit_tokens, cached_of(*at), self.pool.null_block)
        cached = takewhile(bool, islice(cached_in_order(*at), tokens_max // group.block_tokens))
        leading = Leading(
            group, self.unit_tokens, cached, lambda end_tokens: self._entry(hashes, group.index, end_tokens)
        )
        self.found[group.index] = len(leading.found)
        return leading

    def _entry(self, hashes: Sequence[bytes], group: int, end_tokens: int) -> Any:
        """The block of ``group`` that begins with the first ``end_tokens`` tokens, or None."""
        raise NotImplementedError("no hit ends inside a block")

    def _blocks(self, serving: Leading | Window, _hashes: Sequence[bytes], hit_tokens: int) -> Sequence[Any]:
        """What serves a hit in one group."""
        return serving.blocks(hit_tokens)


def with_source(leading: Leading, hit_tokens: int, key: bytes) -> HitBlocks:
    """What serves a hit that ends inside a block."""
    group = leading.group
    source = Source(group.index, leading.source(hit_tokens), hit_tokens % group.block_tokens, key)
    return HitBlocks(leading.blocks(hit_tokens), source)
