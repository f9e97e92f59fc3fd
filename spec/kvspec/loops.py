"""Loops of any length, of which one turn is run: at any place, and from any state in which the invariant holds.

A function is compiled from its source, with each of its loops cut: what is so before the first turn is compared with
the invariant. Then any state is put there in which the invariant holds, and what it is, is said by a ``Rule``. From
there one turn is run, and what it leaves is compared; or none, and the function continues after the loop. What is so on
all these ways is so of a loop of any number of turns, by induction. Nothing else of the function is changed.

The rule must say of all that a turn may change what it is before any turn. Of the names of the function that a turn
sets or changes, this is checked. Of what it changes elsewhere, the rule's author answers: a proof over objects that are
stand-ins knows all that can be changed.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from types import CodeType, FunctionType
from typing import Any

from kvspec.kernel import CHANGES
from kvspec.turns import CarriedError

RULES = "_rules"


class TurnOverError(Exception):
    """One turn was run, and what it leaves was compared."""


class Rule:
    """What is so before every turn of one loop."""

    condition: str
    """What the loop goes through, or how long it lasts, as the source has it."""
    carried: tuple[str, ...] = ()
    """The names that are set before the loop, and that a turn sets or changes, sorted."""

    def __init__(self) -> None:
        self._began = False
        self.elements: list[Any] = []
        """Of a loop over elements, the one of which the turn is run; empty if none is run."""

    def begins(self, through: Any, *carried: Any) -> tuple[Any, ...]:
        """Compare what is carried into the first turn, and return what may be carried into any."""
        raise NotImplementedError

    def is_over(self, *carried: Any) -> None:
        """Compare what a turn carries into the next one."""
        raise NotImplementedError

    def turns(self, carried: Callable[[], tuple[Any, ...]]) -> bool:
        """Whether the condition of a loop is to be asked: it is, before the turn that is run."""
        if self._began:
            self.is_over(*carried())
            raise TurnOverError
        self._began = True
        return True

    def through(self, carried: Callable[[], tuple[Any, ...]]) -> Iterator[Any]:
        """The element of which the turn is run."""
        for element in self.elements:
            yield element
            self.is_over(*carried())
            raise TurnOverError


def cut(function: Callable[..., Any], *rules: Rule) -> Callable[..., Any]:
    """``function``, of which each loop runs one turn or none, by a rule for each loop, in order.

    Raises:
        CarriedError: it has other loops than the rules, goes through something else, a turn carries other names, or a
            loop is not a statement of the function itself.
    """
    made = _cut(function, function.__code__, tuple((rule.condition, rule.carried) for rule in rules))
    its = FunctionType(made.__code__, made.__globals__, made.__name__, made.__defaults__)
    its.__kwdefaults__ = {**(made.__kwdefaults__ or {}), RULES: rules}
    return its


@cache
def _cut(function: FunctionType, _code: CodeType, rules: tuple[tuple[str, tuple[str, ...]], ...]) -> FunctionType:
    # A mutant may have given the same function other code.
    lines, first = inspect.getsourcelines(function)
    module = ast.parse(textwrap.dedent("".join(lines)))
    (body,) = module.body
    if not isinstance(body, ast.FunctionDef):
        raise CarriedError(f"line {first} is no function by itself")
    found = [each for each in ast.walk(body) if isinstance(each, (ast.For, ast.While, ast.AsyncFor))]
    loops = [each for each in body.body if each in found]
    if len(loops) != len(rules) or len(found) != len(loops):
        raise CarriedError(f"line {first}: {len(found)} loops, and {len(rules)} rules")
    for loop in loops:
        if isinstance(loop, ast.For) and _names(loop.iter) & (_set_twice(body) | _changed_in(body)):
            raise CarriedError(f"line {loop.lineno} goes through what is set twice, or changed")
    statements: list[ast.stmt] = []
    known = {each.arg for each in body.args.args}
    for statement in body.body:
        if isinstance(statement, (ast.For, ast.While)):
            place = loops.index(statement)
            statements += _cut_loop(statement, place, rules[place], known)
        else:
            statements.append(statement)
        known |= _set_in(statement)
    body.body, body.decorator_list = statements, []
    body.args.kwonlyargs.append(ast.arg(RULES))
    body.args.kw_defaults.append(None)
    ast.increment_lineno(ast.fix_missing_locations(module), first - 1)
    return _made(compile(module, function.__code__.co_filename, "exec"), function)


def edited(function: Callable[..., Any], old: str, new: str) -> Callable[..., Any]:
    """``function``, with one part of its source replaced: what breaks it, for a mutant.

    Raises:
        ValueError: the part is not there, or more than once.
    """
    assert isinstance(function, FunctionType)
    source = textwrap.dedent(inspect.getsource(function))
    if source.count(old) != 1:
        raise ValueError(f"{function.__qualname__} has {old!r} {source.count(old)} times")
    text, file = source.replace(old, new), f"<{function.__qualname__}, edited {len(linecache.cache)}>"
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    return _made(compile(text, file, "exec"), function)


def _made(compiled: CodeType, function: FunctionType) -> FunctionType:
    """The function of that name in a module, with the names that ``function`` knows."""
    (code,) = (each for each in compiled.co_consts if isinstance(each, CodeType) and each.co_name == function.__name__)
    made = FunctionType(code, function.__globals__, function.__name__, function.__defaults__)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def _cut_loop(
    loop: ast.For | ast.While, place: int, rule: tuple[str, tuple[str, ...]], known: set[str]
) -> list[ast.stmt]:
    condition = loop.test if isinstance(loop, ast.While) else loop.iter
    carried = tuple(sorted(known & (_set_in(loop) | _changed_in(loop))))
    if (ast.unparse(condition), carried) != rule or loop.orelse:
        raise CarriedError(f"line {loop.lineno}: {ast.unparse(condition)} carries {', '.join(carried)}")
    names = f"({''.join(f'{each}, ' for each in carried)})"
    its = f"{RULES}[{place}]"
    whole = "None" if isinstance(loop, ast.While) else ast.unparse(condition)
    (begins,) = ast.parse(f"{names} = {its}.begins({whole}, *{names})").body
    called = "turns" if isinstance(loop, ast.While) else "through"
    call: Any = ast.parse(f"{its}.{called}(lambda: {names})", mode="eval").body
    if isinstance(loop, ast.While):
        loop.test = ast.BoolOp(ast.And(), [call, condition])
    else:
        loop.iter = call
    return [begins, loop]


def _names(condition: ast.expr) -> set[str]:
    """The names that an expression reads, but those that it sets itself."""
    names = [each for each in ast.walk(condition) if isinstance(each, ast.Name)]
    own = {each.id for each in names if isinstance(each.ctx, ast.Store)}
    return {each.id for each in names} - own


def _set_twice(body: ast.FunctionDef) -> set[str]:
    """The names that a function sets more than once, parameters among them."""
    stored = Counter(
        each.id for each in ast.walk(body) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
    )
    stored.update(each.arg for each in body.args.args)
    return {name for name, times in stored.items() if times > 1}


def _set_in(node: ast.AST) -> set[str]:
    """The names that a statement sets; what a comprehension sets is its own."""
    if isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda)):
        return set()
    own = {node.id} if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load) else set()
    return own.union(*map(_set_in, ast.iter_child_nodes(node)))


def _changed_in(loop: ast.AST) -> set[str]:
    """The names of which something is changed by a method, or an element or an attribute is set."""
    found = set()
    for each in ast.walk(loop):
        is_set = isinstance(each, (ast.Attribute, ast.Subscript)) and not isinstance(each.ctx, ast.Load)
        if isinstance(each, ast.Attribute | ast.Subscript) and (
            is_set or (isinstance(each, ast.Attribute) and each.attr in CHANGES)
        ):
            node = each.value
            while isinstance(node, (ast.Attribute, ast.Subscript)):
                node = node.value
            if isinstance(node, ast.Name) and node.id != "self":
                found.add(node.id)
    return found
