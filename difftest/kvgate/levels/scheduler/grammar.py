"""Grammars: which tokens they allow a request, and what they must have accepted of its answers.

A grammar follows its request token by token. If it misses one, or accepts one that the request does not have, it masks
the tokens after it by another place in the grammar: the answer is malformed, and nothing else shows it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kvgate.kernel.difference import Difference

STATEMENT = "KV-SYS-05"


def allowed(drafts: Sequence[int]) -> int:
    """How many drafts a grammar allows: those before the first that it rejects, which is any of the first five."""
    return next((place for place, token in enumerate(drafts) if (token // 10 + token % 10) % 5 == 0), len(drafts))


def check(due: Mapping[int, Sequence[int]], accepted: Mapping[int, Sequence[int]]) -> Difference | None:
    """Compare what each grammar accepted in a step with the tokens that its request was ``due``."""
    for number, tokens in accepted.items():
        expected = tuple(due.get(number, ()))
        if expected != tuple(tokens):
            where = f"request {number} (tokens that its grammar accepted)"
            return Difference(STATEMENT, where, str(expected), str(tuple(tokens)))
    return None
