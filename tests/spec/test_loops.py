"""Loops of which one turn is run from any state, and what a step is made of.

Goal: what a rule leaves out is noticed, and no action of a step is without a proof. Method: cut functions whose loops
carry more than the rule says, and compare the actions with the source of the scheduler.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from kvreference import operations
from kvreference.scheduler import scheduler
from kvreference.scheduler.scheduler import Scheduler
from kvspec.loops import Rule, TurnOverError, cut, edited
from kvspec.obligation import Tier
from kvspec.progress.actions import ACTIONS, ASKS, RANK, STEP
from kvspec.registry import obligations
from kvspec.turns import CarriedError


def _added_up(numbers: list[int]) -> int:
    total = 0
    for number in numbers:
        total += number
    return total


def _counted_down(number: int) -> int:
    while number > 0:
        number -= 1
    return number


class Total(Rule):
    """The total of those before: it was 7."""

    condition, carried = "numbers", ("total",)
    left = 0

    def begins(self, through: Any, *carried: Any) -> tuple[Any, ...]:
        assert carried == (0,)
        self.elements = list(through)[2:3]
        return (7,)

    def is_over(self, *carried: Any) -> None:
        (self.left,) = carried


class Down(Rule):
    """It was 3, or 0."""

    condition, carried = "number > 0", ("number",)

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    def begins(self, through: Any, *carried: Any) -> tuple[Any, ...]:
        assert (through, carried) == (None, (9,))
        return (self.number,)

    def is_over(self, *carried: Any) -> None:
        assert carried == (self.number - 1,)


def test_one_turn_is_run_from_what_the_rule_says() -> None:
    """Of a loop over elements the one that the rule chooses; after none, the function continues."""
    rule = Total()
    with pytest.raises(TurnOverError):
        cut(_added_up, rule)([1, 2, 30, 4])
    assert rule.left == 37
    assert cut(_added_up, Total())([1]) == 7


def test_a_condition_is_asked_from_what_the_rule_says() -> None:
    """It is so, and a turn is run; or it is not, and the function continues."""
    with pytest.raises(TurnOverError):
        cut(_counted_down, Down(3))(9)
    assert cut(_counted_down, Down(0))(9) == 0


@pytest.mark.parametrize(
    "edits",
    [
        [("in numbers", "in numbers[:2]")],
        [("total += number", "total += number; numbers.pop()")],
        [("total = 0", "total = 0; numbers = numbers[:2]")],
        [("total = 0", "total = 0; numbers.pop()")],
        [("total = 0", "total = place = 0"), ("total += number", "total += number; place += 1")],
        [("total = 0", "total, last = 0, []"), ("total += number", "total += number; last.append(total)")],
        [("    return", "    for _ in (): pass\n    return")],
        [("    return", "    else: pass\n    return")],
    ],
)
def test_what_a_rule_does_not_say_is_rejected(edits: list[tuple[str, str]]) -> None:
    """Other elements, other names that are carried, another loop."""
    function: Callable[..., Any] = _added_up
    for edit in edits:
        function = edited(function, *edit)
    with pytest.raises(CarriedError):
        cut(function, Total())


def test_an_edit_changes_one_place() -> None:
    """One that is not there, or is there twice, is none."""
    assert edited(_added_up, "total = 0", "total = 5")([1, 2]) == 8
    for old in ("nowhere", "total"):
        with pytest.raises(ValueError, match="times"):
            edited(_added_up, old, "")


def _place(call: ast.Call) -> tuple[int, int]:
    return call.lineno, call.col_offset


def test_a_scheduler_asks_for_nothing_else() -> None:
    """By its source: each action is in the table, and is asked for where the table says."""
    asks: dict[str, tuple[str, ...]] = {}
    for method in ast.walk(ast.parse(inspect.getsource(scheduler))):
        if isinstance(method, ast.FunctionDef):
            calls = [each for each in ast.walk(method) if isinstance(each, ast.Call)]
            names = {"self._perform", "self._compute"}
            asked = [each.args[0] for each in sorted(calls, key=_place) if ast.unparse(each.func) in names]
            if asked:
                each_asked = [ast.unparse(each.func if isinstance(each, ast.Call) else each) for each in asked]
                asks[method.name] = tuple(each_asked)
    assert asks == ASKS
    # The manager itself is asked in one place.
    assert inspect.getsource(scheduler).count("self.manager.apply(") == 1
    assert "self.manager.apply(" in inspect.getsource(Scheduler._perform)
    named = {getattr(operations, name) for names in ASKS.values() for name in names if name[0].isupper()}
    assert set(ACTIONS) == named | {operations.Arrive, operations.Abort, operations.Transferred}


@pytest.mark.parametrize("name", sorted({*STEP, *RANK, *(name for names in ACTIONS.values() for name in names)}))
def test_each_action_is_proved_of_the_code_that_runs(name: str) -> None:
    """Each obligation that is named has tier P."""
    assert Tier.ALL is obligations()[name].tier
