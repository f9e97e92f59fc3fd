"""``kvgate rule``: what a guarantee says, and what is known of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Annotated

import typer

from kvgate.cli.options import TableOutput
from kvgate.kernel.errors import UsageError
from kvgate.kernel.output import TableFormat


def rule(
    name: Annotated[str, typer.Argument(metavar="ID", help="The id of a guarantee, such as KV-OP-06.")],
    output: TableOutput = TableFormat.TEXT,
) -> None:
    """Say what a guarantee means, what its violation does to users, how it is proved, and which findings violate it.

    Examples:

      kvgate rule KV-OP-06
    """
    from kvgate.report.document import Report, Section, columns
    from kvgate.report.formats import echo
    from kvreference.statements import STATEMENTS

    statement = name.upper()
    if statement not in STATEMENTS:
        alike = sorted(each for each in STATEMENTS if each.startswith(statement.rpartition("-")[0] or "KV"))
        raise UsageError(f"{name}: no such guarantee; there are {', '.join(alike or STATEMENTS)}")
    echo(Report("rule", tested=(Section("", columns("what", statement), tuple(rows_of(statement))),)), output)


def rows_of(statement: str) -> Iterator[tuple[str, str]]:
    """What is known of a guarantee, each with what it is."""
    from kvgate.findings.register import FOLDER, all_findings, folder_of
    from kvgate.gate.diagnosis import OF_STATEMENTS
    from kvreference.statements import STATEMENTS
    from kvspec.chapters import HOME, read_all

    yield "guarantee", STATEMENTS[statement]
    anomaly = OF_STATEMENTS[statement]
    yield "if violated", f"{anomaly.value} at worst: {anomaly.meaning}"
    for chapter in read_all() if (HOME / "README.md").is_file() else ():
        for row in chapter.rows:
            if row.statement == statement:
                yield "chapter", f"spec/{chapter.file}: {chapter.title}"
                yield "implemented by", re.sub(r"\[`?([^\]`]*)`?\]\([^)]*\)", r"\1", row.implemented_by).strip()
                yield "evidence", row.evidence.strip()
    yield from _proofs(statement)
    those = [each for each in all_findings() if each.statement == statement]
    for finding in those:
        title = (FOLDER / folder_of(finding.id) / "README.md").read_text(encoding="utf-8").partition("\n")[0]
        yield "finding", title.removeprefix("# ")
    traces = (FOLDER / folder_of(finding.id) / "trace.jsonl" for finding in those)
    for trace in [each for each in traces if each.is_file()][:1]:
        yield "example", f"kvgate replay {trace}"


def _proofs(statement: str) -> Iterator[tuple[str, str]]:
    """The obligations that name it, if z3 is installed, which lists them."""
    if find_spec("z3") is None:
        return
    from kvspec.evidence import LEMMAS
    from kvspec.registry import obligations

    for each in obligations().values():
        if statement in each.statements and not each.id.startswith(LEMMAS):
            yield "proof", f"{each.title} (tier {each.tier.value}; kvgate prove --obligation {each.id})"
