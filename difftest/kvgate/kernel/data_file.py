"""A generated table as a data file: CSV next to the page that sums it up. The site shows the rows on that page."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path


def csv_text(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """The file: a line of column names, and a line for each row."""
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows([names, *rows])
    return file.getvalue()


def read_csv(text: str) -> list[dict[str, str]]:
    """The rows of a file, by column name.

    Raises:
        ValueError: a row has another number of cells than there are names.
    """
    names, *rows = csv.reader(io.StringIO(text))
    return [dict(zip(names, row, strict=True)) for row in rows]


def data_name(page: Path) -> str:
    """The name of the data file of a page, which lies next to it."""
    stem = page.resolve().parent.name if page.stem == "README" else page.name.removesuffix(".md")
    return f"{stem}.csv"


def write_both(page: Path, text: str, data: str) -> None:
    """Write a page and its data file; if that is impossible, print why: what was found counts for more than a file."""
    try:
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text, encoding="utf-8")
        page.with_name(data_name(page)).write_text(data, encoding="utf-8")
    except OSError as error:
        print(f"kvgate: {page}: cannot be written: {error.strerror}", file=sys.stderr)
