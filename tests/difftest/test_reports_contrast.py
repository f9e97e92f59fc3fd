"""Two texts cut down to where they differ.

Goal: the one entry that differs is always shown. Method: long texts that differ in one known place.
"""

from __future__ import annotations

from kvgate.kernel.text import contrast


def test_short_sides_are_shown_whole() -> None:
    """And an empty one is named."""
    assert contrast("3", "") == ("3", "nothing")


def test_long_sides_are_shown_where_they_differ() -> None:
    """From shortly before the first difference, from the beginning of a number on."""
    ours = str(list(range(1000)))
    theirs = ours.replace("500,", "501,", 1)
    expected, got = contrast(ours, theirs)
    assert expected.startswith("...495, 496, 497, 498, 499, 500, 501")
    assert got.startswith("...495, 496, 497, 498, 499, 501, 501")
    assert expected.endswith("...")


def test_one_side_may_be_the_beginning_of_the_other() -> None:
    """Then the difference is where the shorter one ends."""
    expected, got = contrast("1, " * 100, "1, " * 101)
    assert len(got) == len(expected) + 3


def test_a_difference_inside_a_very_long_word_is_still_shown() -> None:
    """Looking for the word's beginning stops somewhere."""
    expected, got = contrast("a" * 1000 + "b", "a" * 1000 + "c")
    assert expected.endswith("ab")
    assert got.endswith("ac")
