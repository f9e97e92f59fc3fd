"""Maps that are known.

Goal: a map is what a plain dictionary would be, however it was made; and what proofs assume of counting is so. Method:
random changes on both, looked at key by key and value by value.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kvspec.maps import CHANGES_MAX, FiniteMap, entries_of, filled

KEYS, VALUES = st.integers(0, 6), st.integers(0, 4)
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEYS, VALUES),
        st.tuples(st.just("replaced"), st.integers(1, 4), VALUES),
        st.tuples(st.just("emptied")),
    ),
    max_size=3 * CHANGES_MAX,
)


def _changed(known: FiniteMap, plain: dict[int, int], change: tuple[Any, ...]) -> tuple[FiniteMap, dict[int, int]]:
    kind, *arguments = change
    if kind == "put":
        key, value = arguments
        return known.put(key, value), {**plain, key: value}
    if kind == "replaced":
        old, new = arguments
        return known.replaced(old, new), {key: new if value == old else value for key, value in plain.items()}
    return known.emptied(), {}


@given(CHANGES)
def test_it_is_what_a_dictionary_is(changes: list[tuple[Any, ...]]) -> None:
    """After every change: every key, every count, all entries, and equality with a map that was made at once."""
    known, plain = FiniteMap(), dict[int, int]()
    for change in changes:
        before, was = known, dict(plain)
        known, plain = _changed(known, plain, change)
        entries = {key: value for key, value in plain.items() if value != 0}
        assert entries == known.entries
        assert FiniteMap(entries) == known
        assert [plain.get(key, 0) for key in range(7)] == [known[key] for key in range(7)]
        counts = Counter(entries.values())
        assert [counts[value] for value in range(1, 5)] == [known.count(value) for value in range(1, 5)]
        # A map is a value: the one before is what it was.
        assert [was.get(key, 0) for key in range(7)] == [before[key] for key in range(7)]


@given(CHANGES, KEYS, VALUES, st.integers(1, 4))
def test_what_is_assumed_of_a_put(changes: list[tuple[Any, ...]], key: int, new: int, value: int) -> None:
    """One less if the key had the value, one more if it gets it; and at least 1 while a key has it."""
    known, plain = FiniteMap(), dict[int, int]()
    for change in changes:
        known, plain = _changed(known, plain, change)
    after = known.put(key, new)
    assert known.count(value) - (known[key] == value) + (new == value) == after.count(value)
    assert after.count(value) >= (after[key] == value)


@given(CHANGES, st.integers(1, 4), VALUES, st.integers(1, 4))
def test_what_is_assumed_of_a_replacement(changes: list[tuple[Any, ...]], old: int, new: int, value: int) -> None:
    """No key has the old value any more, and the new one has its own keys and those."""
    known, plain = FiniteMap(), dict[int, int]()
    for change in changes:
        known, plain = _changed(known, plain, change)
    joined = known.count(new) + (known.count(old) if old != new else 0) if new else 0
    expected = joined if value == new else 0 if value == old else known.count(value)
    assert expected == known.replaced(old, new).count(value)


def test_two_maps_with_the_same_entries_are_equal() -> None:
    """However they were built; a map that differs in one entry is not."""
    one = FiniteMap({1: 2}).put(3, 4)
    other = FiniteMap({3: 4, 1: 2, 5: 0})
    assert one == other
    assert hash(one) == hash(other)
    assert one != other.put(1, 3)
    assert one != {1: 2, 3: 4}
    assert "FiniteMap({1: 2, 3: 4})" == repr(one)


def test_filled_maps() -> None:
    """A value from here to before there, and nothing elsewhere."""
    assert {2: 7, 3: 7} == entries_of(filled(2, 4, 7))
    assert {} == entries_of(filled(2, 2, 7))
