"""Grammars of requests.

Goal: a token that a grammar misses, or that its request does not have, is seen. Method: what is accepted, by hand.
"""

from __future__ import annotations

import pytest

from kvgate.levels.scheduler import grammar


def test_drafts_before_the_first_that_is_not_allowed() -> None:
    """None, some or all of them; of five that follow each other one is not allowed."""
    assert [0, 1, 4] == [grammar.allowed(range(first, first + 4)) for first in (5, 4, 1)]
    assert 0 == grammar.allowed(())


@pytest.mark.parametrize("accepted", [(7,), (7, 8, 9), (8, 7), ()])
def test_a_grammar_follows_its_request(accepted: tuple[int, ...]) -> None:
    """No token less, none more, in their order."""
    assert grammar.check({0: (7, 8), 1: (9,)}, {0: (7, 8)}) is None
    found = grammar.check({0: (7, 8)}, {0: accepted})
    assert found is not None
    assert ("KV-SYS-05", "(7, 8)", str(accepted)) == (found.statement, found.expected, found.got)


def test_a_grammar_rests_with_its_request() -> None:
    """Of a request that was answered nothing it accepts nothing."""
    assert grammar.check({}, {0: ()}) is None
    assert grammar.check({}, {0: (7,)}) is not None
