"""The report of a command: one document for everything that prints a verdict, and its JSON form.

A module of a command turns its results into a ``Report``; ``kvgate.report.formats`` prints it as text, JSON, JUnit's
XML, GitHub annotations or HTML. The JSON form is written attribute by attribute and reads back to an equal report. A
key may be added within a version; none changes its meaning or is removed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from typing import Any, Literal, TypeAlias

import cattrs
from attrs import Attribute, asdict, field, frozen

from kvgate.kernel.data_file import csv_text
from kvgate.kernel.errors import UsageError
from kvgate.kernel.output import AGREEMENT
from kvgate.kernel.structure import DOCUMENT_ERRORS, explain, strict_converter
from kvgate.kernel.text import counted, printable

FORMAT = "kvgate-verdict"
VERSION = 2
BYTES_MAX = 200_000_000
CELL_CHARACTERS_MAX = 2000
"""How much of one cell is shown where people read it."""

Cell: TypeAlias = Any
"""A JSON value: a number, a text, a list, a mapping, or None."""


@frozen
class Column:
    """One column of a table."""

    name: str
    spec: str = ""
    """How numbers are formatted, as in ``format()``; by default as Python writes them."""
    shown: bool = True
    """Whether people see it; programs see every column."""
    optional: bool = False
    """Whether people do not see it if it is empty in every row."""

    def show(self, cell: Cell) -> str:
        """The text of a cell on one line."""
        return printable(self._text(cell), CELL_CHARACTERS_MAX)

    def _text(self, cell: Cell) -> str:
        match cell:
            case None:
                return ""
            case bool():
                return "yes" if cell else "no"
            case int() | float():
                return format(cell, self.spec)
            case Mapping():
                return "; ".join(f"{name}: {self._text(value)}" for name, value in cell.items())
            case list() | tuple():
                return ", ".join(map(self._text, cell))
        return str(cell)


def columns(*names: str) -> tuple[Column, ...]:
    """Columns that are called so."""
    return tuple(map(Column, names))


@frozen
class Section:
    """One table of a report, or lines of text."""

    title: str = ""
    columns: tuple[Column, ...] = ()
    rows: tuple[tuple[Cell, ...], ...] = field(default=())
    total: tuple[Cell, ...] = ()
    """The last row, if it sums up the others."""
    notes: tuple[str, ...] = ()
    """Lines below the table."""
    keys: int = 1
    """How many leading columns name a row."""
    shown: bool = True
    """Whether people see it; programs see every section."""

    @rows.validator
    def _check_rows(self, _attribute: Attribute[Any], rows: tuple[tuple[Cell, ...], ...]) -> None:
        if any(len(row) != len(self.columns) for row in rows):
            raise ValueError(f"section {self.title!r}: a row has another number of cells than there are columns")

    @cached_property
    def _places(self) -> tuple[int, ...]:
        """The columns that people see."""
        return tuple(
            place
            for place, column in enumerate(self.columns)
            if column.shown and not (column.optional and all(row[place] in (None, "", {}) for row in self.rows))
        )

    @property
    def visible(self) -> tuple[Column, ...]:
        """The columns that people see."""
        return tuple(self.columns[place] for place in self._places)

    def records(self) -> list[dict[str, Cell]]:
        """The rows, by the names of the columns."""
        names = [column.name for column in self.columns]
        return [dict(zip(names, row, strict=True)) for row in self.rows]

    def texts(self, row: tuple[Cell, ...]) -> list[str]:
        """The visible cells of a row, as text."""
        return [self.columns[place].show(row[place]) for place in self._places]

    def csv(self) -> str:
        """The visible columns as a data file."""
        return csv_text([column.name for column in self.visible], map(self.texts, self.rows))

    def is_number(self, column: Column) -> bool:
        """Whether a column is aligned to the right."""
        place = self.columns.index(column)
        cells = [row[place] for row in self.rows if row[place] is not None]
        return bool(cells) and all(type(cell) in (int, float) for cell in cells)


@frozen
class Story:
    """One thing that was found, or one known finding that was seen."""

    headline: str
    text: str = ""
    """The whole story, as lines."""
    brief: str = ""
    """The story without the operations that led there."""
    severity: Literal["error", "warning", "notice"] = "error"
    place: tuple[str, ...] = ()
    """The leading cells of the row that it belongs to."""
    statement: str = ""
    sentence: str = ""
    """The guarantee's own sentence."""
    detector: str = ""
    times: int = 1
    finding: str | None = None
    """The known finding that explains it."""
    anomaly: str = ""
    """What it means to those who use the server; empty where that was not looked into."""
    suspects: tuple[str, ...] = ()
    """The functions that may have done it, the likeliest first."""
    file: str | None = None
    line: int | None = None
    """Where the likeliest is written."""
    reproducer: str | None = None
    again: str | None = None
    """What to paste in order to see it again."""
    page: str | None = None
    details: Mapping[str, Cell] = field(factory=dict)
    """What programs read besides."""


@frozen
class Report:
    """What a command was asked, and what came of it."""

    command: str
    outcome: str = ""
    """The verdict in one line; empty for a list, which has none."""
    exit_code: int = AGREEMENT
    ended: str = "completed"
    circumstances: Mapping[str, Cell] = field(factory=dict)
    """The system under test, versions, seed, time."""
    claimed: tuple[str, ...] = ()
    tested: tuple[Section, ...] = ()
    found: tuple[Story, ...] = ()
    found_left_out: int = 0
    known: tuple[Story, ...] = ()
    """Known findings that were seen: counted, and no failure."""
    known_left_out: int = 0
    not_tested: tuple[str, ...] = ()
    tested_title: str = "Tested"
    found_noun: str = "divergence"
    """What is counted under Found."""

    @property
    def agrees(self) -> bool:
        """Whether nothing was found that no known finding explains."""
        return not self.found and not self.found_left_out

    @property
    def is_good(self) -> bool:
        """Whether the outcome is shown as a success."""
        return self.agrees and self.exit_code == AGREEMENT and any(section.rows for section in self.tested)

    @property
    def known_seen(self) -> int:
        """How many known findings were seen."""
        return len(self.known) + self.known_left_out

    @property
    def nothing_found(self) -> str:
        """The sentence that stands under Found where there is nothing else."""
        if not self.known_seen:
            return f"no {self.found_noun}s"
        return f"no new {self.found_noun}s ({counted(self.known_seen, 'known finding')} seen)"

    @property
    def more_found(self) -> str:
        """How much was found and is not shown; empty if all is."""
        return f"{counted(self.found_left_out, f'more {self.found_noun}')}, not shown" if self.found_left_out else ""

    def circumstances_text(self) -> str:
        """The circumstances on one line."""
        parts = [_circumstance(name, value) for name, value in self.circumstances.items()]
        is_plain = not parts and self.ended == "completed"
        return "" if is_plain else ", ".join([*parts, printable(self.ended)])

    def known_lines(self) -> Iterator[str]:
        """A line for each known finding that was seen."""
        for story in self.known:
            name = printable(story.finding or "without an id")
            yield f"{name}: {story.headline}, seen {counted(story.times, 'time')}"
        if self.known_left_out:
            yield f"{counted(self.known_left_out, 'more known finding')}, not shown"


def _circumstance(name: str, value: Cell) -> str:
    return f"{value:.1f} s" if name == "seconds" else f"{name} {Column(name).show(value)}"


def to_json(report: Report) -> str:
    """The document, as ASCII with a final newline."""
    document = asdict(report)
    document["tested"] = [_section(each) for each in report.tested]
    # What people print, programs read without counting.
    head = {"format": FORMAT, "version": VERSION, "agrees": report.agrees}
    return json.dumps(head | document, indent=1, allow_nan=False) + "\n"


def _section(section: Section) -> dict[str, Any]:
    return {**asdict(section), "rows": section.records()}


def from_json(text: str | bytes, name: str) -> Report:
    """The report in a document.

    Raises:
        UsageError: it has another format or version, or is not well formed; says what is wrong.
    """
    if len(text) > BYTES_MAX:
        raise UsageError(f"{name}: larger than {BYTES_MAX} bytes")
    try:
        document = json.loads(text)
        if not isinstance(document, dict) or document.pop("format", None) != FORMAT:
            raise UsageError(f'{name}: not a report: "format" is not "{FORMAT}"')
        version = document.pop("version", None)
        if version != VERSION:
            raise UsageError(f"{name}: version {version!r:.40} of {FORMAT}; this kvgate reads {VERSION}")
        agrees = document.pop("agrees")
        for section in document["tested"]:
            names = [column["name"] for column in section["columns"]]
            if any(list(row) != names for row in section["rows"]):
                raise ValueError(f"section {section.get('title')!r:.40}: the keys of a row are not the columns")
            section["rows"] = [list(row.values()) for row in section["rows"]]
        report: Report = _converter().structure(document, Report)
        if agrees is not report.agrees:
            raise ValueError('"agrees" does not fit what was found')
        return report
    except DOCUMENT_ERRORS as error:
        raise UsageError(f"{name}: {explain(error)}") from error


@cache
def _converter() -> cattrs.Converter:
    return strict_converter()
