"""State-space layers (Mamba): one state instead of one slot per token.

A block holds the state after its last token. A resume at ``L`` needs only the state after token ``L - 1``.
Three modes say which states are kept:

- ``NONE``: the running state, in place. A block spans the longest request, and nothing is ever cached.
- ``ALL``: the state after every block's last token. The table is like any other, but only its last block is read.
- ``ALIGN``: the running state and the one it came from. States between two steps are never kept, so the table has null
  blocks there, and a prompt is computed in chunks that end where a block ends.

A state cannot be taken back token by token. So every draft in flight needs a state of its own, after the running one.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from attrs import frozen

from kvreference.attention import Layout, blocks_occupied, grown
from kvreference.block_pool import NULL


class StateMode(Enum):
    """Which states are kept."""

    NONE = "none"
    ALL = "all"
    ALIGN = "align"


@frozen
class Mamba:
    """The mode ``ALL``, with room for ``draft_states`` drafts in flight."""

    draft_states: int
    serves_hits = True
    stops_at_block_ends = False

    def tokens_dead(self, tokens_computed: int) -> int:
        # As many tokens as there may be drafts in flight may still be taken back.
        return max(0, tokens_computed - self.draft_states - 1)

    def tokens_unread(self, hit_tokens: int) -> int:
        return max(0, hit_tokens - 1)

    def blocks_held_at_most(self, chunk_tokens: int, tokens_max: int, block_size_tokens: int) -> int:
        return blocks_occupied(tokens_max, block_size_tokens) + self.draft_states

    def entries(self, tokens: int, slots: int, block_size_tokens: int) -> int:
        return blocks_occupied(slots, block_size_tokens) + self.draft_states

    def layout(self, blocks: Sequence[int | None], entries: int, fresh: bool) -> Layout:
        return grown(blocks, entries)


@frozen
class RunningMamba(Mamba):
    """The mode ``NONE``: nothing but the running state, and one for each draft."""

    serves_hits = False


@frozen
class AlignedMamba(Mamba):
    """The mode ``ALIGN``: the running state, one for each draft after it, and the state that it came from."""

    stops_at_block_ends = True

    def blocks_held_at_most(self, chunk_tokens: int, tokens_max: int, block_size_tokens: int) -> int:
        return 2 + self.draft_states

    def entries(self, tokens: int, slots: int, block_size_tokens: int) -> int:
        # A draft layer keeps no states, so look-ahead slots ask for none.
        return blocks_occupied(tokens, block_size_tokens) + self.draft_states

    def layout(self, blocks: Sequence[int | None], entries: int, fresh: bool) -> Layout:
        """The running state moves to its new place; the drafts' blocks before it are reused after it."""
        if entries <= len(blocks):
            return list(blocks)
        running = entries - self.draft_states - 1
        drafts = len(blocks) if fresh else len(blocks) - self.draft_states
        moved = blocks[drafts:running]
        passed, skipped = (NULL,) * len(moved), (NULL,) * (running - len(blocks))
        return grown([*blocks[:drafts], *passed, *blocks[drafts + len(moved) :], *skipped, *moved], entries)


def tokens_to_boundary(tokens_computed: int, tokens: int, block_size_tokens: int) -> int:
    """How many of the next ``tokens`` tokens are computed at once where states are kept at block ends only.

    As many as end at a block's end; all of them if none does: then they stay within one block, and no state is skipped.
    For the same reason, a state that stands inside a block is brought to that block's end first.
    """
    inside = tokens_computed % block_size_tokens
    if inside:
        return min(tokens, block_size_tokens - inside)
    return tokens // block_size_tokens * block_size_tokens or tokens
