"""The functions of the reference, by their source: their names, where they are written, and which change state."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import CodeType

from attrs import frozen

import kvreference

ROOT = Path(kvreference.__file__).parent
_WRITES = frozenset({"append", "add", "clear", "extend", "insert", "pop", "popitem", "remove", "setdefault", "update"})
"""Methods of lists, sets and dictionaries that change them."""


@frozen
class Function:
    """One function or method of the reference."""

    name: str
    """``module:name``, without the name of the package."""
    file: str
    first_line: int
    last_line: int
    changes_state: bool
    """Whether it writes to an attribute, or into something that it did not make, or calls what does, by its name.

    Makers and copies do not count.
    """


@cache
def functions() -> Sequence[Function]:
    """All functions of the reference, without protocols."""
    found: dict[str, tuple[Path, ast.FunctionDef]] = {}
    for path in sorted(ROOT.rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found |= {f"{module}:{name}": (path, node) for name, node in defined(tree) if not _only_declares(node)}
    writers = {name for name, (_, node) in found.items() if _writes(node)}
    while True:
        names = {found[name][1].name for name in writers} - _WRITES
        more = {name for name, (_, node) in found.items() if name not in writers and _calls(node) & names}
        if not more:
            break
        writers |= more
    return tuple(
        Function(name, str(path), _first_line(node), node.end_lineno or 0, name in writers and not _makes(node))
        for name, (path, node) in found.items()
    )


def defined(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    """The functions and methods of a module, by name."""
    yield from _defined(tree.body, "")


def _defined(body: Sequence[ast.stmt], within: str) -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _defined(node.body, f"{within}{node.name}.")
        elif isinstance(node, ast.FunctionDef):
            yield f"{within}{node.name}", node


def _first_line(node: ast.FunctionDef) -> int:
    return min([node.lineno, *(each.lineno for each in node.decorator_list)])


def _only_declares(node: ast.FunctionDef) -> bool:
    """Whether a body is a docstring and an ellipsis: a method of a protocol."""
    last = node.body[-1]
    return isinstance(last, ast.Expr) and isinstance(last.value, ast.Constant) and last.value.value is ...


def _makes(node: ast.FunctionDef) -> bool:
    return node.name in ("__init__", "copy")


def _calls(node: ast.FunctionDef) -> set[str]:
    """The names of what it calls."""
    calls = [each.func for each in ast.walk(node) if isinstance(each, ast.Call)]
    named = {each.attr for each in calls if isinstance(each, ast.Attribute)}
    return named | {each.id for each in calls if isinstance(each, ast.Name)}


def _writes(node: ast.FunctionDef) -> bool:
    if _makes(node):
        return False
    own = {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
    found: list[ast.expr] = []
    for each in ast.walk(node):
        if isinstance(each, (ast.Attribute, ast.Subscript)) and not isinstance(each.ctx, ast.Load):
            if isinstance(each, ast.Attribute):
                return True
            found.append(each)
        elif isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) and each.func.attr in _WRITES:
            found.append(each.func.value)
    return any(_root(each) not in own for each in found)


def _root(node: ast.expr) -> str:
    """The name that an expression begins with; empty if it begins with none."""
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


@cache
def names_by_line() -> Mapping[str, Mapping[int, str]]:
    """Per file, the function that each of its lines belongs to."""
    lines: dict[str, dict[int, str]] = {}
    for function in functions():
        its = range(function.first_line, function.last_line + 1)
        lines.setdefault(function.file, {}).update(dict.fromkeys(its, function.name))
    return lines


def function_of(code: CodeType) -> str:
    """The function of the reference that ``code`` is, or is a part of; else where it is written."""
    name = names_by_line().get(code.co_filename, {}).get(code.co_firstlineno)
    return name or f"{code.co_filename}:{code.co_name}"
