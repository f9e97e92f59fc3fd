"""What there is: printed as text, or as a document that programs read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import typer

from kvgate.kernel.output import TableFormat

FORMAT = "kvgate-list"
VERSION = 1
Entries = Sequence[Mapping[str, object]]


def tell(text: str, parts: Mapping[str, Entries], output: TableFormat) -> None:
    """Print ``text``, or the same as a document: the entries of each part, by its name."""
    if output is TableFormat.JSON:
        typer.echo(json.dumps({"format": FORMAT, "version": VERSION, **parts}, indent=1))
    else:
        typer.echo(text)
