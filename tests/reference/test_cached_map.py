"""The cached map: content to blocks and back, with duplicates."""

from __future__ import annotations

import pytest

from kvreference.cached_map import CachedMap
from kvreference.content import Prefix

ONE = (0, Prefix(None, "one", 16))
TWO = (0, Prefix(None, "two", 16))


def filled() -> CachedMap:
    """Block 5, then block 3 hold the one content; block 4 the other."""
    cached = CachedMap(10)
    cached.register(ONE, 5)
    cached.register(TWO, 4)
    cached.register(ONE, 3)
    return cached


def test_the_block_registered_first_serves() -> None:
    """Goal: of several blocks with one content, the oldest entry serves, regardless of its id.

    Method: 5 is registered before 3; once 5 is forgotten, 3 serves; once both are, none does.
    """
    cached = filled()
    assert 5 == cached.find(ONE)
    assert ONE == cached.forget(5)
    assert 3 == cached.find(ONE)
    assert ONE == cached.forget(3)
    assert cached.find(ONE) is None


def test_a_block_registered_again_queues_up_last() -> None:
    """Goal: order is the order of registration, not of a block's first appearance. Method: forget 5, register it."""
    cached = filled()
    cached.forget(5)
    cached.register(ONE, 5)
    assert {TWO: (4,), ONE: (3, 5)} == cached.entries()


def test_forgetting_a_later_one_leaves_the_first() -> None:
    """Goal: an eviction touches its own block only. Method: forget 3, the younger of two."""
    cached = filled()
    cached.forget(3)
    assert {ONE: (5,), TWO: (4,)} == cached.entries()


def test_what_is_not_cached_is_forgotten_without_a_word() -> None:
    """Goal: most allocated blocks hold nothing. Method: forget a block never registered, and one twice."""
    cached = filled()
    assert cached.forget(9) is None
    cached.forget(4)
    assert cached.forget(4) is None
    assert cached.find(TWO) is None


def test_groups_do_not_share() -> None:
    """Goal: the group is part of the content. Method: the same prefix is looked up for another group."""
    cached = filled()
    assert cached.find((1, ONE[1])) is None
    cached.register((1, ONE[1]), 6)
    assert (5, 6) == (cached.find(ONE), cached.find((1, ONE[1])))


def test_both_directions() -> None:
    """Goal: the map from blocks to contents and its inverse agree. Method: read all of both."""
    cached = filled()
    assert {ONE: (5, 3), TWO: (4,)} == cached.entries()
    assert [None, None, None, ONE, TWO, ONE, None, None, None, None] == cached.contents()


def test_a_block_holds_one_content() -> None:
    """Goal: a block that is registered twice would serve what it does not hold. Method: each content on block 5."""
    cached = filled()
    for content in (ONE, TWO):
        with pytest.raises(ValueError, match="block 5 is already registered"):
            cached.register(content, 5)
    assert {ONE: (5, 3), TWO: (4,)} == cached.entries()


def test_a_copy_is_independent() -> None:
    """Goal: a step leaves the state before it alone. Method: forget and register in the copy."""
    cached = filled()
    copy = cached.copy()
    assert cached.entries() == copy.entries()
    copy.forget(5)
    copy.register(TWO, 7)
    assert {ONE: (5, 3), TWO: (4,)} == cached.entries()
    assert cached.contents()[7] is None
    assert {ONE: (3,), TWO: (4, 7)} == copy.entries()


def test_what_was_reported_does_not_change() -> None:
    """Goal: a snapshot is a value. Method: read the entries, then forget a block."""
    cached = filled()
    entries = cached.entries()
    cached.forget(4)
    assert {ONE: (5, 3), TWO: (4,)} == entries
