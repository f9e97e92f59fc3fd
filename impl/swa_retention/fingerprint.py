"""Fingerprints: whether a function of vLLM is the one that a patch was written for.

What counts is what the source says, not how it is laid out: comments, docstrings and blank lines are left out. It is
the same under every version of Python that the plug-in runs on. The digest is of the syntax tree in a notation of our
own, because Python's own ones differ between versions (3.12 has fields that 3.11 has not, and 3.10 writes tuples in
subscripts with parentheses).
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import textwrap
from collections.abc import Iterator
from types import FunctionType
from typing import Any

LENGTH = 16


def fingerprint(symbol: Any, of_signature: bool = False) -> str:
    """A short digest of a function's or a class's source; with ``of_signature``, of a function's parameters alone.

    Another plug-in that wraps a function of vLLM with ``functools.wraps`` changes its fingerprint too: the source of
    every layer counts.

    Raises:
        OSError: its source cannot be read.
    """
    return digest(*(inspect.getsource(layer) for layer in _layers(symbol)), of_signature=of_signature)


def digest(*sources: str, of_signature: bool = False) -> str:
    """The fingerprint of a symbol with these sources, the outermost layer first."""
    trees = (_without_docstrings(ast.parse(textwrap.dedent(source))) for source in sources)
    notes = "\n".join(_note([each.args for each in tree.body] if of_signature else tree) for tree in trees)
    return hashlib.sha256(notes.encode()).hexdigest()[:LENGTH]


def _layers(symbol: Any) -> Iterator[Any]:
    """What has a source in ``symbol``: itself, and everything that it wraps."""
    layer, seen = getattr(symbol, "__func__", symbol), set[int]()
    while layer is not None and id(layer) not in seen:
        seen.add(id(layer))
        # Of a function the code is asked: of the function itself, inspect would show the innermost layer alone.
        if isinstance(layer, FunctionType):
            yield layer.__code__
        elif not hasattr(layer, "__wrapped__"):
            yield layer
        layer = getattr(layer, "__wrapped__", None)


def _without_docstrings(tree: ast.Module) -> Any:
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and ast.get_docstring(node):
            node.body = node.body[1:] or [ast.Pass()]
    return tree


def _note(part: Any) -> str:
    """A tree as text. What is empty is left out: a newer Python has fields that stay empty for older code."""
    if isinstance(part, list):
        return f"[{', '.join(map(_note, part))}]"
    if not isinstance(part, ast.AST):
        return repr(part)
    fields = ((name, _joined(part, value)) for name, value in ast.iter_fields(part))
    said = ", ".join(f"{name}={_note(value)}" for name, value in fields if value is not None and value != [])
    return f"{type(part).__name__}({said})"


def _joined(part: ast.AST, value: Any) -> Any:
    """The pieces of an f-string, of which neighbours that are text are one: how many there are is up to the parser."""
    if not isinstance(part, ast.JoinedStr):
        return value
    pieces: list[ast.AST] = []
    for piece in value:
        text = _text(piece)
        before = _text(pieces[-1]) if pieces else None
        if text is None:
            pieces.append(piece)
        elif before is not None:
            pieces[-1] = ast.Constant(before + text)
        elif text:
            pieces.append(piece)
    return pieces


def _text(piece: ast.AST) -> str | None:
    return piece.value if isinstance(piece, ast.Constant) and isinstance(piece.value, str) else None
