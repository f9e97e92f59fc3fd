"""What became of each mutant, and what it changed: read from what mutmut wrote."""

from __future__ import annotations

import ast
import difflib
import json
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path

from attrs import frozen
from benchmarks.mutation.tree import Tree

SEPARATOR = "ǁ"
"""What mutmut puts around the name of a class."""


class Verdict(Enum):
    """What the tests said to a mutant."""

    KILLED = "killed"
    TIMEOUT = "timeout"
    """It went on for so long that it was ended: it hangs, or the machine was busy."""
    SURVIVED = "survived"
    UNREACHED = "no test reaches it"
    WAITING = "not tried yet"
    ODD = "something else"
    """The tests did not end as tests do: it has to be looked at."""


_BY_EXIT_CODE: Mapping[int | None, Verdict] = {
    **dict.fromkeys((1, 3), Verdict.KILLED),
    0: Verdict.SURVIVED,
    **dict.fromkeys((5, 33), Verdict.UNREACHED),
    **dict.fromkeys((36, 24, -24, 152, 255), Verdict.TIMEOUT),
    **dict.fromkeys((None, 2), Verdict.WAITING),
}


@frozen
class Mutant:
    """One change of the reference."""

    name: str
    """As mutmut calls it; the number in it changes with its function."""
    verdict: Verdict

    @property
    def module(self) -> str:
        """The module that was changed."""
        return self.name.rpartition(".")[0]

    @property
    def function(self) -> str:
        """The function that was changed, with its class."""
        mangled = self.name.rpartition(".")[2].partition("__mutmut_")[0]
        plain = (
            mangled.removeprefix("x").strip(SEPARATOR).replace(SEPARATOR, ".") if SEPARATOR in mangled else mangled[2:]
        )
        return f"{self.module}.{plain}"


def mutants(tree: Tree) -> Iterator[Mutant]:
    """All mutants, module by module."""
    for meta in sorted(tree.mutants.rglob("*.py.meta")):
        codes = json.loads(meta.read_text(encoding="utf-8"))["exit_code_by_key"]
        yield from (Mutant(name, _BY_EXIT_CODE.get(code, Verdict.ODD)) for name, code in codes.items())


def changes(tree: Tree, module: str, names: list[str]) -> dict[str, tuple[str, ...]]:
    """What some mutants of one module changed: the lines that went, with a minus, and those that came, with a plus."""
    source = (tree.mutants / Path(*module.split("."))).with_suffix(".py").read_text(encoding="utf-8")
    functions = {node.name: node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)}
    found = {}
    for name in names:
        mangled = name.rpartition(".")[2]
        before = functions[mangled.partition("__mutmut_")[0] + "__mutmut_orig"]
        found[name] = _difference(before, functions[mangled])
    return found


def _difference(before: ast.FunctionDef, after: ast.FunctionDef) -> tuple[str, ...]:
    after.name = before.name
    lines = difflib.ndiff(ast.unparse(before).splitlines(), ast.unparse(after).splitlines())
    return tuple(f"{line[0]} {line[2:].strip()}" for line in lines if line[0] in "-+")
