"""Loops of which one turn is run.

Goal: what is proved of one turn holds of all. Method: each function whose loop over groups is run for one of them is
read, and rejected if a turn reads what another has left; and what a turn rests on is written in the stated places only.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FunctionType

import pytest

import kvreference
from kvspec.proofs.running_registration import FOLDS
from kvspec.turns import CarriedError, between_turns


@pytest.mark.parametrize("function", FOLDS)
def test_turns_of_groups_share_nothing_else(function: FunctionType) -> None:
    """Each adds to these lists, and reads none of them."""
    added, given = between_turns(function)
    assert FOLDS[function] == added
    assert not added & given


def _breaks(groups: Sequence[int], total: list[int]) -> None:
    for group in groups:
        if group > 3:
            break
        total += [group]


def _carries(groups: Sequence[int], total: list[int]) -> None:
    last = 0
    for group in groups:
        total += [last]
        last = group


def _reads_what_it_adds(groups: Sequence[int], total: list[int]) -> None:
    for group in groups:
        total += [len(total) + group]


def _sets(groups: Sequence[list[int]], total: list[int]) -> None:
    for group in groups:
        total[0] = group[0]


@pytest.mark.parametrize("function", [_breaks, _carries, _reads_what_it_adds, _sets])
def test_a_turn_that_rests_on_another_is_rejected(function: Callable[..., None]) -> None:
    """One that ends the loop, reads what an earlier one set or added, or writes to what all are given."""
    assert isinstance(function, FunctionType)
    with pytest.raises(CarriedError):
        between_turns(function)


@pytest.mark.parametrize(
    ("attribute", "writers"),
    [("registered", {"_take_due", "_rewind"}), ("boundary_tokens", {"_take_boundaries"})],
)
def test_what_was_looked_at_is_written_where_it_is_proved(attribute: str, writers: set[str]) -> None:
    """No other function of the reference writes it, and a table begins with it when a request is admitted."""
    found, made = set[str](), set[str]()
    for path in Path(kvreference.__file__).parent.rglob("*.py"):
        if "refuted" in path.parts:
            continue
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(function, ast.FunctionDef):
                continue
            for node in ast.walk(function):
                if isinstance(node, ast.Attribute) and node.attr == attribute and isinstance(node.ctx, ast.Store):
                    found.add(function.name)
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Table":
                    made.add(function.name)
    assert writers == found
    assert {"tables_of_hit"} == made
