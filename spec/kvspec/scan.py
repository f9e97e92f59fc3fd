"""The longest hit as production code looks for it: by asking the groups in turn, and not by trying every length.

The scan begins at the longest length there could be. Group after group is asked, round and round, for the longest hit
that it can serve and that is not longer than the length so far; that is the length from then on. When all have been
asked since it last became shorter, it is the hit.

It is written from these sentences, in small steps that run on numbers that are not known as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from attrs import frozen

from kvspec.symbolic import Condition, Number, either


@frozen
class Scan:
    """Where a scan stands."""

    hit_tokens: Number
    agreeing: Number
    """How many groups in a row, the last of them the one asked last, can serve this length."""
    turn: Any
    """Whom to ask next."""


def begun(tokens: Number, alignment_tokens: Number) -> Scan:
    """Nobody was asked yet. The request's last token is never served."""
    return Scan((tokens - 1) // alignment_tokens * alignment_tokens, 0, 0)


def asked(scan: Scan, groups: Number, served_tokens: Number) -> Scan:
    """One of so many ``groups`` was asked, and can serve so many tokens at most."""
    agreeing = either(served_tokens == scan.hit_tokens, scan.agreeing + 1, 1)
    return Scan(served_tokens, agreeing, either(scan.turn + 1 == groups, 0, scan.turn + 1))


def is_over(scan: Scan, groups: Number) -> Condition:
    """Whether all have been asked since the length last changed."""
    over: Condition = scan.agreeing >= groups
    return over


def scanned(groups: Sequence[Callable[[Number], Number]], tokens: Number, alignment_tokens: Number) -> Number:
    """The hit length of a request of ``tokens`` tokens; each group answers with the longest hit of at most a length."""
    scan = begun(tokens, alignment_tokens)
    while not is_over(scan, len(groups)):
        scan = asked(scan, len(groups), groups[scan.turn](scan.hit_tokens))
    return scan.hit_tokens


def searched(serves: Callable[[Number], Condition], hit_tokens: Number, alignment_tokens: Number) -> Number:
    """The longest hit that is served, of at most ``hit_tokens``: the plain way to answer. 0 is always served."""
    while not serves(hit_tokens):
        hit_tokens = lowered(hit_tokens, alignment_tokens)
    return hit_tokens


def lowered(hit_tokens: Number, alignment_tokens: Number) -> Number:
    """The next length to be tried."""
    return hit_tokens - alignment_tokens
