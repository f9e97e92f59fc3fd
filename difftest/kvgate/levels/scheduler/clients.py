"""What clients are told: which tokens their requests were answered, and once, when and why each of them ended.

A client waits for what it is told, and knows nothing else. What it gets is compared with what the model answered, up to
the token that ends the request. Who gives up is told nothing; whose load fails is told so where that is an end, and
who that is the scheduler's own books say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from attrs import frozen

from kvgate.kernel.difference import Difference
from kvgate.levels.scheduler import finish_check

STATEMENT = "KV-SYS-05"
CLIENTS = 2
"""How many clients there are."""
STOPPED, LENGTH, ERROR = "stop", "length", "error"


@frozen
class Said:
    """What a client is told of one request behind one step."""

    tokens: tuple[int, ...]
    ended: str | None = None
    """Why it ended; None: it goes on."""
    stop: object = None
    """The token that stopped it."""


def client_of(number: int) -> int:
    """Who sent a request."""
    return number % CLIENTS


def due(
    before: Mapping[int, finish_check.Books], sampled: Mapping[int, Sequence[int]], stop: int, failed: Iterable[int]
) -> dict[int, Said]:
    """Per request, what is to be told; ``failed`` are those that end since their load failed."""
    said = {number: Said((), ERROR) for number in failed}
    for number, books in before.items():
        tokens, ended = finish_check.due(books, sampled[number], stop)
        answered = tuple(sampled[number][: tokens - books.tokens])
        if ended and answered[-1] == stop:
            said[number] = Said(answered, STOPPED, stop)
        else:
            said[number] = Said(answered, LENGTH if ended else None)
    return said


def judge(expected: Mapping[int, Said], told: Iterable[tuple[int, int, Said]]) -> Difference | None:
    """Compare with what is told: to which client, of which request, what."""
    left = dict(expected)
    for client, number, got in told:
        where = f"request {number}, as its client is told"
        if client != client_of(number):
            return Difference(STATEMENT, where, f"told to client {client_of(number)}", f"told to client {client}")
        ours = left.pop(number, None)
        if ours is None:
            return Difference(STATEMENT, where, "nothing more", _words(got))
        if ours != got:
            return Difference(STATEMENT, where, _words(ours), _words(got))
    for number, ours in left.items():
        return Difference(STATEMENT, f"request {number}, as its client is told", _words(ours), "nothing")
    return None


def _words(said: Said) -> str:
    end = "goes on" if said.ended is None else f"ends ({said.ended})"
    return f"{list(said.tokens)}, {end}" + ("" if said.stop is None else f" with {said.stop}")
