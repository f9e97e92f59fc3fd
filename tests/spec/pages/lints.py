"""Lints: what a page of the specification must be like, as functions that say what is wrong with one.

A lint takes a chapter, or text, and returns its faults. ``test_chapters`` asks them of the pages that are there,
``test_lints`` of a sound chapter made up for it, and of that chapter with one thing broken.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterable, Mapping
from functools import reduce
from importlib import import_module
from pathlib import Path
from typing import Any

from kvgate.levels.manager import DETECTORS
from kvgate.levels.scheduler.level import SCHEDULER
from kvgate.levels.tiers.level import TIERS
from kvreference.statements import STATEMENTS
from kvspec import implemented_by
from kvspec.chapter_proofs import BEGIN, written
from kvspec.chapters import (
    BUGS,
    COLUMNS,
    DIFFERENCES,
    EXAMPLE,
    OPERATIONS,
    PROOFS,
    Chapter,
    Link,
    links,
    prose,
    subsections,
    table,
)
from kvspec.chapters import STATEMENTS as STATED
from kvspec.evidence import LEFT, evidence, proofs_of
from kvspec.obligation import Obligation

SPEC = Path(__file__).parents[3] / "spec"
REFERENCE = "../reference/kvreference/"
UPSTREAM = (DIFFERENCES, BUGS)
"""Where numbers are other people's."""


def statements_wrong(chapters: Iterable[Chapter], statements: Mapping[str, str] = STATEMENTS) -> list[str]:
    """Every statement once, word for word, under its anchor, with the functions that say it."""
    rows = [row for chapter in chapters for row in chapter.rows]
    stated = [row.statement for row in rows]
    wrong = [f"{each} is stated {stated.count(each)} times" for each in statements if stated.count(each) != 1]
    for row in rows:
        if row.statement not in statements:
            wrong.append(f"{row.statement} is not a statement")
            continue
        if row.sentence != statements[row.statement]:
            wrong.append(f"{row.statement} must read: {statements[row.statement]}")
        if row.target != f"statements.md#{row.statement.lower()}":
            wrong.append(f"{row.statement} leads to {row.target}")
        functions = implemented_by.links(row.statement)
        watched = re.fullmatch(r"the gate's monitor `(\w+)`", row.implemented_by)
        if (
            row.implemented_by != functions
            if functions
            else watched is None or watched[1] not in (*DETECTORS, *SCHEDULER.gate, *TIERS.gate)
        ):
            wrong.append(f"{row.statement} must be implemented by: {functions or 'a monitor'}")
    return wrong


def evidence_wrong(
    chapters: Iterable[Chapter], known: Mapping[str, Obligation] | None = None, left: Mapping[str, str] = LEFT
) -> list[str]:
    """No row claims more or less than the registry proves."""
    rows = [row for chapter in chapters for row in chapter.rows]
    return [
        f"{row.statement}: {row.evidence}"
        for row in rows
        if row.evidence != evidence(row.statement, proofs_of(row.statement, known), left)
    ]


def proofs_wrong(
    chapter: Chapter, text: str, known: Mapping[str, Obligation] | None = None, left: Mapping[str, str] = LEFT
) -> list[str]:
    """Prose describes the proofs, and the table after it is what the registry says now."""
    stated = subsections(chapter.sections.get(STATED, "")).get(PROOFS, "")
    wrong = [] if stated.partition(BEGIN)[0].strip() else ["the proofs are not described"]
    try:
        current = written(chapter, text, known, left)
    except ValueError as error:
        return [*wrong, str(error)]
    return wrong if current == text else [*wrong, "stale, run: python -m kvspec.chapter_proofs"]


def operations_wrong(chapter: Chapter) -> list[str]:
    """Every operation has all columns, and an error that is named is raised where the chapter says."""
    head, *rows = table(chapter.sections.get(OPERATIONS, "")) or [[]]
    wrong = [] if tuple(head) == COLUMNS else [f"columns are {', '.join(head)}"]
    for row in rows:
        if len(row) != len(COLUMNS) or not all(row):
            wrong.append(f"incomplete: {row[0]}")
            continue
        sources = "".join(map(_source, links(row[-1])))
        named = re.findall(r"`(\w+Error)`", row[-1])
        wrong += [f"{row[0]}: {each} is raised nowhere" for each in named if f"raise {each}" not in sources]
    return wrong


def _source(link: Link) -> str:
    found = _found(link)
    return "" if found is None else inspect.getsource(found)


def functions_missing(text: str) -> list[str]:
    """Code that a page names by a link is in the file that the link leads to."""
    return [link.text for link in links(text) if link.target.startswith(REFERENCE) and not _is_there(link)]


def _is_there(link: Link) -> bool:
    return link.text == "`reference/kvreference`" or _found(link) is not None


def _found(link: Link) -> Any:
    module = link.target.removeprefix(REFERENCE).removesuffix(".py").replace("/", ".")
    name = link.text.strip("`")
    if not name.startswith(f"{module}."):
        return None
    try:
        return reduce(getattr, name.removeprefix(f"{module}.").split("."), import_module(f"kvreference.{module}"))
    except (ImportError, AttributeError):
        return None


def example_wrong(chapter: Chapter) -> list[str]:
    """The chapter has one worked example, which asks the reference, asserts, and holds."""
    programs = chapter.programs()
    wrong = [f"a program stands under {heading}" for heading, _ in programs if heading != EXAMPLE]
    if len(programs) != 1:
        return [*wrong, f"{len(programs)} programs"]
    tree = ast.parse(programs[0][1])
    nodes = list(ast.walk(tree))
    if not any(isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kvreference") for node in nodes):
        wrong.append("the example asks nothing of the reference")
    if not any(isinstance(node, ast.Assert) for node in nodes):
        wrong.append("the example asserts nothing")
    try:
        exec(compile(tree, f"{chapter.file}: {EXAMPLE}", "exec"), {"__name__": "example"})
    except Exception as error:
        lines = [] if error.__traceback__ is None else _lines(error, chapter)
        wrong.append(f"the example fails in line {lines[-1] if lines else 0}: {type(error).__name__}")
    return wrong


def _lines(error: Exception, chapter: Chapter) -> list[int]:
    """The lines of the example that an error passed through."""
    found = []
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename.startswith(chapter.file):
            found.append(trace.tb_lineno)
        trace = trace.tb_next
    return found


def numbers_strange(chapter: Chapter) -> list[int]:
    """Every number in the chapter is a number in its program, which asserts it.

    Numbers of chapters, threads and statements are none that can be computed; nor is what happened upstream.
    """
    nodes = [node for _, code in chapter.programs() for node in ast.walk(ast.parse(code))]
    known = {node.value for node in nodes if isinstance(node, ast.Constant)}
    ours = "\n".join(text for heading, text in chapter.sections.items() if heading not in UPSTREAM)
    return sorted(numbers(ours.partition(BEGIN)[0] + ours.partition("<!-- end of proofs -->")[2]) - known)


def numbers(text: str) -> set[int]:
    """The numbers in the prose."""
    words = re.sub(
        r"\]\([^)]*\)|KV-[A-Z]+-\d\d|[\w.-]+/[\w.-]+#\d+|[Cc]hapters?\s+\d\d|[Ff]inding\s\d+", "]", prose(text)
    )
    stated = re.findall(r"(?<![\w#.,-])(?:\d{1,3}(?:,\d{3})+|\d+)(?!\w)", words)
    return {int(number.replace(",", "")) for number in stated}
