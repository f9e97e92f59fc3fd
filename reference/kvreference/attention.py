"""Attention kinds: three integer questions, and what follows from them.

Every kind of attention differs from the others only in its answers to these three:

1. how many blocks do ``n`` tokens occupy, and how many of them does a request hold at once;
2. which blocks must be present to resume at token ``L``;
3. which blocks are dead once ``n`` tokens are computed.

They follow from how many leading tokens the next token no longer reads. The formulas are plain functions of integers.
Positions and lengths are in tokens, indices and counts in blocks. A *chunk* of a prompt is what one step computes, an
*attention chunk* what a token attends to.

State-space layers, which keep one state instead of one slot per token, are in ``kvreference.mamba``.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Protocol, TypeAlias

from attrs import frozen

Layout: TypeAlias = list[int | None]
"""A table as it must become: block ids, and None wherever a new block goes."""


class Kind(Enum):
    """The attention kinds that the reference knows."""

    FULL = "full"
    SLIDING_WINDOW = "sliding_window"
    CHUNKED_LOCAL = "chunked_local"
    MAMBA = "mamba"


class Attention(Protocol):
    """One kind of attention, with its own window."""

    serves_hits: bool
    """Whether a later request can use what is kept."""
    stops_at_block_ends: bool
    """Whether the chunks of a prompt end where a block ends."""

    def tokens_dead(self, tokens_computed: int) -> int:
        """How many leading tokens may be freed once ``tokens_computed`` tokens are computed."""
        ...

    def tokens_unread(self, hit_tokens: int) -> int:
        """How many leading tokens a resume at token ``hit_tokens`` does not read; no draft is in flight then."""
        ...

    def blocks_held_at_most(self, chunk_tokens: int, tokens_max: int, block_size_tokens: int) -> int:
        """A bound on the blocks that one request of up to ``tokens_max`` tokens, computed in chunks, holds at once."""
        ...

    def entries(self, tokens: int, slots: int, block_size_tokens: int) -> int:
        """How many entries a table has that holds ``tokens`` tokens and has ``slots`` slots, look-ahead included."""
        ...

    def layout(self, blocks: Sequence[int | None], entries: int, fresh: bool) -> Layout:
        """The table ``blocks`` as it must become to have ``entries``; ``fresh`` if it holds nothing but a hit."""
        ...


def grown(blocks: Sequence[int | None], entries: int) -> Layout:
    """``blocks``, followed by new ones up to ``entries`` in all."""
    return [*blocks, *(None,) * (entries - len(blocks))]


def blocks_occupied(tokens: int, block_size_tokens: int) -> int:
    """How many blocks ``tokens`` tokens occupy: the last one may be partly filled."""
    return -(-tokens // block_size_tokens)


class SlotPerToken:
    """The common part of kinds that keep something for every token: a table grows at its end."""

    serves_hits = True
    stops_at_block_ends = False

    def entries(self, tokens: int, slots: int, block_size_tokens: int) -> int:
        return blocks_occupied(slots, block_size_tokens)

    def layout(self, blocks: Sequence[int | None], entries: int, fresh: bool) -> Layout:
        return grown(blocks, entries)


@frozen
class Full(SlotPerToken):
    """Every token attends to all before it: nothing is ever dead."""

    def tokens_dead(self, tokens_computed: int) -> int:
        return 0

    def tokens_unread(self, hit_tokens: int) -> int:
        return 0

    def blocks_held_at_most(self, chunk_tokens: int, tokens_max: int, block_size_tokens: int) -> int:
        return blocks_occupied(tokens_max, block_size_tokens)


def tokens_skipped(tokens_computed: int, window_tokens: int) -> int:
    """How many leading tokens the next token no longer attends to, with a sliding window.

    The token at position ``tokens_computed`` attends to itself and to the ``window_tokens - 1`` before it.
    """
    return max(0, tokens_computed - window_tokens + 1)


def blocks_held_at_most(window_tokens: int, chunk_tokens: int, tokens_max: int, block_size_tokens: int) -> int:
    """A bound on the blocks that one request holds at once in a sliding-window group, often one more than it ever does.

    While a chunk is computed the request holds the window before it and the chunk itself, never more than
    ``tokens_max`` tokens in all. The window need not start at a block's first token, hence one block more.
    """
    return blocks_occupied(min(window_tokens - 1 + chunk_tokens, tokens_max), block_size_tokens) + 1


@frozen
class SlidingWindow(SlotPerToken):
    """A token attends to itself and to the ``window_tokens - 1`` before it."""

    window_tokens: int

    def tokens_dead(self, tokens_computed: int) -> int:
        return tokens_skipped(tokens_computed, self.window_tokens)

    def tokens_unread(self, hit_tokens: int) -> int:
        return tokens_skipped(hit_tokens, self.window_tokens)

    def blocks_held_at_most(self, chunk_tokens: int, tokens_max: int, block_size_tokens: int) -> int:
        return blocks_held_at_most(self.window_tokens, chunk_tokens, tokens_max, block_size_tokens)


def tokens_before_chunk(tokens_computed: int, chunk_tokens: int) -> int:
    """How many leading tokens lie before the attention chunk, of ``chunk_tokens``, of the token after these."""
    return tokens_computed // chunk_tokens * chunk_tokens


@frozen
class ChunkedLocal(SlotPerToken):
    """The tokens are cut into attention chunks of ``window_tokens``; a token attends to its own chunk up to itself."""

    window_tokens: int

    def tokens_dead(self, tokens_computed: int) -> int:
        return tokens_before_chunk(tokens_computed, self.window_tokens)

    def tokens_unread(self, hit_tokens: int) -> int:
        return tokens_before_chunk(hit_tokens, self.window_tokens)

    def blocks_held_at_most(self, chunk_tokens: int, tokens_max: int, block_size_tokens: int) -> int:
        # An attention chunk may start within a block: then that block is held on top of what the chunk fills.
        shared = 0 if self.window_tokens % block_size_tokens == 0 else 1
        return blocks_occupied(min(self.window_tokens + chunk_tokens, tokens_max), block_size_tokens) + shared
