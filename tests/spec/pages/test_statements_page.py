"""The page of the guarantees: complete, current, and without a dead end."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from kvreference.statements import STATEMENTS
from kvspec.implemented_by import IMPLEMENTED_BY

SPEC = Path(__file__).parents[3] / "spec"


def test_the_page_is_current() -> None:
    """Goal: the page has the statements that are checked. Method: print the page as its head says, and compare."""
    printed = subprocess.run([sys.executable, "-m", "kvspec"], capture_output=True, text=True, check=True, timeout=60)
    assert (SPEC / "statements.md").read_text() == printed.stdout, "run: python -m kvspec > spec/statements.md"


def test_every_guarantee_says_where_the_reference_says_it() -> None:
    """Goal: neither a guarantee without an entry, nor an entry without a guarantee. Method: compare ids, in order."""
    assert list(STATEMENTS) == list(IMPLEMENTED_BY)


@pytest.mark.parametrize(
    "function", sorted({function for functions in IMPLEMENTED_BY.values() for function in functions})
)
def test_what_says_it_is_there(function: str) -> None:
    """Goal: no link leads nowhere. Method: import the module, and walk to the function."""
    module, _, path = function.partition(":")
    found: object = import_module(f"kvreference.{module}")
    for name in path.split("."):
        found = getattr(found, name)
    assert callable(found)


def test_only_monitors_watch_what_the_reference_does_not_say() -> None:
    """Goal: a guarantee without a function is not an oversight. Method: its family is one that a monitor watches."""
    silent = {statement.rpartition("-")[0] for statement, functions in IMPLEMENTED_BY.items() if not functions}
    assert {"KV-MEM", "KV-LEAK", "KV-SYS", "KV-TIER", "KV-WORK"} == silent
