"""The integer formulas of the attention kinds, against hand-worked numbers and against counting."""

from __future__ import annotations

from itertools import product

import pytest

from kvreference.attention import Kind, blocks_held_at_most, blocks_occupied, tokens_skipped


@pytest.mark.parametrize(("computed", "skipped"), [(0, 0), (1, 0), (63, 0), (64, 1), (65, 2), (320, 257)])
def test_tokens_skipped_by_hand(computed: int, skipped: int) -> None:
    """Goal: with a window of 64, token 64 is the first that leaves one out: it reads 1..64.

    Method: token 320 reads 257..320, so the 257 tokens 0..256 are skipped.
    """
    assert skipped == tokens_skipped(computed, 64)


def test_tokens_skipped_counts_what_the_next_token_does_not_read() -> None:
    """Goal: the formula is the definition. Method: count the tokens before the window, for all small numbers."""
    for computed, window in product(range(40), range(1, 20)):
        unread = [token for token in range(computed) if token <= computed - window]
        assert len(unread) == tokens_skipped(computed, window)


@pytest.mark.parametrize(("tokens", "blocks"), [(0, 0), (1, 1), (15, 1), (16, 1), (17, 2), (320, 20), (321, 21)])
def test_blocks_occupied_by_hand(tokens: int, blocks: int) -> None:
    """Goal: a block of 16 is begun by its first token. Method: the numbers around whole blocks."""
    assert blocks == blocks_occupied(tokens, 16)


def test_blocks_occupied_counts_the_blocks_touched() -> None:
    """Goal: the formula is the definition. Method: name each token's block, for all small numbers."""
    for tokens, size in product(range(40), range(1, 9)):
        assert len({token // size for token in range(tokens)}) == blocks_occupied(tokens, size)


@pytest.mark.parametrize(
    ("window", "chunk", "tokens_max", "blocks"),
    [
        (64, 64, 1024, 9),  # ceil((63 + 64) / 16) + 1 = 8 + 1
        (64, 1, 1024, 5),  # ceil((63 + 1) / 16) + 1 = 4 + 1
        (64, 1000, 100, 8),  # never more than 100 tokens: ceil(100 / 16) + 1 = 7 + 1
        (2, 1, 1024, 2),  # ceil((1 + 1) / 16) + 1 = 1 + 1
    ],
)
def test_recycling_cap_by_hand(window: int, chunk: int, tokens_max: int, blocks: int) -> None:
    """Goal: the cap is ceil((window - 1 + chunk) / block) + 1, within the longest request. Method: block 16."""
    assert blocks == blocks_held_at_most(window, chunk, tokens_max, 16)


def test_recycling_cap_is_never_exceeded_and_is_reached() -> None:
    """Goal: no place in a request needs more than the cap, and the cap is not larger than it must be.

    Method: at every place, count the blocks from the first that the window touches to the last of the chunk. The
    cap is one too large only where window and chunk fill whole blocks and one token; then no offset costs a block.
    """
    for window, chunk, size in product(range(2, 12), range(1, 10), range(1, 6)):
        held = [
            blocks_occupied(computed + chunk, size) - tokens_skipped(computed, window) // size
            for computed in range(window + 3 * size)
        ]
        spare = 1 if (window - 1 + chunk) % size == 1 % size else 0
        assert max(held) + spare == blocks_held_at_most(window, chunk, 10_000, size)


def test_kinds_are_named_by_their_words() -> None:
    """Goal: a kind can be written as a word in a file. Method: both words, and one that is none."""
    assert [Kind.FULL, Kind.SLIDING_WINDOW] == [Kind("full"), Kind("sliding_window")]
    with pytest.raises(ValueError, match="mamba"):
        Kind("mamba")
