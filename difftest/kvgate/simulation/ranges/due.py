"""Which blocks are due to be cached, in ranges; the sentence is ``kvreference.retention``'s.

A boundary that is admitted makes the blocks that a hit there reads worth caching. So the due blocks come in ranges, one
for each multiple of the interval, one for the replay boundary and one for the junction; between them nothing is cached.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from kvreference.geometry import Geometry, Group
from kvreference.retention import next_boundary

Ranges: TypeAlias = list[tuple[int, int]]


class Dense:
    """Every block of a group is due when it is full."""

    def __init__(self, group: Group) -> None:
        self.block_size_tokens = group.block_size_tokens

    def take(self, start: int, tokens: int, single_tokens: Sequence[int]) -> tuple[Ranges, int]:
        """The due blocks from index ``start`` on, and up to where everything was looked at.

        ``tokens`` are scheduled; ``single_tokens`` are the replay boundary and the junction, for which a dense cache
        does not ask.
        """
        del single_tokens
        full = tokens // self.block_size_tokens
        return ([(start, full)] if start < full else []), max(start, full)


class Sparse:
    """A block of a group is due when the first admitted boundary that needs it is reached, and it is full."""

    def __init__(self, geometry: Geometry, group: Group, interval_tokens: int) -> None:
        self.group = group
        self.block_size_tokens = group.block_size_tokens
        self.interval_tokens = interval_tokens if group.is_sparse else geometry.alignment_tokens
        self._needed: dict[int, tuple[int, int]] = {}

    def take(self, start: int, tokens: int, single_tokens: Sequence[int]) -> tuple[Ranges, int]:
        """The due blocks from index ``start`` on, and up to where everything was looked at."""
        full = tokens // self.block_size_tokens
        single = [(each, *self._blocks_needed(each)) for each in single_tokens if each]
        ranges: Ranges = []
        position = start
        while position < full:
            boundary, first, end = self._next(position, full)
            reads = first <= position
            stop = min(full, end if reads else first)
            serving = [boundary] if reads else []
            for each, its_first, its_end in single:
                if its_first <= position < its_end:
                    serving.append(each)
                    stop = min(stop, its_end)
                elif position < its_first:
                    stop = min(stop, its_first)
            if serving:
                if min(serving) > tokens:
                    return ranges, position
                if ranges and ranges[-1][1] == position:
                    ranges[-1] = ranges[-1][0], stop
                else:
                    ranges.append((position, stop))
            position = stop
        return ranges, position

    def _next(self, position: int, full: int) -> tuple[int, int, int]:
        """The first multiple of the interval after a block, and what a hit there reads; beyond all if there is none.

        What is from ``position`` on and read by a later multiple is read by this one as well.
        """
        if not self.interval_tokens:
            return 0, full, full
        group = self.group
        boundary = next_boundary(position, self.interval_tokens, self.block_size_tokens, group.lookahead_tokens)
        return boundary, *self._blocks_needed(boundary)

    def _blocks_needed(self, boundary: int) -> tuple[int, int]:
        needed = self._needed.get(boundary)
        if needed is None:
            needed = self._needed[boundary] = self.group.blocks_needed(boundary)
        return needed
