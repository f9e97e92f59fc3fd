"""A method with one statement changed, for faults in the middle of what is too long to be written anew.

The place is found in the method's syntax tree, by what its statement begins with or by the names that its test reads.
So nothing of the method is repeated here, and a vLLM that has no such place is rejected.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from copy import copy
from functools import cache
from types import FunctionType
from typing import Any

_SIMPLE = (
    ast.Assign,
    ast.AugAssign,
    ast.AnnAssign,
    ast.Delete,
    ast.Expr,
    ast.Continue,
    ast.Break,
    ast.Raise,
    ast.Assert,
)


def call(original: Any, change: ast.NodeTransformer, *arguments: Any, **named: Any) -> Any:
    """Call ``original`` as it is after ``change``."""
    return _changed(original, change)(*arguments, **named)


class Put(ast.NodeTransformer):
    """In place of the ``which``-th simple statement that begins with ``begins`` stand those of ``instead``."""

    def __init__(self, begins: str, instead: str = "pass", which: int = 0) -> None:
        self.begins = begins
        self.instead = instead
        self.which = which
        self.seen = 0

    def generic_visit(self, node: ast.AST) -> Any:
        if isinstance(node, _SIMPLE) and ast.unparse(node).startswith(self.begins):
            self.seen += 1
            if self.seen == self.which + 1:
                return [*ast.parse(self.instead).body]
            return node
        return super().generic_visit(node)

    @property
    def made(self) -> bool:
        """Whether the place was there."""
        return self.seen > self.which


class Ask(ast.NodeTransformer):
    """The first ``if`` or ``while`` whose test reads all of ``reads`` asks ``instead``."""

    def __init__(self, *reads: str, instead: str) -> None:
        self.reads = reads
        self.instead = instead
        self.made = False

    def generic_visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, (ast.If, ast.While)) and not self.made and self._fits(node.test):
            self.made = True
            node.test = ast.parse(self.instead, mode="eval").body
            return node
        return super().generic_visit(node)

    def _fits(self, test: ast.expr) -> bool:
        names = {ast.unparse(each) for each in ast.walk(test) if isinstance(each, (ast.Name, ast.Attribute))}
        return set(self.reads) <= names


@cache
def _changed(original: FunctionType, change: Any) -> Callable[..., Any]:
    change = copy(change)
    tree = ast.parse(textwrap.dedent(inspect.getsource(original)))
    tree = ast.fix_missing_locations(change.visit(tree))
    if not change.made:
        raise LookupError(f"this vLLM has no such place in {original.__qualname__}")
    names: dict[str, Any] = {}
    exec(compile(tree, f"<{original.__qualname__}, changed>", "exec"), original.__globals__, names)
    changed: Callable[..., Any] = names[original.__name__]
    return changed
