"""A generated table as a data file: CSV next to the page that sums it up. The site shows the rows on that page."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

from kvgate.report.document import Section


def csv_text(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """The file: a line of column names, and a line for each row."""
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows([names, *rows])
    return file.getvalue()


def section_csv(section: Section) -> str:
    """The file of the visible columns of ``section``."""
    return csv_text([column.name for column in section.visible], map(section.texts, section.rows))


def read_csv(text: str) -> list[dict[str, str]]:
    """The rows of a file, by column name.

    Raises:
        ValueError: a row has another number of cells than there are names.
    """
    names, *rows = csv.reader(io.StringIO(text))
    return [dict(zip(names, row, strict=True)) for row in rows]


def data_name(page: Path) -> str:
    """The name of the data file of a page, which lies next to it."""
    return page.with_name(f"{page.name.removesuffix('.md')}.csv").name


def write(page: Path, text: str, data: str) -> None:
    """Write a page and its data file."""
    page.write_text(text, encoding="utf-8")
    page.with_name(data_name(page)).write_text(data, encoding="utf-8")
