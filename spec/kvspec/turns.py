"""Loops of any length: one turn is run, from what holds before every turn.

A proof by induction over the turns has three parts. Before the first turn the invariant holds: what a loop begins with
is compared. A turn at any place begins with the invariant, which is put there, and ends with the invariant of the next
one. When the loop ends, no place that is left needs a turn. What holds of one turn so holds of all.

Where each turn is of another group, the turns share what they are given, and add to lists: this is read from the
source, by ``between_turns``. Then a loop over groups is what one turn does, for each group, one after the other. A
comprehension over groups makes each element by itself, which is read by ``one_by_one``. So a model of any number of
groups is run over those that are observed, and a sum over groups adds what is run to what all others add
(``added_to_others``).
"""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType, ModuleType
from typing import Any
from unittest.mock import patch

from kvreference import admission, ahead, caching, manager, tables
from kvreference.holdings import Holdings
from kvreference.manager import Manager
from kvreference.population import Population
from kvreference.scheduler import progress, room
from kvreference.scheduler.scheduler import Scheduler
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


@contextmanager
def added_to_others(module: ModuleType, function: str, others: Any) -> Iterator[None]:
    """Sums over groups that ``function`` makes, called from ``module``, begin with what all ``others`` add.

    The others are not run. In which order numbers are added makes no difference.
    """
    counted = vars(module)[function]

    def counts(*arguments: Any) -> Any:
        with patch.object(sys.modules[counted.__module__], "sum", lambda numbers: sum(numbers, others), create=True):
            return counted(*arguments)

    with patch.object(module, function, counts):
        yield


class CarriedError(Exception):
    """A turn reads what an earlier one has left, or ends the loop."""


FOLDS: Mapping[Callable[..., Any], frozenset[str]] = MappingProxyType(
    {
        caching.register: frozenset({"events", "fenced"}),
        tables.tables_of_hit: frozenset({"tables"}),
        tables.plan: frozenset({"layouts"}),
        Holdings.release_dead: frozenset(),
        Holdings.leading_shared: frozenset({"shared"}),
        Manager._forget_after: frozenset({"lost"}),
    }
)
"""The functions whose loop over groups is run for those that are observed: each turn adds to these lists, and shares
what it is given and nothing else with the others (``between_turns``).

Where a turn has the kernel change the pool, that is proved from any sound pool, and so from the one that the turns
before it leave.
"""
ONE_BY_ONE: Mapping[Callable[..., Any], int] = MappingProxyType(
    {
        admission.blocks_to_come: 1,
        ahead.tokens_awaited: 1,
        manager.lacks_blocks: 1,
        admission.blocks_to_come_with: 2,
        admission.tables_of_hit: 2,
        admission.passes_gate: 2,
        tables.plan_provided: 2,
        tables.blocks_new: 2,
        Holdings._check_not_written: 2,
        Holdings.passes_gate: 1,
        Holdings.allocate: 4,
        Scheduler._step: 1,
        progress._steps_ahead: 1,
        room.blocks_to_run: 1,
        room.blocks_parked: 2,
        room.is_room: 1,
        Scheduler._admit_waiting: 1,
        Scheduler._leaves_room: 2,
    }
)
"""The functions that make something of each group or step, or ask each copy, and how many comprehensions they do that
with (``one_by_one``)."""

LOOPS: Mapping[Callable[..., Any], tuple[str, ...]] = MappingProxyType(
    {
        Scheduler._step: ("zip(answered, cycle(replies), strict=False)",),
        Population.settle: ("self.alive.values()",),
    }
)
"""The functions whose loops do the same for each request, and what these go through (``loops_of``)."""

_ENDS = (ast.Break, ast.Continue, ast.Return, ast.Yield, ast.YieldFrom, ast.Raise, ast.Assert)
_CHANGES = CHANGES - {"register"} | {"add", "discard", "difference_update", "intersection_update"}
"""The methods that a turn calls only of lists of its own. A pool registers: what that does is proved of each call."""


def between_turns(function: Callable[..., Any]) -> tuple[frozenset[str], frozenset[str]]:
    """Of the one loop in ``function``: the names of lists that its turns add to, and those of all else it is given.

    Raises:
        CarriedError: the loop does not go through all elements of parameters side by side, a name that a turn sets is
            read before it is set, what is added to is read, something is changed that is neither made by the turn nor
            an attribute of its own element, or a turn may end the loop or be left early.
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
    turn = _Turn(loops[0])
    turn.reads(loops[0].body, turn.element)
    set_later = turn.given & (turn.sets | turn.added)
    if set_later:
        raise CarriedError(f"{', '.join(sorted(set_later))}: read before it is set, or read and added to")
    return frozenset(turn.added), frozenset(turn.given)


class _Turn:
    """What a turn of a loop reads, sets and adds to."""

    def __init__(self, loop: ast.For) -> None:
        self.element = {each.id for each in ast.walk(loop.target) if isinstance(each, ast.Name)}
        self.made = _made(loop)
        self.added, self.given, self.sets = set[str](), set[str](), set(self.element)

    def reads(self, statements: Sequence[ast.stmt], known: set[str], is_sure: bool = True) -> None:
        """Statements that come after those that have set the names ``known``; they are executed for sure, or not."""
        own = set(known)
        for statement in statements:
            if isinstance(statement, ast.If):
                self._reads_one(statement.test, own)
                for branch in (statement.body, statement.orelse):
                    self.reads(branch, own, is_sure=False)
            elif is_sure and (name := _added_to(statement, own)):
                self.added.add(name)
                self._reads_one(_what_is_added(statement), own)
            else:
                own |= self._reads_one(statement, own)

    def _reads_one(self, statement: ast.AST, own: set[str]) -> set[str]:
        """Returns the names that it sets."""
        line = f"line {getattr(statement, 'lineno', '?')}"
        if any(isinstance(each, _ENDS) for each in ast.walk(statement)):
            raise CarriedError(f"{line} leaves a turn")
        # A comprehension, or a loop within, sets its own names.
        within = [each for each in ast.walk(statement) if isinstance(each, (ast.comprehension, ast.For))]
        within_names = {name.id for each in within for name in ast.walk(each.target) if isinstance(name, ast.Name)}
        sets = set[str]()
        for node in ast.walk(statement):
            is_set = isinstance(node, (ast.Attribute, ast.Subscript)) and not isinstance(node.ctx, ast.Load)
            if is_set and not (isinstance(statement, ast.Assign) and node in statement.targets and self._is_own(node)):
                raise CarriedError(f"{line} sets {ast.unparse(node)}")
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                self.given |= {node.id} - own - within_names
            elif isinstance(node, ast.Name):
                sets |= {node.id} - within_names
            changed = node.value if isinstance(node, ast.Attribute) and node.attr in _CHANGES else None
            if isinstance(node, ast.AugAssign):
                changed = node.target
            if changed is not None and not (isinstance(changed, ast.Name) and changed.id in self.made):
                raise CarriedError(f"{line} changes {ast.unparse(changed)}")
        self.sets |= sets
        return sets

    def _is_own(self, node: ast.expr) -> bool:
        """Whether it is an attribute of the element that the turn is about."""
        return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in self.element


def _added_to(statement: ast.stmt, own: set[str]) -> str:
    """The name of the list of all turns that a statement adds to; empty if it does nothing of the kind."""
    target: ast.AST | None = statement.target if isinstance(statement, ast.AugAssign) else None
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        called = statement.value.func
        target = called.value if isinstance(called, ast.Attribute) and called.attr == "append" else None
    return target.id if isinstance(target, ast.Name) and target.id not in own else ""


def _what_is_added(statement: ast.stmt) -> ast.expr:
    if isinstance(statement, ast.AugAssign):
        return statement.value
    assert isinstance(statement, ast.Expr)
    assert isinstance(statement.value, ast.Call)
    (added,) = statement.value.args
    return added


def loops_of(function: Callable[..., Any]) -> tuple[str, ...]:
    """What each loop of ``function`` goes through, as the source has it.

    Raises:
        CarriedError: a turn may be skipped, be left early or end its loop, or a name that a loop goes through is set
            more than once.
    """
    return loops_of_source(textwrap.dedent(inspect.getsource(function)))


def loops_of_source(source: str) -> tuple[str, ...]:
    """What ``loops_of`` says of a function with this ``source``.

    Raises:
        CarriedError: as there.
    """
    tree = ast.parse(source)
    stored = Counter(each.id for each in _names(tree) if isinstance(each.ctx, ast.Store))
    loops = [each for each in ast.walk(tree) if isinstance(each, ast.For)]
    for loop in loops:
        if any(isinstance(each, (*_ENDS, ast.If)) for turn in loop.body for each in ast.walk(turn)):
            raise CarriedError(f"line {loop.lineno} has turns that differ")
        if any(stored[each.id] > 1 for each in _names(loop.iter)):
            raise CarriedError(f"line {loop.lineno} goes through what is set twice")
    return tuple(ast.unparse(loop.iter) for loop in loops)


def one_by_one(function: Callable[..., Any]) -> int:
    """How many comprehensions ``function`` has: each goes through all of something, and makes each element by itself.

    Raises:
        CarriedError: one goes through a part, names or changes something in passing, or takes from an iterator; or a
            part is taken of what it makes.
    """
    return elements_of_source(textwrap.dedent(inspect.getsource(function)))


def elements_of_source(source: str) -> int:
    """What ``one_by_one`` says of a function with this ``source``.

    Raises:
        CarriedError: as there.
    """
    tree = ast.parse(source)
    found = [each for each in ast.walk(tree) if isinstance(each, _COMPREHENSIONS)]
    made = [each for each in ast.walk(tree) if isinstance(each, (ast.Assign, ast.AnnAssign, ast.AugAssign))]
    parts = {
        name.id
        for each in made
        if each.value is not None and not _gives_all(each.value)
        for target in (each.targets if isinstance(each, ast.Assign) else (each.target,))
        for name in _names(target)
    }
    for comprehension in found:
        for clause in comprehension.generators:
            if not _is_whole(clause.iter) or parts & {each.id for each in _names(clause.iter)}:
                raise CarriedError(f"line {comprehension.lineno} may go through a part of {ast.unparse(clause.iter)}")
        for node in ast.walk(comprehension):
            takes = isinstance(node, ast.Name) and node.id in ("next", "iter", "setattr", *parts)
            if takes or isinstance(node, ast.NamedExpr) or (isinstance(node, ast.Attribute) and node.attr in _CHANGES):
                raise CarriedError(f"line {comprehension.lineno} carries over by {ast.unparse(node)}")
    for each in ast.walk(tree):
        is_part = isinstance(each, ast.Subscript) and isinstance(each.value, (*_COMPREHENSIONS, ast.Call))
        if is_part or (isinstance(each, ast.Name) and each.id in _TAKE_PARTS):
            raise CarriedError(f"line {getattr(each, 'lineno', '?')} takes a part of {ast.unparse(each)}")
    return len(found)


_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_TAKE_PARTS = frozenset({"filter", "islice", "takewhile", "dropwhile", "iter", "next"})
_GIVE_ALL = frozenset({"get", "ahead_of"})
"""That the second gives all is proved: ``scheduler-progress.every-request-ahead-is-counted``."""
_GIVE_PARTS = _TAKE_PARTS - {"next"} | {"reversed", "sorted", "list", "tuple"}


def _names(node: ast.AST) -> Iterator[ast.Name]:
    return (each for each in ast.walk(node) if isinstance(each, ast.Name))


def _gives_all(node: ast.expr) -> bool:
    """Whether what is made so may be gone through: it is no part of a sequence, and in no other order."""
    if isinstance(node, (ast.BoolOp, ast.IfExp)):
        return all(map(_gives_all, node.values if isinstance(node, ast.BoolOp) else (node.body, node.orelse)))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id != "zip":
        return node.func.id not in _GIVE_PARTS
    # What cannot be gone through, such as a number, is no part of a sequence.
    is_part = isinstance(node, ast.Call) or (isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice))
    return isinstance(node, _COMPREHENSIONS) or _is_whole(node) or not is_part


def _is_whole(node: ast.expr) -> bool:
    """Whether it is something by its name, all of it, numbered or not, or several of the kind side by side."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        is_zip = node.func.id == "zip" and [ast.unparse(each) for each in node.keywords] == ["strict=True"]
        is_numbered = node.func.id == "enumerate" and len(node.args) == 1 and not node.keywords
        return (is_zip or is_numbered) and all(map(_is_whole, node.args))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        # What an element says of itself, what a dictionary has, or what is proved to be all.
        return node.func.attr in _GIVE_ALL or not (node.args or node.keywords)
    if isinstance(node, ast.Subscript):
        return isinstance(node.slice, ast.Name) and _is_whole(node.value)
    return bool(_root(node))


def _parameters(function: ast.FunctionDef) -> set[str]:
    """The names of parameters that stand for the same object throughout."""
    arguments = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
    names = (each for each in ast.walk(function) if isinstance(each, ast.Name))
    return {each.arg for each in arguments} - {each.id for each in names if not isinstance(each.ctx, ast.Load)}


def _goes_through_all(node: ast.expr, parameters: set[str]) -> bool:
    """Whether it is ``zip(…, strict=True)``, numbered or not, of ``parameters`` or parts of them."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
        return False
    if node.func.id == "enumerate":
        return len(node.args) == 1 and not node.keywords and _goes_through_all(node.args[0], parameters)
    whole = node.func.id == "zip" and [ast.unparse(each) for each in node.keywords] == ["strict=True"]
    return whole and all(
        _root(each.value if isinstance(each, ast.Starred) else each) in parameters for each in node.args
    )


def _root(node: ast.expr) -> str:
    """The name of which it is an attribute, or that it is; empty if it is something else.

    A value of a dictionary, by a name, and all its values are parts of it, too.
    """
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "values":
        node = node.func.value
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Name):
        node = node.value
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
