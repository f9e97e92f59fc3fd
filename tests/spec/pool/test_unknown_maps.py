"""Maps that are not known.

Goal: a map of terms says after every change what a map that is known says, of keys and of counts; so proofs are about
the transitions that run. Method: random changes on both, with the same entries to begin with, and z3 asked whether the
other could be something else.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import z3
from hypothesis import given, settings
from hypothesis import strategies as st

from kvspec.maps import FiniteMap, UnknownMap, filled
from kvspec.symbolic import Path, Term, expression_of, on

KEYS, VALUES = range(5), range(1, 4)
AT, PUT, OLD = st.sampled_from(list(KEYS)), st.integers(0, 3), st.sampled_from(list(VALUES))
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("put"), AT, PUT), st.tuples(st.just("replaced"), OLD, PUT), st.tuples(st.just("emptied"))
    ),
    max_size=5,
)


def path_of() -> Path:
    """A way on which nothing was asked yet."""
    return Path(z3.Solver(), [], True)


def only_value(path: Path, number: Any) -> int:
    """The value that ``number`` must have on this way."""
    expression = expression_of(number)
    assert path.solver.check() == z3.sat
    value: int = path.solver.model().eval(expression, model_completion=True).as_long()
    assert path.solver.check(expression != value) == z3.unsat
    return value


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(AT, OLD), CHANGES, st.booleans())
def test_it_says_what_a_known_map_says(entries: dict[int, int], changes: list[tuple[Any, ...]], terms: bool) -> None:
    """Of every key and of every count, whether the changes name numbers or terms that stand for them."""
    path = path_of()
    with on(path):
        unknown, known = UnknownMap("some"), FiniteMap(entries)
        counts = Counter(entries.values())
        for key in KEYS:
            path.fact(unknown[key].z3 == entries.get(key, 0))
        for value in VALUES:
            path.fact(unknown.count(value).z3 == counts[value])
        for name, *arguments in changes:
            known = getattr(known, name)(*arguments)
            given_as = [_term(path, each) if terms else each for each in arguments]
            unknown = getattr(unknown, name)(*given_as)
        assert [known[key] for key in KEYS] == [only_value(path, unknown[key]) for key in KEYS]
        assert [known.count(value) for value in VALUES] == [only_value(path, unknown.count(value)) for value in VALUES]


def _term(path: Path, value: int) -> Term:
    """An unknown that must be ``value``."""
    unknown = path.fresh("value")
    path.fact(unknown == value)
    return Term(unknown)


@pytest.mark.parametrize("end", [0, 1, 2, 6])
def test_a_filled_map_of_terms_is_a_filled_map(end: int) -> None:
    """Of every key and of every count, with a change on top."""
    path = path_of()
    with on(path):
        known, unknown = filled(1, end, 2).put(3, 1), filled(1, _term(path, end), 2).put(3, 1)
        assert [known[key] for key in range(8)] == [only_value(path, unknown[key]) for key in range(8)]
        assert [known.count(value) for value in VALUES] == [only_value(path, unknown.count(value)) for value in VALUES]


def test_two_parts_make_one_key() -> None:
    """A put at one of two keys that share a part leaves the other."""
    path = path_of()
    with on(path):
        changed = UnknownMap("pairs", 2).put((1, 2), 7)
        assert 7 == only_value(path, changed[1, 2])
        path.fact(UnknownMap("pairs", 2)[1, 3].z3 == 5)
        assert 5 == only_value(path, changed[1, 3])


def test_what_is_seen_is_counted() -> None:
    """Nothing else is known of a count."""
    path = path_of()
    with on(path):
        unknown = UnknownMap("some")
        assert path.may_be(unknown.count(3).z3 == 0)
        assert not path.may_be(unknown.count(3).z3 < 0)
        path.fact(unknown[1].z3 == 3)
        unknown.sees(1, 3)
        assert not path.may_be(unknown.count(3).z3 == 0)
        assert path.may_be(unknown.count(3).z3 == 9)
        assert path.may_be(unknown.count(2).z3 == 0)
