"""Random walks through worlds.

Goal: any violation on a walk ends it and is reported. Method: a world of numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pytest

from kvgate.explore.walk import MOVES_MAX, walk
from kvgate.explore.world import Outcome
from kvreference.snapshot import Snapshot, Violation


class Counting:
    """Counts up to ``last``, by one or by two; ``wrong`` returns the violations of a number."""

    name = "counting"
    bounds: Mapping[str, str] = {}

    def __init__(self, last: int, wrong: Mapping[int, str] | None = None, raises_at: int = -1) -> None:
        self.last, self.wrong, self.raises_at = last, wrong or {}, raises_at
        self.seen: list[int] = []

    def initial(self) -> int:
        return 0

    def moves(self, state: int) -> Iterable[int]:
        return (1, 2) if state < self.last else ()

    def step(self, state: int, move: int) -> Outcome[int]:
        if state == self.raises_at:
            raise ValueError("no further")
        self.seen.append(state + move)
        return Outcome(state + move, None, True)

    def violations_in(self, state: int) -> Sequence[Violation]:
        return [Violation("KV-INV-01", self.wrong[state])] if state in self.wrong else []

    def key(self, state: int) -> int:
        return state

    def snapshot(self, state: int) -> Snapshot:
        raise NotImplementedError

    def describe_edge(self, move: int, answer: object) -> str:
        return f"{move} -> {answer}"


def test_worlds_are_walked_in_turn_until_enough_was_done() -> None:
    """Each from its beginning, to its end or to the maximal length of a walk."""
    short, long = Counting(3), Counting(1000)
    counts: list[int] = []
    walked = walk([short, long], 100, report=counts.append)
    assert () == walked.wrong
    assert 100 <= walked.operations < 100 + MOVES_MAX
    assert (walked.walks, walked.operations) == (len(counts), counts[-1])
    assert max(short.seen) <= 4
    assert MOVES_MAX <= max(long.seen) <= 2 * MOVES_MAX


def test_a_seed_stands_for_one_walk() -> None:
    """And another one for another."""
    one, same, other = Counting(1000), Counting(1000), Counting(1000)
    for world, seed in ((one, 0), (same, 0), (other, 1)):
        walk([world], MOVES_MAX, seed)
    assert one.seen == same.seen != other.seen


def test_what_is_wrong_ends_the_walk() -> None:
    """A violation by its guarantee, an exception by its name."""
    (violation,) = walk([Counting(9, {1: "odd", 2: "even"})], 100).wrong
    assert violation.startswith("counting, move 1, ")
    assert "KV-INV-01, " in violation
    (raised,) = walk([Counting(9, raises_at=0)], 100).wrong
    assert raised.endswith("ValueError: no further")
    assert "KV-" not in raised


def test_a_world_without_a_move_is_rejected() -> None:
    """It has nothing to walk through, however often it is begun."""
    with pytest.raises(AssertionError, match="without a move"):
        walk([Counting(0)], 1)
