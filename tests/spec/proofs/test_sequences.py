"""Sequences of any length.

Goal: the elements that stand for a sequence in a proof give the answer of the whole sequence. Method: ask both, for
random groups.
"""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from kvreference.hit_lookup import longest_length
from kvspec.sequences import Met, Parts, Stretch, numbered, ranges_around

CASES, LENGTHS = 300, range(12, -1, -4)


def _group(serves: frozenset[int], inside: frozenset[int]) -> Any:
    return SimpleNamespace(
        group=SimpleNamespace(ends_inside=inside.__contains__),
        satisfies=lambda length, tokens: length == 0 or length in serves,
    )


def _some(source: random.Random) -> frozenset[int]:
    return frozenset(source.sample(LENGTHS[:-1], source.randint(0, 3)))


def test_the_groups_that_decide_answer_for_all() -> None:
    """At each length: one that cannot be resumed there, one that is hit inside a block there, and any other one."""
    source = random.Random(1)
    answers = set()
    for _ in range(CASES):
        sets = [(_some(source) | _some(source), _some(source)) for _ in range(source.randint(1, 6))]
        groups, least = [_group(*each) for each in sets], source.choice((0, 5, 9))
        for length in LENGTHS:
            lacks = next((i for i, (serves, _) in enumerate(sets) if length not in serves), 0)
            ends = next((i for i, (_, inside) in enumerate(sets) if length in inside), 0)
            met: Any = Met(groups[i] for i in (lacks, ends, source.randrange(len(sets))))
            tried: Any = [length, 0]
            assert longest_length(groups, tried, 20, least) == longest_length(met, tried, 20, least)
        answers.add(longest_length(groups, LENGTHS, 20, least))
    assert answers == set(LENGTHS)


def test_neither_number_nor_place_is_answered() -> None:
    """What is met is only part of a sequence."""
    met: Any = Met([3, 4])
    with pytest.raises(TypeError):
        len(met)
    with pytest.raises(TypeError):
        met[0]


@pytest.mark.parametrize("before", range(4))
@pytest.mark.parametrize("after", range(4))
def test_parts_are_cut_and_numbered_like_a_list(before: int, after: int) -> None:
    """An element with others before and after it, as parts and as a list."""
    element: Any = object()
    parts, others = Parts([Stretch(before), element, Stretch(after)]), [None] * before
    whole = [*others, element, *[None] * after]
    assert parts.length == len(whole)
    assert [place for place, part in numbered(parts) if part is element] == [before]
    for end in range(len(whole) + 2):
        assert parts[:end].length == len(whole[:end])
        assert (element in list(parts[:end])) == (element in whole[:end])


@pytest.mark.parametrize("before", range(3))
def test_parts_are_added_and_searched_like_a_list(before: int) -> None:
    """One after the other; an element stands in the place that it has in a list."""
    element: Any = object()
    line = Parts([Stretch(before), 7]) + Parts([Stretch(2), element, Stretch(1)])
    assert line.length == before + 5
    assert (line.index(7), line.index(element)) == (before, before + 3)
    with pytest.raises(ValueError, match="not in list"):
        line.index(8)


@pytest.mark.parametrize("place", range(7))
@pytest.mark.parametrize("ends", [(1, 5), (1, 2), (1, 1), (0, 4)])
def test_a_range_is_known_around_a_place(place: int, ends: tuple[int, int]) -> None:
    """As long as the range of numbers; the place stands in it if and only if it is one of them, and where it is."""
    around, numbers = ranges_around(place)(*ends), range(*ends)
    assert Parts(around).length == len(numbers)
    at = [index for index, part in numbered(around) if part == place]
    assert at == [index for index, number in enumerate(numbers) if number == place]
