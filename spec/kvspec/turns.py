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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import Any
from unittest.mock import patch


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


def between_turns(function: FunctionType) -> tuple[frozenset[str], frozenset[str]]:
    """Of the first loop in ``function``: the names of lists that its turns add to, and those of all else it is given.

    Raises:
        CarriedError: a name that a turn sets is read before it is set, what is added to is read, an attribute or an
            element of what all turns are given is set, or a turn may end the loop or be left early.
    """
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    loop = next(each for each in ast.walk(body) if isinstance(each, ast.For))
    own = {each.id for each in ast.walk(loop.target) if isinstance(each, ast.Name)}
    added: set[str] = set()
    given: set[str] = set()
    for statement in loop.body:
        if any(isinstance(each, (ast.Break, ast.Continue, ast.Return, ast.Yield)) for each in ast.walk(statement)):
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
        if not isinstance(statement, ast.AugAssign):
            stored = (each for each in ast.walk(statement) if isinstance(each, ast.Name))
            own |= {each.id for each in stored if isinstance(each.ctx, ast.Store)} - within_names
    set_later = given & (own | added)
    if set_later:
        raise CarriedError(f"{', '.join(sorted(set_later))}: read before it is set, or read and added to")
    return frozenset(added), frozenset(given)
