"""Loops of any length: one turn is run, from what holds before every turn.

A proof by induction over the turns has three parts. Before the first turn the invariant holds: what a loop begins with
is compared. A turn at any place begins with the invariant, which is put there, and ends with the invariant of the next
one. When the loop ends, no place that is left needs a turn. What holds of one turn so holds of all.

Where each turn is of another group, the turns share what they are given, and add to lists: this is read from the
source, by ``between_turns``. Then a loop over groups is what one turn does, for each group, one after the other.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import Any
from unittest.mock import patch

from kvspec.kernel import CHANGES


class Turns:
    """The turns that were run, at these ``places``; ``before`` each, what holds then is put there."""

    def __init__(self, places: Sequence[Any], before: Callable[[Any], None]) -> None:
        self.places, self.before = places, before
        self.firsts: list[Any] = []
        """With which place the loop of each turn begins."""
        self.went_on = 0
        """After how many turns the loop asked for the next one."""


class Range:
    """A range of places, of which some are run."""

    def __init__(self, first: Any, end: Any, turns: Turns) -> None:
        self.first, self.end, self._turns = first, end, turns

    def __contains__(self, place: Any) -> bool:
        return bool((place >= self.first) & (place < self.end))

    def __iter__(self) -> Iterator[Any]:
        for place in self._turns.places:
            if place in self:
                self._turns.firsts.append(self.first)
                self._turns.before(place)
                yield place
                self._turns.went_on += 1


@contextmanager
def turns_at(
    module: ModuleType, places: Sequence[Any], before: Callable[[Any], None] = lambda _place: None
) -> Iterator[Turns]:
    """Loops of ``module`` over a range run their turns at these ``places``, if they have them."""
    turns = Turns(places, before)

    def ranged(first: Any, end: Any, step: int = 1) -> Range:
        assert isinstance(step, int) and step == 1, "places are neighbours"  # noqa: PT018  # one thing is asked
        return Range(first, end, turns)

    with patch.object(module, "range", ranged, create=True):
        yield turns


@contextmanager
def turn_of_group(module: ModuleType, index: Any) -> Iterator[None]:
    """Loops of ``module`` over numbered groups run their turn of the group with that ``index``."""
    with patch.object(module, "enumerate", lambda groups: [(index, each) for each in groups], create=True):
        yield


class CarriedError(Exception):
    """A turn reads what an earlier one has left, or ends the loop."""


_ENDS = (ast.Break, ast.Continue, ast.Return, ast.Yield, ast.YieldFrom, ast.Raise, ast.Assert)
_CHANGES = CHANGES - {"register"} | {"add", "discard", "difference_update", "intersection_update"}
"""The methods that a turn calls only of lists of its own. A pool registers: what that does is proved of each call."""


def between_turns(function: FunctionType) -> tuple[frozenset[str], frozenset[str]]:
    """Of the one loop in ``function``: the names of lists that its turns add to, and those of all else it is given.

    Raises:
        CarriedError: the loop does not go through all elements of parameters side by side, a name that a turn sets is
            read before it is set, what is added to is read, something that the turn did not make is changed, or a turn
            may end the loop or be left early.
    """
    return turns_of_source(textwrap.dedent(inspect.getsource(function)))


def turns_of_source(source: str) -> tuple[frozenset[str], frozenset[str]]:
    """What ``between_turns`` says of a function with this ``source``.

    Raises:
        CarriedError: as there.
    """
    (body,) = ast.parse(source).body
    assert isinstance(body, ast.FunctionDef)
    loops = [each for each in body.body if isinstance(each, ast.For)]
    if len(loops) != 1 or not _goes_through_all(loops[0].iter, _parameters(body)):
        raise CarriedError(f"line {body.lineno} has no loop over all elements of its parameters, or another one")
    (loop,) = loops
    own = {each.id for each in ast.walk(loop.target) if isinstance(each, ast.Name)}
    made = _made(loop)
    added: set[str] = set()
    given: set[str] = set()
    for statement in loop.body:
        if any(isinstance(each, _ENDS) for each in ast.walk(statement)):
            raise CarriedError(f"line {statement.lineno} leaves a turn")
        target = statement.target if isinstance(statement, ast.AugAssign) else None
        if isinstance(target, ast.Name) and target.id not in own:
            added.add(target.id)
        # A comprehension, or a loop within, sets its own names.
        within = [each for each in ast.walk(statement) if isinstance(each, (ast.comprehension, ast.For))]
        within_names = {name.id for each in within for name in ast.walk(each.target) if isinstance(name, ast.Name)}
        for node in ast.walk(statement):
            if isinstance(node, (ast.Attribute, ast.Subscript)) and not isinstance(node.ctx, ast.Load):
                raise CarriedError(f"line {statement.lineno} sets {ast.unparse(node)}")
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                given |= {node.id} - own - within_names
            changed = node.value if isinstance(node, ast.Attribute) and node.attr in _CHANGES else None
            if isinstance(node, ast.AugAssign) and not (node is statement and added & {_root(node.target)}):
                changed = node.target
            if changed is not None and not (isinstance(changed, ast.Name) and changed.id in made):
                raise CarriedError(f"line {statement.lineno} changes {ast.unparse(changed)}")
        if not isinstance(statement, ast.AugAssign):
            stored = (each for each in ast.walk(statement) if isinstance(each, ast.Name))
            own |= {each.id for each in stored if isinstance(each.ctx, ast.Store)} - within_names
    set_later = given & (own | added)
    if set_later:
        raise CarriedError(f"{', '.join(sorted(set_later))}: read before it is set, or read and added to")
    return frozenset(added), frozenset(given)


def _parameters(function: ast.FunctionDef) -> set[str]:
    """The names of parameters that stand for the same object throughout."""
    arguments = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
    names = (each for each in ast.walk(function) if isinstance(each, ast.Name))
    return {each.arg for each in arguments} - {each.id for each in names if not isinstance(each.ctx, ast.Load)}


def _goes_through_all(node: ast.expr, parameters: set[str]) -> bool:
    """Whether it is ``zip(…, strict=True)``, numbered or not, of ``parameters`` or attributes of them."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
        return False
    if node.func.id == "enumerate":
        return len(node.args) == 1 and not node.keywords and _goes_through_all(node.args[0], parameters)
    whole = node.func.id == "zip" and [ast.unparse(each) for each in node.keywords] == ["strict=True"]
    return whole and all(_root(each) in parameters for each in node.args)


def _root(node: ast.expr) -> str:
    """The name of which it is an attribute, or that it is; empty if it is something else."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _made(loop: ast.For) -> set[str]:
    """The names that a turn sets only to new lists."""
    new, stored = Counter[str](), Counter[str]()
    for node in ast.walk(loop):
        if isinstance(node, ast.Assign) and isinstance(node.value, (ast.List, ast.ListComp)):
            new.update(each.id for each in node.targets if isinstance(each, ast.Name))
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            stored[node.id] += 1
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            stored[node.target.id] -= 1
    return {name for name, times in new.items() if times == stored[name]}
