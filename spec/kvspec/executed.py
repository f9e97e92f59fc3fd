"""Which functions of the reference each obligation executes while it is proved.

An obligation that executes none is about a model that stands next to the reference, and not about the code that runs:
its tier is M. So is one that executes a transcription: a method of ``kvspec.progress`` that stands in the place of the
reference's own. The trace names it, too, as ``kvspec.module:name``. ``python -m kvspec.executed`` writes the trace to
``executed.json``, for all obligations or for those that are named. A test compares the two.
"""

from __future__ import annotations

import ast
import json
import os
import pkgutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from types import CodeType, FrameType, FunctionType, MappingProxyType
from typing import Any

from attrs import frozen

import kvreference
from kvspec import progress
from kvspec.obligation import EXECUTED_FILE, Obligation, executed, is_transcription

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
    """All functions of the reference, without the designs that are known to be wrong and without protocols."""
    found: dict[str, tuple[Path, ast.FunctionDef]] = {}
    for path in sorted(ROOT.rglob("*.py")):
        if "refuted" in path.relative_to(ROOT).parts:
            continue
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
def _by_line() -> Mapping[str, Mapping[int, str]]:
    """Per file, the function that each of its lines belongs to."""
    lines: dict[str, dict[int, str]] = {}
    for function in functions():
        its = range(function.first_line, function.last_line + 1)
        lines.setdefault(function.file, {}).update(dict.fromkeys(its, function.name))
    return lines


def function_of(code: CodeType) -> str:
    """The function of the reference that ``code`` is, or is a part of; else where it is written."""
    name = _by_line().get(code.co_filename, {}).get(code.co_firstlineno)
    return name or f"{code.co_filename}:{code.co_name}"


@cache
def transcriptions() -> Mapping[CodeType, str]:
    """The methods of ``kvspec.progress`` that redefine one of a class of the reference, makers left out."""
    names = [each.name for each in pkgutil.iter_modules(progress.__path__, f"{progress.__name__}.")]
    classes = {each for name in names for each in vars(import_module(name)).values() if isinstance(each, type)}
    return {
        method.__code__: f"{owner.__module__}:{owner.__name__}.{name}"
        for owner in classes
        if owner.__module__ in names
        for name, method in vars(owner).items()
        if isinstance(method, FunctionType) and not name.startswith("__") and _is_of_the_reference(owner, name)
    }


def _is_of_the_reference(owner: type, name: str) -> bool:
    """Whether a class of the reference, above ``owner``, defines a method ``name``."""
    package = kvreference.__name__
    return any(name in vars(each) for each in owner.__mro__[1:] if each.__module__.partition(".")[0] == package)


@contextmanager
def traced() -> Iterator[set[str]]:
    """The functions of the reference that are called within, lambdas and comprehensions by the function around them.

    Transcriptions are among them.
    """
    lines, found, seen = _by_line(), set[str](), dict[Any, str | None](transcriptions())

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if event != "call":
            return
        code = frame.f_code
        if code not in seen:
            seen[code] = lines.get(code.co_filename, {}).get(code.co_firstlineno)
        name = seen[code]
        if name is not None:
            found.add(name)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(before)


def functions_executed(obligation: Obligation, ways: int | None = None) -> tuple[str, ...]:
    """The functions that ``obligation`` executes while it is proved: on all paths, or on the first ``ways``.

    Transcriptions are among them.
    """
    from kvspec.prover import run

    with traced() as found:
        run(obligation, ways)
    return tuple(sorted(found))


def _of(name: str) -> tuple[str, tuple[str, ...]]:
    from kvspec.registry import obligations

    return name, functions_executed(obligations()[name])


def trace(names: Sequence[str], jobs: int) -> Iterator[tuple[str, tuple[str, ...]]]:
    """For each of these obligations, its id and what it executes, in ``jobs`` processes."""
    from kvspec.proof_result import in_processes

    yield from in_processes(_of, names, jobs)


def never_executed(by_obligation: Mapping[str, Sequence[str]]) -> list[Function]:
    """The functions that no obligation executes, those that change state first."""
    known = {name for names in by_obligation.values() for name in names}
    left = [each for each in functions() if each.name not in known]
    return sorted(left, key=lambda each: (not each.changes_state, each.name))


def stored() -> Mapping[str, Sequence[str]]:
    """The trace in ``executed.json``, transcriptions among it."""
    return MappingProxyType(executed())


def of_the_reference(names: Sequence[str]) -> list[str]:
    """Those that are functions of the reference, and no transcriptions."""
    return [each for each in names if not is_transcription(each)]


def written(by_obligation: Mapping[str, Sequence[str]]) -> str:
    """The text of ``executed.json``, an obligation a line."""
    rows = [f"{json.dumps(name)}: {json.dumps(list(names))}" for name, names in sorted(by_obligation.items())]
    return "{\n" + ",\n".join(rows) + "\n}\n"


if __name__ == "__main__":
    from kvspec.registry import obligations

    wanted = [name for name in obligations() if name in sys.argv[1:] or not sys.argv[1:]]
    kept = {name: names for name, names in stored().items() if name in obligations()}
    EXECUTED_FILE.write_text(written({**kept, **dict(trace(wanted, os.cpu_count() or 1))}), encoding="utf-8")
