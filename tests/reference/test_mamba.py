"""State-space layers: which states a table keeps, and how a prompt is cut so that the states at block ends exist."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, product

import pytest

from kvreference.attention import Attention, Layout
from kvreference.block_pool import NULL
from kvreference.mamba import AlignedMamba, Mamba, RunningMamba, StateMode, tokens_to_boundary


def test_modes_are_named_by_their_words() -> None:
    """Goal: a mode can be written as a word in a file. Method: every word, and an unknown one."""
    assert list(StateMode) == [StateMode(word) for word in ("none", "all", "align")]
    with pytest.raises(ValueError, match="some"):
        StateMode("some")


@pytest.mark.parametrize(
    ("kind", "traits"),
    [(RunningMamba(0), (False, False)), (Mamba(0), (True, False)), (AlignedMamba(0), (True, True))],
)
def test_what_the_modes_are_for(kind: Attention, traits: tuple[bool, bool]) -> None:
    """Goal: a running state serves no other request; only aligned states ask for chunks that end where blocks end.

    Method: each mode.
    """
    assert traits == (kind.serves_hits, kind.stops_at_block_ends)


@pytest.mark.parametrize(
    ("draft_states", "computed", "dead"), [(0, 0, 0), (0, 1, 0), (0, 2, 1), (0, 320, 319), (2, 2, 0), (2, 320, 317)]
)
def test_tokens_dead(draft_states: int, computed: int, dead: int) -> None:
    """Goal: the next token reads the state after the last one, or as many before it as drafts may be taken back.

    Method: after 320 tokens that is the state of token 319; with two drafts in flight 318 or 317 may be wanted again.
    """
    assert (dead, dead) == (Mamba(draft_states).tokens_dead(computed), AlignedMamba(draft_states).tokens_dead(computed))


@pytest.mark.parametrize(("hit", "unread"), [(0, 0), (1, 0), (16, 15), (320, 319)])
def test_tokens_unread(hit: int, unread: int) -> None:
    """Goal: a resume reads one state, after the token before it, with or without drafts. Method: token 319 for a hit of
    320.
    """
    assert (unread, unread) == (Mamba(0).tokens_unread(hit), AlignedMamba(2).tokens_unread(hit))


def test_a_table_of_all_states() -> None:
    """Goal: one entry per block of slots and one per draft; a table like any other, with a bound like full attention's.

    Method: 30 tokens in 33 slots of 16 are 3 entries, and 2 for the drafts. 1000 tokens are 63 blocks, and 2.
    """
    kind = Mamba(2)
    assert (5, 4) == (kind.entries(30, 33, 16), kind.entries(30, 30, 16))
    assert [0, 7, None, None] == kind.layout([0, 7], 4, fresh=False)
    assert 65 == kind.blocks_held_at_most(64, 1000, 16)


def test_a_running_state_alone() -> None:
    """Goal: without kept states, a request holds one state in place, and one per draft.

    Method: the block spans the longest request, 1000 tokens: one entry for any number of computed tokens, and three
    drafts.
    """
    kind = RunningMamba(3)
    assert (4, 4, 4) == (
        kind.entries(1, 1, 1000),
        kind.entries(1000, 1000, 1000),
        kind.blocks_held_at_most(64, 1000, 1000),
    )
    assert 0 == kind.tokens_dead(1000) // 1000


def test_an_aligned_table_has_no_entries_for_look_ahead() -> None:
    """Goal: draft layers keep no states. Method: 32 tokens in 33 slots are 2 entries of 16, and 2 for the drafts."""
    assert (4, 5) == (AlignedMamba(2).entries(32, 33, 16), AlignedMamba(2).entries(33, 33, 16))
    assert 4 == AlignedMamba(2).blocks_held_at_most(64, 1000, 16)


@pytest.mark.parametrize(
    ("draft_states", "blocks", "entries", "fresh", "expected"),
    [
        # First step of 80 tokens, five blocks of 16: only the state after the last one is kept, and the drafts'.
        (0, [], 5, True, [0, 0, 0, 0, None]),
        (2, [], 7, True, [0, 0, 0, 0, None, None, None]),
        # After a hit of 48, the state in block 9; nothing in it is a draft's, though it is the last.
        (0, [0, 0, 9], 5, True, [0, 0, 9, 0, None]),
        (2, [0, 0, 9], 7, True, [0, 0, 9, 0, None, None, None]),
        # The running state stays within its block.
        (2, [0, 0, 9, 4, 5], 5, False, [0, 0, 9, 4, 5]),
        # It moves by one block: into what was the first draft's.
        (0, [0, 0, 9], 4, False, [0, 0, 9, None]),
        (2, [0, 0, 9, 4, 5], 6, False, [0, 0, 9, 4, 5, None]),
        # By two: the first draft's block is passed over, and used again after it.
        (2, [0, 0, 9, 4, 5], 7, False, [0, 0, 9, 0, 5, 4, None]),
        # By four: so are both, and the running state goes into the first of them.
        (2, [0, 0, 9, 4, 5], 9, False, [0, 0, 9, 0, 0, 0, 4, 5, None]),
        # A table does not shrink when drafts were rejected.
        (1, [0, 9, 4, 5], 3, False, [0, 9, 4, 5]),
    ],
)
def test_layout_by_hand(draft_states: int, blocks: Layout, entries: int, fresh: bool, expected: Layout) -> None:
    """Goal: blocks between two steps are null, the state that it came from stays, one block per step is new.

    Method: each case as its comment says. The running state is the last entry but the drafts'.
    """
    given = list(blocks)
    assert expected == AlignedMamba(draft_states).layout(blocks, entries, fresh)
    assert given == blocks


def steps(prefill: int, chunk: int, decode: int, drafts: int, size: int) -> Iterator[tuple[int, int]]:
    """The tokens of each step and those that stay: chunks of a prompt, then drafts of which all, some or none hold."""
    computed = 0
    while computed < prefill:
        tokens = tokens_to_boundary(computed, min(chunk, prefill - computed), size)
        assert tokens > 0
        yield tokens, tokens
        computed += tokens
    for step in range(decode):
        yield 1 + drafts, 1 + step % (1 + drafts)


def test_an_aligned_table_holds_two_states_and_the_drafts() -> None:
    """Goal: no more blocks than the bound, no block in two places, the running state and its origin always there.

    Method: run many prompts and answers, with blocks numbered as they are allocated. A block has room for two steps of
    drafts at least: in a smaller one, more states than two stay within reach of what may be taken back.
    """
    for drafts, chunk, prefill in product(range(3), (3, 8, 20, 64), (5, 16, 37, 64)):
        for size in range(2 * drafts + 1, 10):
            kind = AlignedMamba(drafts)
            table: list[int] = []
            computed, new = 0, count(1)
            for tokens, kept in steps(prefill, chunk, 12, drafts, size):
                dead = min(kind.tokens_dead(computed) // size, len(table))
                table[:dead] = [NULL] * dead
                layout = kind.layout(table, kind.entries(computed + tokens, computed + tokens, size), not table)
                table = [next(new) if block is None else block for block in layout]
                live = [block for block in table if block != NULL]
                assert len(set(live)) == len(live) <= kind.blocks_held_at_most(chunk, 1000, size)
                origin = max(0, computed - 1) // size
                running = (computed + tokens - 1) // size
                assert NULL not in (table[origin] if computed else 1, *table[running : running + 1 + drafts])
                computed += kept


@pytest.mark.parametrize(
    ("computed", "tokens", "chunk"),
    [
        (0, 100, 96),  # the largest multiple of 16 within reach
        (0, 96, 96),
        (0, 15, 15),  # no end within reach: within one block
        (32, 40, 32),
        (37, 5, 5),
        (37, 11, 11),
        (37, 100, 11),  # a state inside a block is brought to its end first, 48
        (47, 100, 1),
    ],
)
def test_tokens_to_boundary_by_hand(computed: int, tokens: int, chunk: int) -> None:
    """Goal: a chunk ends where a block of 16 ends, or within the block it began in. Method: around 32 and 48."""
    assert chunk == tokens_to_boundary(computed, tokens, 16)


def test_every_cached_state_is_the_one_after_its_block() -> None:
    """Goal: no chunk leaves a state inside a block that counts as full (KV-OP-26).

    Method: compute with every budget from every place. The block that the state stands in when a step begins may be
    full after it only if the step ended there, or it was full before.
    """
    for size, computed, tokens in product(range(1, 9), range(20), range(1, 30)):
        end = computed + tokens_to_boundary(computed, tokens, size)
        assert computed < end <= computed + tokens
        block_end = -(-computed // size) * size
        assert computed == block_end or end <= block_end
        assert end % size == 0 or end - computed < size
