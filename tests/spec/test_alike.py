"""What the reference treats otherwise than others by its number.

Goal: proofs that run a few of any number are of all of them. Method: the whole source is read, and what names an
element by its number, counts to more than one or leaves a loop is compared with a list that says why.
"""

from __future__ import annotations

import pytest

from kvspec.alike import LISTED, found, places

BY_NUMBER = (
    "for index in indices[:2]: pass",
    "due = list(due)[:2]",
    "answered = [each for each in running[-1:]]",
    "first, *rest = tables",
    "more = steps == 2",
    "half = budget // 2",
    "few = len(waiting) <= 1",
    "one = next(iter(groups))",
    "some = islice(groups, many)",
    "for group in groups:\n    if group: break",
    "for group in groups:\n    with group:\n        continue",
    "def first(groups):\n    for group in groups:\n        return group",
    "while groups:\n    while True: pass\n    break",
)
FOR_ALL = (
    "for index in indices: pass",
    "backwards = blocks[::-1]",
    "anchors = blocks[start:end]",
    "is_none = references[block] == 0",
    "one, other = pair",
    "for group in groups:\n    def inner():\n        return group",
)


def test_each_place_is_listed() -> None:
    """In both directions: none is missing, and none is gone."""
    assert sorted(place for listed in LISTED.values() for place in listed) == sorted(found())


@pytest.mark.parametrize("source", BY_NUMBER)
def test_what_is_by_number_is_found(source: str) -> None:
    """Slices, indices, numbers, lengths, and loops that end early."""
    assert [] != places(source)


@pytest.mark.parametrize("source", FOR_ALL)
def test_what_is_alike_for_all_is_not(source: str) -> None:
    """Also slices by what is computed, and what a function within a loop returns."""
    assert [] == places(source)
