"""The reference's own rules: it stands on the standard library and attrs alone, and stays small enough to be read."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import kvreference

FILES = sorted(Path(kvreference.__file__).parent.glob("**/*.py"))

ALLOWED = {*sys.stdlib_module_names, "attrs", "kvreference"}
LINES_MAX = 4000


def imported(source: str) -> set[str]:
    """The top-level packages that a module imports, wherever in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.add("." if node.level else (node.module or "").partition(".")[0])
    return names


def test_it_imports_the_standard_library_and_attrs_only() -> None:
    """Goal: whoever trusts the reference need not trust vLLM, torch or z3. Method: read every import statement."""
    strangers = {file.name: imported(file.read_text()) - ALLOWED for file in FILES}
    assert {} == {name: found for name, found in strangers.items() if found}


def test_a_stranger_would_be_found() -> None:
    """Goal: the scan can fail. Method: imports at the top, inside a function, relative."""
    source = "import vllm.v1\ndef late():\n    from torch.nn import Module\nfrom . import other\nimport math"
    assert {"vllm", "torch", "."} == imported(source) - ALLOWED


def test_it_stays_small() -> None:
    """Goal: one can read all of it in an afternoon. Method: count lines, all of them."""
    assert len(FILES) > 10
    assert LINES_MAX > sum(len(file.read_text().splitlines()) for file in FILES)
