"""Shrinking.

Goal: the rest of a case is as short and as simple as it can be, and the search ends. Method: predicates whose smallest
case is known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvgate.gate import shrink as shrinking
from kvgate.gate.shrink import OF_BLOCK_MANAGERS, shrink, simpler
from kvreference.content import Keys, Media
from kvreference.operations import (
    Admit,
    Arrive,
    Evict,
    Finish,
    LookUp,
    Operation,
    Preempt,
    Reset,
    Run,
    Sample,
    Schedule,
    TakeEvents,
)


def shrunk(
    operations: Sequence[Operation], still_fails: Callable[[Sequence[Operation]], bool]
) -> tuple[Operation, ...]:
    """The operations of a block manager that remain."""
    return shrink(operations, still_fails, partial(simpler, rules=OF_BLOCK_MANAGERS))


NOISE: tuple[Operation, ...] = (TakeEvents(), Reset(), LookUp(3), Evict(7), Preempt(2))
KEYS = Keys("salt", "adapter", (Media("cat", 0, 2), Media("dog", 5, 2)))


def has(wanted: Callable[[Operation], bool]) -> Callable[[Sequence[Operation]], bool]:
    """Whether some operation is wanted."""
    return lambda operations: any(map(wanted, operations))


def surrounded(*operations: Operation) -> tuple[Operation, ...]:
    """The operations with noise between them."""
    return tuple(each for operation in operations for each in (*NOISE, operation, *NOISE))


@settings(max_examples=100, derandomize=True, database=None, deadline=None)
@given(
    st.integers(0, 30).flatmap(lambda number: st.tuples(st.just(number), st.sets(st.integers(0, max(0, number - 1)))))
)
def test_what_is_needed_is_all_that_remains(drawn: tuple[int, set[int]]) -> None:
    """Any subset of the operations, wherever they stand, and in their order."""
    number, needed = drawn
    operations = [LookUp(index) for index in range(number)]
    wanted = [LookUp(index) for index in sorted(needed) if index < number]
    assert tuple(wanted) == shrunk(operations, lambda candidate: set(wanted) <= set(candidate))


def test_the_order_is_kept() -> None:
    """Two of a kind are needed, and a third between them."""
    needed = (Finish(1), LookUp(1), Finish(1))

    def still_fails(operations: Sequence[Operation]) -> bool:
        rest = iter(operations)
        return all(operation in rest for operation in needed)

    assert needed == shrunk(surrounded(*needed), still_fails)


def test_all_of_a_kind_can_go_at_once() -> None:
    """Between others that stay: with two or three of them nothing fails, so none can go by itself from four."""
    needed = tuple(Finish(number) for number in range(5))

    def still_fails(operations: Sequence[Operation]) -> bool:
        steps = sum(isinstance(each, LookUp) for each in operations)
        return steps in (1, 4) and needed == tuple(each for each in operations if isinstance(each, Finish))

    apart = (needed[0], LookUp(1), needed[1], LookUp(2), needed[2], LookUp(3), needed[3], LookUp(4), needed[4])
    assert (*needed[:4], LookUp(4), needed[4]) == shrunk(apart, still_fails)


def test_what_is_smallest_stays_as_it_is() -> None:
    """So does what is empty."""
    assert (Finish(1),) == shrunk((Finish(1),), has(lambda each: each == Finish(1)))
    assert () == shrunk((), lambda _: True)
    assert () == shrunk(surrounded(Finish(1)), lambda _: True)


def prompt_of(operation: Operation) -> int:
    return sum(run.length for run in operation.prompt) if isinstance(operation, Arrive) else 0


ARRIVAL = Arrive(0, (Run(0, 40), Run(500, 20), Run(900, 3)), KEYS, reads_cache=False)

SIMPLER: dict[str, tuple[Operation, Callable[[Operation], bool], Operation]] = {
    "any request": (ARRIVAL, lambda each: isinstance(each, Arrive), Arrive(0, (Run(0, 1),))),
    "a long prompt": (ARRIVAL, lambda each: prompt_of(each) >= 17, Arrive(0, (Run(0, 17),))),
    "a later run": (
        ARRIVAL,
        lambda each: isinstance(each, Arrive) and Run(900, 3) in each.prompt,
        Arrive(0, (Run(900, 3),)),
    ),
    "keys": (
        ARRIVAL,
        lambda each: isinstance(each, Arrive) and each.keys.salt is not None,
        Arrive(0, (Run(0, 1),), Keys("salt", "adapter")),
    ),
    "one item": (
        ARRIVAL,
        lambda each: isinstance(each, Arrive) and len(each.keys.media) >= 1,
        Arrive(0, (Run(0, 1),), Keys("salt", "adapter", (Media("cat", 0, 2),))),
    ),
    "no cache": (
        ARRIVAL,
        lambda each: isinstance(each, Arrive) and not each.reads_cache,
        Arrive(0, (Run(0, 1),), reads_cache=False),
    ),
    "an admission": (Admit(2, 100), lambda each: isinstance(each, Admit) and each.tokens >= 7, Admit(2, 7)),
    "a step": (Schedule(2, 100), lambda each: isinstance(each, Schedule), Schedule(2, 1)),
    "drafts": (Sample(1, 4, 9, 4), lambda each: isinstance(each, Sample) and each.drafts >= 3, Sample(1, 0, 9, 3)),
    "accepted drafts": (
        Sample(1, 4, 9, 4),
        lambda each: isinstance(each, Sample) and each.accepted >= 2,
        Sample(1, 2, 9, 0),
    ),
}


@pytest.mark.parametrize(("operation", "wanted", "expected"), SIMPLER.values(), ids=SIMPLER)
def test_an_operation_becomes_as_simple_as_it_can(
    operation: Operation, wanted: Callable[[Operation], bool], expected: Operation
) -> None:
    """And by itself, in any surroundings."""
    assert (expected,) == shrunk(surrounded(operation), has(wanted))


def test_a_simpler_number_may_let_an_operation_go() -> None:
    """So deleting is tried again: here a second operation is needed only as long as the first one's budget is large."""

    def still_fails(operations: Sequence[Operation]) -> bool:
        budgets = [each.tokens for each in operations if isinstance(each, Schedule)]
        return len(operations) >= 2 or (len(budgets) == 1 and budgets[0] <= 4)

    assert (Schedule(0, 1),) == shrunk((Schedule(0, 30), Finish(0)), still_fails)


def test_the_search_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """After so many attempts, with a case that still fails; with more of them it would be shorter."""
    asked: list[int] = []

    def still_fails(operations: Sequence[Operation]) -> bool:
        asked.append(len(operations))
        return prompt_of(operations[0]) >= 1000 if operations else False

    operations = (Arrive(0, (Run(0, 10**9),)), *NOISE * 20)
    monkeypatch.setattr(shrinking, "ATTEMPTS_MAX", 25)
    cut = shrunk(operations, still_fails)
    assert 25 == len(asked)
    assert still_fails(cut)
    monkeypatch.undo()
    assert (Arrive(0, (Run(0, 1000),)),) == shrunk(operations, still_fails)
    assert 25 < len(asked) < shrinking.ATTEMPTS_MAX
