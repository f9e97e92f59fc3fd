"""What an attention kind is: three integer questions, and nothing else.

Every kind of attention differs from the others only in its answers to these three:

1. how many blocks do ``n`` tokens occupy;
2. which blocks must be present to resume at token ``L``;
3. which blocks are dead once ``n`` tokens are computed.

The formulas are plain functions of integers. Positions and lengths are in tokens, indices and counts in blocks.

Not covered here: compressed groups, chunked local attention and Mamba.
"""

from __future__ import annotations

from enum import Enum


class Kind(Enum):
    """The attention kinds that the reference knows."""

    FULL = "full"
    SLIDING_WINDOW = "sliding_window"


def tokens_skipped(tokens_computed: int, window_tokens: int) -> int:
    """How many leading tokens the next token no longer attends to.

    The token at position ``tokens_computed`` attends to itself and to the ``window_tokens - 1`` before it.
    """
    return max(0, tokens_computed - window_tokens + 1)


def blocks_occupied(tokens: int, block_size_tokens: int) -> int:
    """How many blocks ``tokens`` tokens occupy: the last one may be partly filled."""
    return -(-tokens // block_size_tokens)


def blocks_held_at_most(window_tokens: int, chunk_tokens: int, tokens_max: int, block_size_tokens: int) -> int:
    """A bound on the blocks that one request holds at once in a sliding-window group, often one more than it ever does.

    While a chunk is computed the request holds the window before it and the chunk itself, never more than
    ``tokens_max`` tokens in all. The window need not start at a block's first token, hence one block more.
    """
    return blocks_occupied(min(window_tokens - 1 + chunk_tokens, tokens_max), block_size_tokens) + 1
