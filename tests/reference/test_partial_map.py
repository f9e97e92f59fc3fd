"""The partial entries: which blocks begin with a given content."""

from __future__ import annotations

from kvreference.content import Prefix
from kvreference.partial_map import PartialMap

ONE = (0, Prefix(None, "one", 16))
TWO = (0, Prefix(None, "two", 32))
THREE = (0, Prefix(None, "three", 48))


def filled() -> PartialMap:
    """Block 5 begins with the first two contents, block 3 with the first and the third."""
    partial = PartialMap()
    for content, block in [(ONE, 5), (TWO, 5), (ONE, 3), (THREE, 3)]:
        partial.register(content, block)
    return partial


def test_the_block_registered_first_serves() -> None:
    """Goal: of several blocks that begin alike, the oldest entry serves. Method: 5 came first; without it,
    3; then none.
    """
    partial = filled()
    assert [5, 5, 3] == [partial.find(content) for content in (ONE, TWO, THREE)]
    partial.forget(5)
    assert [3, None, 3] == [partial.find(content) for content in (ONE, TWO, THREE)]
    partial.forget(3)
    assert [None, None, None] == [partial.find(content) for content in (ONE, TWO, THREE)]
    assert ({}, frozenset()) == (partial.entries(), partial.blocks())


def test_forgetting_a_later_one_leaves_the_first() -> None:
    """Goal: a block's entries go with it, and no others. Method: forget 3, of which one entry is shared with 5."""
    partial = filled()
    partial.forget(3)
    assert {ONE: (5,), TWO: (5,)} == partial.entries()
    assert frozenset({5}) == partial.blocks()


def test_both_directions() -> None:
    """Goal: the map from blocks to beginnings and its inverse agree. Method: read all of both."""
    partial = filled()
    assert {ONE: (5, 3), TWO: (5,), THREE: (3,)} == partial.entries()
    assert {3: (ONE, THREE), 5: (ONE, TWO), 4: ()} == {block: partial.contents_of(block) for block in (3, 5, 4)}
    assert frozenset({3, 5}) == partial.blocks()


def test_what_was_never_registered() -> None:
    """Goal: most allocated blocks have no entries. Method: forget one without, and one twice."""
    partial = filled()
    before = partial.entries()
    partial.forget(4)
    assert before == partial.entries()
    partial.forget(5)
    partial.forget(5)
    assert {ONE: (3,), THREE: (3,)} == partial.entries()


def test_a_boundary_offered_again_changes_nothing_but_the_count() -> None:
    """Goal: an entry stands once, and the work of offering it is seen. Method: offer one of four again."""
    partial = filled()
    assert 4 == partial.offers
    partial.register(ONE, 3)
    assert ((5, 3), 5) == (partial.entries()[ONE], partial.offers)
    partial.forget(3)
    assert 5 == partial.offers


def test_a_copy_is_independent() -> None:
    """Goal: a step leaves the state before it alone. Method: register and forget in the copy."""
    partial = filled()
    before = partial.entries()
    copy = partial.copy()
    assert (before, partial.blocks(), 4) == (copy.entries(), copy.blocks(), copy.offers)
    copy.register(TWO, 7)
    copy.forget(5)
    assert (before, frozenset({3, 5}), 4) == (partial.entries(), partial.blocks(), partial.offers)
    assert ({ONE: (3,), TWO: (7,), THREE: (3,)}, 5) == (copy.entries(), copy.offers)
