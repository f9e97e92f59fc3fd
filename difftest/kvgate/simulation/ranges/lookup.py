"""The longest hit in ranges: the sentence of ``kvreference.hit_lookup``, asked of ranges of blocks.

What a resume at a length needs is ``Group.blocks_needed``. Where it is not all there, no shorter length helps that
needs the same gap, so the next one to try is the longest that ends before it.
"""

from __future__ import annotations

from kvgate.simulation.ranges.content import Path
from kvgate.simulation.ranges.pool import Span
from kvreference.geometry import Geometry, Group


class _Found:
    """What is cached of one request in one group."""

    def __init__(self, group: Group, index: int, path: Path) -> None:
        self.group = group
        self.index = index
        self.path = path
        self._complete = 0, 0
        """A range of blocks that are known to be there."""

    def gap(self, hit_tokens: int) -> int | None:
        """Where the first gap begins of the blocks that a resume at ``hit_tokens`` needs; None if all are there.

        The gap may begin before the first block needed.
        """
        first, end = self.group.blocks_needed(hit_tokens)
        if self._complete[0] <= first and end <= self._complete[1]:
            return None
        index = first
        while index < end:
            line, start, stop = self.path.segment_of(self.group.block_size_tokens, index)
            there, until, row = line.serving[self.index].locate(index)
            if row is None:
                return max(there, start)
            assert until is not None
            index = until if stop is None else min(until, stop)
        self._complete = first, end
        return None

    def before_gap(self, gap: int, hit_tokens: int) -> int:
        """A bound on the hits below ``hit_tokens`` that do without the gap, in tokens.

        What full attention and windows need ends with the hit, so it must end before the gap. Attention chunks may
        need nothing at all.
        """
        if not (self.group.keeps_all or self.group.slides):
            return hit_tokens - 1
        return (gap + 1) * self.group.block_size_tokens - 1 - self.group.lookahead_tokens

    def spans(self, hit_tokens: int) -> list[Span]:
        """The full blocks of the hit that a later token reads."""
        index = self.group.blocks_unread(hit_tokens)
        end = hit_tokens // self.group.block_size_tokens
        spans: list[Span] = []
        while index < end:
            line, _, stop = self.path.segment_of(self.group.block_size_tokens, index)
            _, until, row = line.serving[self.index].locate(index)
            assert row is not None, "a satisfied group has its blocks"
            assert until is not None
            until = min(until, end) if stop is None else min(until, stop, end)
            if spans and spans[-1][0] is row:
                spans[-1] = row, spans[-1][1], until
            else:
                spans.append((row, index, until))
            index = until
        return spans


def longest_hit(geometry: Geometry, path: Path, tokens: int) -> tuple[int, list[list[Span]]]:
    """The longest hit of a request of ``tokens`` tokens along ``path``, and per group the blocks that serve it."""
    found = [_Found(group, index, path) for index, group in enumerate(geometry.groups)]
    # A gap in a group that keeps everything rules out most.
    eager = sorted(found, key=lambda each: not each.group.keeps_all)
    alignment = geometry.alignment_tokens
    longest = tokens - 1 - geometry.lookahead_tokens
    hit_tokens = longest // alignment * alignment
    while hit_tokens > 0:
        for each in eager:
            gap = each.gap(hit_tokens)
            if gap is not None:
                hit_tokens = min(hit_tokens - 1, each.before_gap(gap, hit_tokens)) // alignment * alignment
                break
        else:
            return hit_tokens, [each.spans(hit_tokens) for each in found]
    return 0, [[] for _ in found]


def tokens_known(geometry: Geometry, path: Path, tokens: int, hit_tokens: int) -> int:
    """How many of a request's first ``tokens`` tokens are cached in whole blocks of full attention, at most."""
    longest = 0
    for index, group in enumerate(geometry.groups):
        if group.keeps_all:
            size = group.block_size_tokens
            end = hit_tokens // size
            while end < tokens // size:
                line, _, stop = path.segment_of(size, end)
                _, until, row = line.serving[index].locate(end)
                if row is None:
                    break
                assert until is not None
                end = min(until if stop is None else min(until, stop), tokens // size)
            longest = max(longest, end * size)
    return longest
