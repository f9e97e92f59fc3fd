"""Which blocks a later request can reach, and from when on.

A hit ends at a *boundary*, a multiple of the alignment of all groups. Of a sliding window it reads the blocks just
before the boundary, and with a draft layer one block after it. So a block is worth caching only if there is an
*admitted* boundary from which it is read: a multiple of the retention interval, the last boundary from which the same
prompt can be replayed, or its *junction*, the last boundary before the prompt parts from what is cached. It is *due*
when the first of these is reached.

Everything here is in tokens, except for indices of blocks.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import frozen

GROUP_BYTES = 4


@frozen
class Reach:
    """What is reachable in one KV-cache group."""

    block_size_tokens: int
    skipped: Callable[[int], int]
    """How many leading tokens a resume at a boundary does not read."""
    lookahead_tokens: int
    """How much after a boundary must match here: one block with a draft layer, else 0."""
    interval_tokens: int
    """At which boundaries the group is kept; 0 if at none but the replay boundary."""

    def due(
        self, start: int, tokens: int, replay_tokens: int, junction_tokens: int = 0
    ) -> tuple[list[tuple[int, int]], int]:
        """Which blocks are cached once ``tokens`` are computed, of those from index ``start`` on.

        Returns:
            half-open ranges of indices, in order, and the index up to which no block has to be looked at again: what is
            full there is cached now or was passed over for good.
        """
        full = tokens // self.block_size_tokens
        reached = tokens - tokens % self.interval_tokens if self.interval_tokens else 0
        if self._end(max(reached, replay_tokens, junction_tokens)) <= start:
            # Most steps have passed all boundaries except the next one of the interval.
            following = self._first(reached + self.interval_tokens) if self.interval_tokens else full
            return [], min(full, max(start, following))
        # Up to here, every block is followed by a reached boundary of the interval. No later boundary reads it.
        settled = min(max(start, self._end(reached)), full)
        spans = self._at_intervals(start, settled, reached) if start < settled else []
        waiting: list[int] = [reached + self.interval_tokens] if self.interval_tokens else []
        kept = []
        for boundary_tokens in (replay_tokens, junction_tokens):
            # Most steps are past the prompt, and its boundaries no longer matter.
            if self._end(boundary_tokens) <= start:
                continue
            if boundary_tokens > tokens:
                waiting.append(boundary_tokens)
            else:
                kept.append((max(start, self._first(boundary_tokens)), min(full, self._end(boundary_tokens))))
        if kept:
            spans = _merged([*spans, *kept])
        return spans, full if settled == full else self._pending(settled, full, spans, waiting)

    def _first(self, boundary_tokens: int) -> int:
        """The first block that a hit at a boundary reads."""
        return self.skipped(boundary_tokens) // self.block_size_tokens

    def _end(self, boundary_tokens: int) -> int:
        """The first block after all that a hit at a boundary reads; at 0 there is none."""
        return (boundary_tokens + self.lookahead_tokens) // self.block_size_tokens if boundary_tokens else 0

    def _at_intervals(self, start: int, settled: int, reached_tokens: int) -> list[tuple[int, int]]:
        """What the boundaries of the interval read of the blocks from ``start`` on, all of them settled."""
        if self._first(reached_tokens) <= start:
            return [(start, settled)]
        # No boundary before this one has the first block's end in front of it.
        after_tokens = (start + 1) * self.block_size_tokens - self.lookahead_tokens
        nearest = max(1, -(-after_tokens // self.interval_tokens)) * self.interval_tokens
        return _merged(
            [
                (max(start, self._first(boundary_tokens)), min(settled, self._end(boundary_tokens)))
                for boundary_tokens in range(nearest, reached_tokens + 1, self.interval_tokens)
            ]
        )

    def _pending(self, settled: int, full: int, cached: list[tuple[int, int]], waiting: list[int]) -> int:
        """The first block that is full, not ``cached``, and due at a boundary of those ``waiting``; else ``full``."""
        pending = full
        for boundary_tokens in waiting:
            first = max(settled, self._first(boundary_tokens))
            # What a boundary that was reached reads from there on is cached with it, without a gap.
            first = next((end for begin, end in cached if begin <= first < end), first)
            if first < self._end(boundary_tokens):
                pending = min(pending, first)
        return pending


def _merged(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same ranges in order, those that touch as one, without empty ones."""
    merged: list[tuple[int, int]] = []
    for first, end in sorted(spans):
        if first >= end:
            continue
        if merged and first <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((first, end))
    return merged


@frozen
class Anchor:
    """What a hit reads at the last boundary that a window has passed, in one KV-cache group."""

    block_size_tokens: int
    skipped: Callable[[int], int]
    """How many leading tokens a resume at a boundary does not read."""
    lookahead_tokens: int
    alignment_tokens: int

    def before(self, end: int) -> tuple[int, int]:
        """Of the blocks before index ``end``, the half-open range of those that such a hit reads.

        What must match after the boundary is before ``end`` as well: nothing else of the group is needed.
        """
        return self.at(max(0, end * self.block_size_tokens - self.lookahead_tokens))

    def at(self, tokens: int) -> tuple[int, int]:
        """The half-open range of the blocks that the longest hit of up to ``tokens`` tokens reads."""
        boundary_tokens = tokens // self.alignment_tokens * self.alignment_tokens
        if not boundary_tokens:
            return 0, 0
        first = self.skipped(boundary_tokens) // self.block_size_tokens
        # Where a hit ends inside a block, a copy reads that block too.
        return first, -(-(boundary_tokens + self.lookahead_tokens) // self.block_size_tokens)


def last_boundary_tokens(tokens: int, alignment_tokens: int, lookahead_tokens: int) -> int:
    """The last boundary of which all that must match lies in the first ``tokens`` tokens."""
    return max(0, tokens - lookahead_tokens) // alignment_tokens * alignment_tokens


def replay_boundary_tokens(prompt_tokens: int, alignment_tokens: int, lookahead_tokens: int) -> int:
    """The last boundary from which a prompt can be replayed: what must match there ends before the last token."""
    return last_boundary_tokens(prompt_tokens - 1, alignment_tokens, lookahead_tokens)
