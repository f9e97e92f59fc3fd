"""The integer formulas of the attention kinds, against hand-worked numbers and against counting."""

from __future__ import annotations

from itertools import product

import pytest

from kvreference.attention import (
    Attention,
    ChunkedLocal,
    Full,
    Kind,
    SlidingWindow,
    blocks_held_at_most,
    blocks_occupied,
    grown,
    tokens_before_chunk,
    tokens_skipped,
)


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


@pytest.mark.parametrize(("computed", "before"), [(0, 0), (1, 0), (63, 0), (64, 64), (65, 64), (320, 320), (383, 320)])
def test_tokens_before_chunk_by_hand(computed: int, before: int) -> None:
    """Goal: with attention chunks of 64, token 64 is the first of the second chunk: it reads nothing before itself.

    Method: token 383 is the last of the chunk 320..383, so the 320 tokens before that chunk are not read.
    """
    assert before == tokens_before_chunk(computed, 64)


def test_tokens_before_chunk_counts_what_the_next_token_does_not_read() -> None:
    """Goal: the formula is the definition. Method: count the tokens of other chunks, for all small numbers."""
    for computed, chunk in product(range(40), range(1, 20)):
        unread = [token for token in range(computed) if token // chunk != computed // chunk]
        assert len(unread) == tokens_before_chunk(computed, chunk)


@pytest.mark.parametrize(
    ("kind", "dead_and_unread"),
    [(Full(), (0, 0)), (SlidingWindow(64), (257, 237)), (ChunkedLocal(64), (320, 256))],
)
def test_what_each_kind_gives_up_and_leaves_unread(kind: Attention, dead_and_unread: tuple[int, int]) -> None:
    """Goal: the dead tokens after 320, and those that a resume at token 300 does not read, are each kind's formula.

    Method: full: nothing. Window: 320 - 63, 300 - 63. Chunks of 64: 5 * 64 lie before token 320, 4 * 64 before 300.
    """
    assert dead_and_unread == (kind.tokens_dead(320), kind.tokens_unread(300))


@pytest.mark.parametrize(
    ("chunk", "tokens_max", "blocks"),
    [
        (64, 1024, 8),  # ceil((64 + 64) / 16) = 8: an attention chunk of 64 fills whole blocks
        (1, 1024, 5),  # ceil((64 + 1) / 16) = 5
        (1000, 100, 7),  # never more than 100 tokens: ceil(100 / 16) = 7
    ],
)
def test_chunked_local_bound_by_hand(chunk: int, tokens_max: int, blocks: int) -> None:
    """Goal: an attention chunk and what is computed, one block more if a chunk may start within a block.

    Method: chunks of 64 tokens in blocks of 16. A chunk of 72 starts within a block: one more than ceil(73 / 16) = 5.
    """
    assert blocks == ChunkedLocal(64).blocks_held_at_most(chunk, tokens_max, 16)
    assert 6 == ChunkedLocal(72).blocks_held_at_most(1, 1024, 16)


def held_at_once(kind: Attention, computed: int, chunk: int, size: int) -> int:
    """How many blocks are held while ``chunk`` tokens after ``computed`` ones are computed."""
    return blocks_occupied(computed + chunk, size) - kind.tokens_dead(computed) // size


def test_chunked_local_bound_is_never_exceeded_and_at_most_one_too_large() -> None:
    """Goal: the bound holds wherever a step begins, and is not larger than it must be.

    Method: at every place, count the blocks from the first that is not dead to the last of the step. Most is held one
    token before an attention chunk ends: ``window - 1 + step`` tokens, of which the bound allows one more.
    """
    for window, chunk, size in product(range(2, 12), range(1, 10), range(1, 6)):
        kind = ChunkedLocal(window)
        most = max(held_at_once(kind, computed, chunk, size) for computed in range(window * size + 1))
        assert kind.blocks_held_at_most(chunk, 10_000, size) - most in (0, 1)


def test_bounds_hold_up_to_the_longest_request() -> None:
    """Goal: no kind's bound is exceeded by a request of up to ``tokens_max`` tokens. Method: every place, small."""
    for window, chunk, size in product((2, 5, 8), (1, 3, 7), (1, 2, 3)):
        for kind in (Full(), SlidingWindow(window), ChunkedLocal(window)):
            for tokens_max, computed in product((1, 9, 20), range(20)):
                tokens = min(chunk, tokens_max - computed)
                if tokens > 0:
                    held = held_at_once(kind, computed, tokens, size)
                    assert held <= kind.blocks_held_at_most(chunk, tokens_max, size)


def test_full_attention_holds_all() -> None:
    """Goal: with full attention the chunk does not matter. Method: 1000 tokens are 63 blocks of 16, 62.5 rounded up."""
    assert (63, 63) == (Full().blocks_held_at_most(1, 1000, 16), Full().blocks_held_at_most(64, 1000, 16))


@pytest.mark.parametrize("kind", [Full(), SlidingWindow(64), ChunkedLocal(64)])
def test_a_slot_per_token(kind: Attention) -> None:
    """Goal: a table has an entry for every slot, look-ahead included, and grows at its end alone, fresh or not.

    Its content serves hits, wherever a chunk ended.
    Method: 30 tokens in 33 slots are three entries of 16, where 30 tokens alone are two; a null block stays.
    """
    assert (3, 2) == (kind.entries(30, 33, 16), kind.entries(30, 30, 16))
    assert [0, 7, None] == kind.layout([0, 7], 3, fresh=False) == kind.layout([0, 7], 3, fresh=True)
    assert (True, False) == (kind.serves_hits, kind.stops_at_block_ends)


def test_grown() -> None:
    """Goal: a table gets as many new blocks as it lacks, and never loses one. Method: from two to three, two, one."""
    assert [[4, 7, None], [4, 7], [4, 7]] == [grown([4, 7], entries) for entries in (3, 2, 1)]


def test_kinds_are_named_by_their_words() -> None:
    """Goal: a kind can be written as a word in a file. Method: every word, and an unknown one."""
    words = ["full", "sliding_window", "chunked_local", "mamba"]
    assert list(Kind) == [Kind(word) for word in words]
    with pytest.raises(ValueError, match="chunked"):
        Kind("chunked")
