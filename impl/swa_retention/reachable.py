"""Which blocks a later request can reach, and from when on.

A hit ends at a *boundary*, a multiple of the alignment of all groups. Of a sliding window it reads the blocks just
before the boundary, and with a draft layer one block behind it. So a block is worth caching only if there is an
*admitted* boundary from which it is read: a multiple of the retention interval, or the last boundary from which the
same prompt can be replayed. It is *due* when the first of these is reached.

Everything here is in tokens, except for indices of blocks.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import frozen


@frozen
class Reach:
    """What is reachable in one KV-cache group."""

    block_size_tokens: int
    skipped: Callable[[int], int]
    """How many leading tokens a resume at a boundary does not read."""
    lookahead_tokens: int
    """How much behind a boundary must match here: one block with a draft layer, else 0."""
    interval_tokens: int
    """At which boundaries the group is kept; 0 if at none but the replay boundary."""

    def due_tokens(self, index: int, replay_tokens: int) -> int | None:
        """How many tokens must be computed before the block at ``index`` is cached; None if it never is."""
        end_tokens = (index + 1) * self.block_size_tokens
        due: int | None = None
        if self.interval_tokens:
            # No boundary before this one has the block's end in front of it, and no later one reads an earlier block.
            behind_tokens = max(end_tokens - self.lookahead_tokens, 1)
            boundary_tokens = -(-behind_tokens // self.interval_tokens) * self.interval_tokens
            if self._reads(boundary_tokens, index):
                due = boundary_tokens
        if (due is None or replay_tokens < due) and self._reads(replay_tokens, index):
            due = replay_tokens
        return None if due is None else max(due, end_tokens)

    def _reads(self, boundary_tokens: int, index: int) -> bool:
        """Whether a hit at ``boundary_tokens`` reads the block at ``index``."""
        if not boundary_tokens:
            return False
        first = self.skipped(boundary_tokens) // self.block_size_tokens
        return first <= index < (boundary_tokens + self.lookahead_tokens) // self.block_size_tokens


@frozen
class Anchor:
    """What a hit reads at the last boundary that a window has left behind, in one KV-cache group."""

    block_size_tokens: int
    skipped: Callable[[int], int]
    """How many leading tokens a resume at a boundary does not read."""
    lookahead_tokens: int
    alignment_tokens: int

    def before(self, end: int) -> tuple[int, int]:
        """Of the blocks before index ``end``, the half-open range of those that such a hit reads.

        What must match behind the boundary is before ``end`` as well: nothing else of the group is needed.
        """
        return self.at(max(0, end * self.block_size_tokens - self.lookahead_tokens))

    def at(self, tokens: int) -> tuple[int, int]:
        """The half-open range of the blocks that the longest hit of up to ``tokens`` tokens reads."""
        boundary_tokens = tokens // self.alignment_tokens * self.alignment_tokens
        if not boundary_tokens:
            return 0, 0
        first = self.skipped(boundary_tokens) // self.block_size_tokens
        return first, (boundary_tokens + self.lookahead_tokens) // self.block_size_tokens


def replay_boundary_tokens(prompt_tokens: int, alignment_tokens: int, lookahead_tokens: int) -> int:
    """The last boundary from which a prompt can be replayed: what must match there ends before the last token."""
    return max(0, prompt_tokens - 1 - lookahead_tokens) // alignment_tokens * alignment_tokens
