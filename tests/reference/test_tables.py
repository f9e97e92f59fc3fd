"""Block tables: what a hit gives, and what a table must become."""

from __future__ import annotations

import pytest

from kvreference.answers import Hit
from kvreference.content import Keys, Prefix, Prefixes
from kvreference.geometry import Geometry, Group
from kvreference.tables import Plan, Table, blocks_new, content_up_to, plan, plan_provided, tables_of_hit

FULL = Group("full", 4)
WINDOW = Group("sliding_window", 2, 5)
GEOMETRY = Geometry((FULL, WINDOW))


def tables_of(*blocks: list[int]) -> list[Table]:
    """Tables of a request that runs."""
    return [Table(each, registered=0, boundary_tokens=0, fresh=False) for each in blocks]


def test_live_blocks() -> None:
    """Goal: the null block has no holder. Method: a table that a window has passed."""
    assert [7, 3] == Table([0, 0, 7, 3], 0, 0).live()
    assert [] == Table([0], 0, 0).live()


@pytest.mark.parametrize(
    ("computed", "full", "window"),
    [
        (8, [1, 2], [0, 0, 7, 8]),  # 8 - 5 + 1 = 4 tokens are dead, 2 blocks
        (10, [1, 2], [0, 0, 0, 8]),  # 6 tokens, 3 blocks
        (17, [1, 2], [0, 0, 0, 0, 0, 0]),  # 13 tokens, 6 blocks: two more than the hit has
    ],
)
def test_the_tables_of_a_hit(computed: int, full: list[int], window: list[int]) -> None:
    """Goal: of a hit a request holds the blocks that its next token reads; tokens from another node move that on.

    Method: a hit of 8 tokens in blocks of 4 and, window 5, of 2; none, 2 and 9 tokens are provided after it. All that a
    table begins with was offered to the cache before.
    """
    tables = tables_of_hit(GEOMETRY, Hit(8, ((1, 2), (0, 0, 7, 8))), computed)
    dead = next((i for i, block in enumerate(window) if block), len(window))
    assert [Table(full, 2, 8), Table(window, len(window), 8, dead)] == tables


def test_no_hit_no_table() -> None:
    """Goal: a request without a hit begins with nothing. Method: a hit of no token."""
    assert [Table([], 0, 0), Table([], 0, 0)] == tables_of_hit(GEOMETRY, Hit(0, ((), ())), 0)


@pytest.mark.parametrize(
    ("provided", "first", "tokens", "slots", "second"),
    [
        (0, [None, None], 9, 9, [[1, 2, None], [0, 0, 7, 8, None]]),
        (0, [None, None], 8, 8, [None, None]),
        (0, [None, None], 7, 9, [[1, 2, None], [0, 0, 7, 8, None]]),
        (0, [None, None], 3, 3, [None, None]),
        (8, [None, None], 8, 8, [None, None]),
        (10, [[1, 2, None], [0, 0, 7, 8, None]], 10, 10, [None, None]),
        (9, [[1, 2, None], [0, 0, 7, 8, None]], 11, 11, [None, [0, 0, 7, 8, None, None]]),
        (10, [[1, 2, None], [0, 0, 7, 8, None]], 13, 13, [[1, 2, None, None], [0, 0, 7, 8, None, None, None]]),
    ],
)
def test_what_tables_must_become(provided: int, first: Plan, tokens: int, slots: int, second: Plan) -> None:
    """Goal: new blocks for what is provided in every group, then for the rest; a table never shrinks, and one that is
    long enough stays as it is. Method: 8 tokens are there; slots after the tokens count as well.
    """
    tables = tables_of([1, 2], [0, 0, 7, 8])
    assert first == plan_provided(GEOMETRY, tables, provided)
    assert second == plan(GEOMETRY, tables, first, tokens, slots)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([None, None], [None, None], 0),
        ([None, None], [[1, None], [None, 0, None]], 3),
        ([[None], [7, None]], [None, None], 2),
        ([[None], [7, None]], [[None, None], None], 3),
    ],
)
def test_new_blocks_are_counted_over_all_groups(first: Plan, second: Plan, expected: int) -> None:
    """Goal: one pool serves all groups, and what is planned twice is taken once. Method: the second plan continues from
    the first; the null block is not a new one.
    """
    assert expected == blocks_new(second, first)


def test_content_ends_where_it_says() -> None:
    """Goal: a content is a group and a prefix. Method: the grain is 2 tokens; 8 tokens are 4 grains."""
    known: list[Prefix] = []
    Prefixes(GEOMETRY.grain_tokens).extend(known, range(10), Keys())
    assert (1, known[3]) == content_up_to(GEOMETRY, 1, known, 8)
    assert 8 == known[3].tokens


def test_a_copy_is_independent() -> None:
    """Goal: a step leaves the state before it alone. Method: change everything in the copy."""
    table = Table([1, 2], registered=1, boundary_tokens=4)
    copy = table.copy()
    assert table == copy
    copy.blocks[0] = 0
    copy.blocks.append(3)
    copy.registered, copy.boundary_tokens, copy.fresh = 2, 8, False
    assert Table([1, 2], registered=1, boundary_tokens=4, fresh=True) == table
