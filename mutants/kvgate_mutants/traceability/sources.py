"""What the links are read from. Each source is a value, so that a test can hand in one with something wrong."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from attrs import frozen

from kvgate.explore.designs import DESIGNS, Design
from kvgate_mutants.corpus.bug import Bug, Sort
from kvgate_mutants.corpus.register import BUGS
from kvgate_mutants.mutants.mutant import Mutant
from kvgate_mutants.mutants.registry import BLOCK_MANAGER_MUTANTS, SCHEDULER_MUTANTS
from kvgate_mutants.traceability.exemptions import EXEMPTIONS, Exemption
from kvgate_mutants.traceability.judged import STATEMENT, explored, watched
from kvreference.statements import STATEMENTS
from kvspec.chapters import HOME, Chapter, read_all
from kvspec.obligation import Obligation
from kvspec.refuted.designs import DESIGNS as REFUTED
from kvspec.registry import obligations
from kvspec.said_by import SAID_BY

ABOUT_WORDS = (
    "tests/spec/pages/",
    "tests/difftest/test_traceability.py",
    "tests/difftest/command/",
    "tests/difftest/test_campaign.py",
    "tests/difftest/test_difference.py",
    "tests/difftest/test_hunt.py",
    "tests/difftest/test_regression_test.py",
    "tests/difftest/test_reports_",
    "tests/difftest/test_story.py",
    "tests/difftest/test_trace",
)
"""Tests of pages, reports and files: they name ids as words, and say nothing about what those promise."""


@frozen
class Finding:
    """A finding, by its folder, and the guarantees that it violates."""

    slug: str
    statements: tuple[str, ...]


@frozen
class Sources:
    """Everything that names guarantees."""

    statements: Mapping[str, str]
    said_by: Mapping[str, tuple[str, ...]]
    chapters: Sequence[Chapter]
    obligations: Mapping[str, Obligation]
    explored: Mapping[str, frozenset[str]]
    """Tiny model to the guarantees that are judged in every state of it."""
    watched: Mapping[str, frozenset[str]]
    """Detector to the guarantees that it finds violated."""
    tests: Mapping[str, frozenset[str]]
    """Test, as ``file::function``, to the guarantees that it names."""
    mutants: Sequence[Mutant]
    designs: Mapping[str, Design]
    """Designs that the explorer refutes."""
    refuted: Mapping[str, str]
    """Design that z3 refutes to the guarantee that it violates."""
    findings: Sequence[Finding]
    corpus: Mapping[str, Mapping[str, Sort]]
    """Reported defect, as a case of the corpus, to the guarantees that it violates, each with what is run."""
    exemptions: Sequence[Exemption] = EXEMPTIONS


def read(root: Path = HOME.parent) -> Sources:
    """What is there, in a clone at ``root``."""
    return Sources(
        statements=STATEMENTS,
        said_by=SAID_BY,
        chapters=read_all(root / "spec"),
        obligations=obligations(),
        explored=explored(),
        watched=watched(),
        tests=MappingProxyType(dict(_tests(root))),
        mutants=(*BLOCK_MANAGER_MUTANTS, *SCHEDULER_MUTANTS),
        designs=DESIGNS,
        refuted=MappingProxyType({name: each.statement for name, each in REFUTED.items()}),
        findings=list(
            findings_in((root / "difftest" / "kvgate" / "findings" / "README.md").read_text(encoding="utf-8"))
        ),
        corpus={bug.id: violated_by(bug) for bug in BUGS.values()},
    )


def violated_by(bug: Bug) -> Mapping[str, Sort]:
    """The guarantees that the trials of a defect violate, each with what says most of what is run for it."""
    by_weight = sorted(bug.trials, key=lambda trial: list(Sort).index(trial.sort), reverse=True)
    return {trial.statements[0]: trial.sort for trial in by_weight}


def _tests(root: Path) -> Iterator[tuple[str, frozenset[str]]]:
    for room in ("tests", "difftest"):
        for path in sorted((root / room).rglob("test_*.py")):
            file = path.relative_to(root).as_posix()
            if not file.startswith(ABOUT_WORDS):
                for function, named in naming_tests(path.read_text(encoding="utf-8")):
                    yield f"{file}::{function}", named


def naming_tests(text: str) -> Iterator[tuple[str, frozenset[str]]]:
    """The test functions in the text of a file that name guarantees.

    Their decorators count, and whatever of the same file they use: tables of cases, and functions that judge.
    """
    tree = ast.parse(text)
    parts = {name: node for node in tree.body for name in _bound(node)}
    tests = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
    for test in tests:
        used: list[ast.stmt] = [test]
        for node in used:
            names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
            used += [parts[name] for name in sorted(names & set(parts)) if parts[name] not in used]
        words = [each.value for node in used for each in ast.walk(node) if isinstance(each, ast.Constant)]
        named = frozenset(STATEMENT.findall(" ".join(word for word in words if isinstance(word, str))))
        if named:
            yield test.name, named


def _bound(node: ast.stmt) -> list[str]:
    """The names that a statement of a module gives to something."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return [node.name]
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    return [node.target.id] if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) else []


def findings_in(register: str) -> Iterator[Finding]:
    """The findings in the text of their register: its table, which names the guarantees in the second column."""
    for line in register.splitlines():
        row = re.match(r"\| \[([^\]]+)\]\([^)]+\) \| ([^|]+) \|", line)
        if row is not None:
            yield Finding(row[1], tuple(STATEMENT.findall(row[2])))
