"""``kvgate rule``: what a guarantee says, and what is known of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from kvgate.kernel.errors import UsageError


def rule(
    name: Annotated[str, typer.Argument(metavar="ID", help="The id of a guarantee, such as KV-OP-06.")],
) -> None:
    """Say what a guarantee means, what its violation does to users, how it is proved, and which findings violate it.

    Examples:

      kvgate rule KV-OP-06
    """
    from kvreference.statements import STATEMENTS

    statement = name.upper()
    if statement not in STATEMENTS:
        alike = sorted(each for each in STATEMENTS if each.startswith(statement.rpartition("-")[0] or "KV"))
        raise UsageError(f"{name}: no such guarantee; there are {', '.join(alike or STATEMENTS)}")
    typer.echo("\n".join(lines_of(statement)))


def lines_of(statement: str) -> Iterator[str]:
    """What is known of a guarantee, line by line."""
    from kvgate.findings.register import FOLDER, all_findings, folder_of
    from kvgate.gate.diagnosis import of_id
    from kvreference.statements import STATEMENTS
    from kvspec.chapters import HOME, read_all

    yield f"{statement}: {STATEMENTS[statement]}"
    anomaly = of_id(statement)
    yield f"if it is violated: {anomaly.value}, unless the case says more. {anomaly.meaning}"
    for chapter in read_all() if (HOME / "README.md").is_file() else ():
        for row in chapter.rows:
            if row.statement == statement:
                yield f"chapter: spec/{chapter.file} ({chapter.title}), implemented by {_plain(row.implemented_by)}"
                yield f"evidence: {row.evidence.strip()}"
    yield from _proofs(statement)
    those = [each for each in all_findings() if each.statement == statement]
    for finding in those:
        title = (FOLDER / folder_of(finding.id) / "README.md").read_text(encoding="utf-8").partition("\n")[0]
        yield f"finding {title.removeprefix('# ')}"
    for finding in those[:1]:
        trace = FOLDER / folder_of(finding.id) / "trace.jsonl"
        if trace.is_file():
            yield f"an example: kvgate replay {trace}"
    if not those:
        yield "no known finding violates it"


def _proofs(statement: str) -> Iterator[str]:
    """The obligations that name it, if z3 is installed."""
    from importlib.util import find_spec

    if find_spec("z3") is None:
        yield "proofs: z3 is not installed, which lists them"
        return
    from kvspec.evidence import LEMMAS
    from kvspec.registry import obligations

    for each in obligations().values():
        if statement in each.statements and not each.id.startswith(LEMMAS):
            yield f"proof: kvgate prove --obligation {each.id} ({each.tier.value}): {each.title}"


def _plain(markdown: str) -> str:
    import re

    return re.sub(r"\[`?([^\]`]*)`?\]\([^)]*\)", r"\1", markdown).strip()
