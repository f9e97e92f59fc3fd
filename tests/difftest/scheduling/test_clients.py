"""The outputs that clients are sent.

Goal: every output that is wrong, sent twice or never sent is seen. Method: answers by hand, and with one thing changed.
"""

from __future__ import annotations

import pytest

from kvgate.levels.scheduler.clients import CLIENTS, ClientOutput, check, client_of, due
from kvgate.levels.scheduler.finish_check import Books

STOP = 99
SENT = [(1, 3, ClientOutput((1, 2)))]


@pytest.mark.parametrize(
    ("tokens", "sampled", "expected"),
    [
        (5, [1, 2], ClientOutput((1, 2))),
        (5, [1, STOP, 3], ClientOutput((1, STOP), "stop", STOP)),
        (8, [1, 2, 3], ClientOutput((1, 2), "length")),
        (8, [1, STOP], ClientOutput((1, STOP), "stop", STOP)),
        (9, [1, STOP], ClientOutput((1,), "length")),
    ],
)
def test_what_is_due(tokens: int, sampled: list[int], expected: ClientOutput) -> None:
    """Up to the token that ends it: one that stops it, or the last that it may have, here the tenth."""
    assert {3: expected} == due({3: Books(tokens, 10)}, {3: sampled}, STOP, ())


def test_a_failed_load_is_an_end() -> None:
    """Without a token."""
    assert {4: ClientOutput((), "error")} == due({}, {}, STOP, [4])


def test_what_is_due_is_sent() -> None:
    """Then nothing is found; also when nothing was to be sent."""
    assert client_of(3) == 3 % CLIENTS
    assert check({3: ClientOutput((1, 2))}, SENT) is None
    assert check({}, []) is None


@pytest.mark.parametrize(
    ("sent", "expected", "got"),
    [
        ([], "[1, 2], continues", "nothing"),
        (SENT * 2, "nothing more", "[1, 2], continues"),
        ([(0, 3, ClientOutput((1, 2)))], "sent to client 1", "sent to client 0"),
        ([(1, 3, ClientOutput((2, 1)))], "[1, 2], continues", "[2, 1], continues"),
        ([(1, 3, ClientOutput((1, 2), "stop", 2))], "[1, 2], continues", "[1, 2], ends (stop) with 2"),
        ([*SENT, (0, 4, ClientOutput(()))], "nothing more", "[], continues"),
    ],
)
def test_anything_else_is_found(sent: list[tuple[int, int, ClientOutput]], expected: str, got: str) -> None:
    """No output, two outputs, another client, another order, an end that is not one, a request without an answer."""
    found = check({3: ClientOutput((1, 2))}, sent)
    assert found is not None
    assert ("KV-SYS-05", expected, got) == (found.statement, found.expected, found.got)
