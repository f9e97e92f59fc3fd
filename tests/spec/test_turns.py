"""Loops of which one turn is run.

Goal: what is proved of one turn holds of all. Method: each function whose loop over groups is run for one of them is
read, and rejected if a turn reads what another has left; and what a turn rests on is written in the stated places only.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kvreference
from kvspec.turns import (
    FOLDS,
    LOOPS,
    ONE_BY_ONE,
    CarriedError,
    between_turns,
    elements_of_source,
    loops_of,
    loops_of_source,
    one_by_one,
    turns_of_source,
)


@pytest.mark.parametrize("function", FOLDS)
def test_turns_of_groups_share_nothing_else(function: Callable[..., Any]) -> None:
    """Each adds to these lists, and reads none of them."""
    added, given = between_turns(function)
    assert FOLDS[function] == added
    assert not added & given


ALL_GROUPS = "enumerate(zip(geometry.groups, tables, strict=True))"


def _loop(over: str, *turn: str, before: str = "pass") -> str:
    """A function with such a loop."""
    body = "".join(f"        {line}\n" for line in turn)
    heading = "def register(pool, geometry, tables, total, request):\n"
    return f"{heading}    {before}\n    for index, (group, table) in {over}:\n{body}"


def test_a_turn_of_its_own_is_accepted() -> None:
    """It adds to a list of all, and changes lists that it made."""
    turn = ("its = [group]", "its.append(table)", "its += [index]", "pool.register(its, index)", "total += its")
    numbered = (*turn, "if its: more = index; table.dead = more")
    for over in (
        ALL_GROUPS,
        "zip(geometry.groups, tables, strict=True)",
        "zip(tables[request], *geometry.values(), strict=True)",
    ):
        assert turns_of_source(_loop(over, *turn))[0] == {"total"}
        assert turns_of_source(_loop(over, *numbered, "last.append(its)"))[0] == {"total", "last"}


@pytest.mark.parametrize(
    "turn",
    [
        ("if group > 3: break", "total += [group]"),
        ("if group > 3: raise StopIteration", "total += [group]"),
        ("assert group < 3", "total += [group]"),
        ("total += [last]", "last = group"),
        ("total += [len(total) + group]",),
        ("total[0] = group[0]",),
        ("total.append(len(total))",),
        ("if group: total.append(group)",),
        ("if group: last = group", "total += [last]"),
        ("if group: table.dead += 1",),
        ("request.dead = group",),
        ("total += [tables.pop()]",),
        ("request.seen.add(group)",),
        ("request.keys.update({index: group})",),
        ("add = total.append", "add(group)"),
        ("mine = request.drafts", "mine.append(group)"),
        ("mine = request.drafts", "mine += [group]"),
        ("mine = []", "mine = request.drafts", "mine.clear()"),
        ("mine = theirs = request.drafts", "theirs.clear()"),
        ("if group: total += [group]",),
        ("table.blocks.append(group)",),
    ],
)
def test_a_turn_that_rests_on_another_is_rejected(turn: tuple[str, ...]) -> None:
    """One that ends the loop, reads what an earlier one set or added, or changes what it did not make."""
    with pytest.raises(CarriedError):
        turns_of_source(_loop(ALL_GROUPS, *turn))


@pytest.mark.parametrize(
    ("over", "before"),
    [
        ("enumerate(list(zip(geometry.groups, tables, strict=True))[:2])", "pass"),
        ("enumerate(zip(geometry.groups, tables))", "pass"),
        ("enumerate(zip(geometry.groups, tables, strict=False))", "pass"),
        ("enumerate(zip(geometry.groups[:2], tables[:2], strict=True))", "pass"),
        ("enumerate(zip(geometry.groups, tables, strict=True), 1)", "pass"),
        ("enumerate(reversed(tables))", "pass"),
        ("enumerate(zip(first, tables, strict=True))", "first = geometry.groups[:2]"),
        ("enumerate(zip(tables, tables, strict=True))", "tables = tables[:2]"),
        (ALL_GROUPS, "for _ in (): pass"),
    ],
)
def test_a_loop_over_some_groups_is_rejected(over: str, before: str) -> None:
    """One that takes some of the groups, stops at the shortest, numbers them otherwise, or is not the only one."""
    with pytest.raises(CarriedError):
        turns_of_source(_loop(over, "total += [group]", before=before))


@pytest.mark.parametrize("function", LOOPS)
def test_loops_over_requests_go_through_all(function: Callable[..., Any]) -> None:
    """Each turn does the same, and no turn ends the loop."""
    assert LOOPS[function] == loops_of(function)


@pytest.mark.parametrize(
    "turn", ["if each > 2: break", "if each < 2: each.answer()", "return each", "assert each", "each.answer()"]
)
def test_loops_with_turns_that_differ_are_rejected(turn: str) -> None:
    """So is one over what was cut before."""
    cut = "    all_of_them = all_of_them[:2]\n" if turn == "each.answer()" else ""
    source = f"def step():\n    all_of_them = [1, 2, 3]\n{cut}    for each in all_of_them:\n        {turn}\n"
    with pytest.raises(CarriedError):
        loops_of_source(source)


@pytest.mark.parametrize("function", ONE_BY_ONE)
def test_each_group_is_counted_by_itself(function: Callable[..., Any]) -> None:
    """No comprehension carries anything from one element to the next, or passes one over."""
    assert ONE_BY_ONE[function] == one_by_one(function)


@pytest.mark.parametrize(
    "made",
    [
        "sum(table.count for table in tables[:2])",
        "sum(table.count for table in reversed(tables))",
        "sum(table.count for table, group in zip(tables, groups))",
        "sum(table.count for table in islice(tables, 2))",
        "sum(last := table.count for table in tables)",
        "sum(table.count + next(others) for table in tables)",
        "sum(table.blocks.pop() for table in tables)",
        "some = tables[:2]; sum(table.count for table in some)",
        "some = zip(tables, groups); sum(table.count for table, group in some)",
        "some = tables if tables else groups[1:]; [table for table in some]",
        "some: Tables = list(tables); [table for table in some]",
        "some = [copy for copy in copies][:2]; any(block in some for block in blocks)",
        "total([table for table in tables][:2])",
        "total(islice((table for table in tables), 2))",
        "total({table: 1 for table in tables[:2]})",
        "total(list(counts.values())[:2])",
    ],
)
def test_elements_that_rest_on_others_are_rejected(made: str) -> None:
    """Such as those of some groups, or of what others have left."""
    with pytest.raises(CarriedError):
        elements_of_source(made)


@pytest.mark.parametrize(
    ("attribute", "writers"),
    [("registered", {"_take_due", "_forget_after"}), ("boundary_tokens", {"_take_boundaries"})],
)
def test_what_was_looked_at_is_written_where_it_is_proved(attribute: str, writers: set[str]) -> None:
    """No other function of the reference writes it, and a table begins with it when a request is admitted."""
    found, made = set[str](), set[str]()
    for path in Path(kvreference.__file__).parent.rglob("*.py"):
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
