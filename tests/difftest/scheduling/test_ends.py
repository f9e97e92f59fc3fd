"""The life of answers.

Goal: a request has its reported tokens, and ends when it must. Method: answers by hand.
"""

from __future__ import annotations

import pytest

from kvgate.levels.scheduler.finish_check import Books, check, due

STOP = 99


@pytest.mark.parametrize(
    ("tokens", "sampled", "expected"),
    [
        (5, [1], (6, False)),
        (5, [1, 2, 3], (8, False)),
        (5, [1, STOP, 3], (7, True)),
        (5, [STOP], (6, True)),
        (9, [1], (10, True)),
        (9, [1, 2, STOP], (10, True)),
        (8, [1, STOP], (10, True)),
    ],
)
def test_what_is_due(tokens: int, sampled: list[int], expected: tuple[int, bool]) -> None:
    """Up to the token that stops it, and to the longest that it may become: here ten tokens."""
    assert expected == due(Books(tokens, 10), sampled, STOP)


@pytest.mark.parametrize(
    ("missing", "sampled", "expected"),
    [
        (1, [STOP], (6, True)),
        (2, [STOP], (6, False)),
        (2, [1, STOP, 3], (7, True)),
        (3, [1, STOP, 3], (8, False)),
        (3, [STOP, 1, STOP, 4], (8, True)),
        (9, [1, 2, 3, 4, 5], (10, True)),
    ],
)
def test_what_must_be_answered_first(missing: int, sampled: list[int], expected: tuple[int, bool]) -> None:
    """No token stops a request before that; its length does."""
    assert expected == due(Books(5, 10, missing), sampled, STOP)


def test_another_length_or_another_end_is_found() -> None:
    """By request."""
    before, sampled = {3: Books(5, 10)}, {3: [1, 2]}
    assert check(before, sampled, STOP, [(3, 7, False)]) is None
    found = check(before, sampled, STOP, [(3, 8, False)])
    assert found is not None
    assert ("KV-SYS-02", "(7, False)", "(8, False)") == (found.statement, found.expected, found.got)
    assert check(before, sampled, STOP, [(3, 7, True)]) is not None
