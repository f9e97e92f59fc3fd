"""What a scheduler makes of the worker's answers: which tokens a request gets, and whether it ends with them.

A request ends with the token that stops it, with the last that it may be answered, or when it is as long as a request
may become; tokens sampled after that one are never sent. It ends, too, with answers of which its grammar rejects one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from attrs import evolve, frozen

from kvgate.kernel.difference import Difference
from kvreference.operations import Sample


@frozen
class Books:
    """What a scheduler knows of one request when it is about to take its answer."""

    tokens: int
    """How long it is."""
    tokens_max: int
    """How long it may become."""
    answers_missing: int = 0
    """How many answers more it must have before a token may stop it."""
    grammar_left: int | None = None
    """How many answers more its grammar accepts, if not all: with the one after these it ends with an error."""


def due(books: Books, sampled: Sequence[int], stop: int) -> tuple[int, bool]:
    """How long a request is once it was answered, and whether it has ended."""
    stops = (at for at, token in enumerate(sampled, 1) if token == stop and at >= books.answers_missing)
    said = next(stops, None)
    tokens = min(books.tokens + (said or len(sampled)), books.tokens_max)
    ends = tokens == books.tokens_max or said is not None
    return tokens, ends or is_rejected(books, sampled[: tokens - books.tokens])


def is_rejected(books: Books, answered: Sequence[int]) -> bool:
    """Whether the grammar of a request rejects one of the tokens that the request gets."""
    return books.grammar_left is not None and len(answered) > books.grammar_left


def as_taken(answer: Sample, sampled: Sequence[int], books: Books, stop: int) -> Sample:
    """An answer without the tokens that the scheduler will leave out after the last that the request may have."""
    tokens, _ = due(books, sampled, stop)
    last = tokens - books.tokens - 1
    beyond = answer.accepted - last
    return evolve(answer, accepted=last, token=sampled[last], beyond=beyond) if beyond > 0 else answer


def check(
    before: Mapping[int, Books], sampled: Mapping[int, Sequence[int]], stop: int, after: Iterable[tuple[int, int, bool]]
) -> Difference | None:
    """Compare with what the scheduler knows afterwards: request, how long it is, whether it has ended."""
    for number, tokens, ended in after:
        expected = due(before[number], sampled[number], stop)
        if expected != (tokens, ended):
            where = f"request {number}, answered {len(sampled[number])} (tokens, whether it has ended)"
            return Difference("KV-SYS-02", where, str(expected), str((tokens, ended)))
    return None
