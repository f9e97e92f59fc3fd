"""Fingerprints: whether a function of vLLM is the one that a patch was written for.

What counts is what the source says, not how it is laid out: comments, docstrings and blank lines are left out.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import textwrap
from typing import Any

LENGTH = 16


def fingerprint(symbol: Any) -> str:
    """A short digest of a function's or a class's source.

    Raises:
        OSError: its source cannot be read.
    """
    tree = ast.parse(textwrap.dedent(inspect.getsource(symbol)))
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and ast.get_docstring(node):
            node.body = node.body[1:] or [ast.Pass()]
    return hashlib.sha256(ast.unparse(tree).encode()).hexdigest()[:LENGTH]
