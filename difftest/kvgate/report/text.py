"""The report for a terminal: the verdict in one line, then what was claimed, tested, found and not tested.

Names are never read as markup, and no line of a story is wrapped: what is to be pasted must come out in one piece. A
table that is piped is as wide as its cells, so that each row is one line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from io import StringIO

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from kvgate.kernel.text import printable
from kvgate.report.document import Report, Section

_UNBOUNDED = 100_000
_LINE_CHARACTERS_MAX = 20_000
_RULED_CHARACTERS_MAX = 120
"""A wider table has no rule below its header."""


def text_report(report: Report) -> str:
    """The report as plain text."""
    console = Console(file=StringIO(), width=_UNBOUNDED, color_system=None, force_terminal=False, legacy_windows=False)
    with console.capture() as capture:
        show(report, console)
    # Rich pads the cells of a table with spaces.
    return "".join(f"{line.rstrip()}\n" for line in capture.get().splitlines())


def show(report: Report, console: Console) -> None:
    """Print the report on ``console``, in colour if it has any."""
    if not report.outcome:
        _show_sections(report.tested, console)
        return
    _line(console, report.outcome, "bold green" if report.is_good else "bold red")
    if report.claimed:
        _heading(console, "Claimed")
        _list(console, report.claimed)
    shown = [section for section in report.tested if section.shown]
    circumstances = report.circumstances_text()
    if circumstances or shown:
        _heading(console, report.tested_title)
    if circumstances:
        _line(console, circumstances)
        _line(console, "")
    _show_sections(shown, console)
    _heading(console, "Found")
    for part in _found(report):
        _line(console, "")
        console.print(part, soft_wrap=True)
    if report.not_tested:
        _heading(console, "Not tested")
        _list(console, report.not_tested)


def _show_sections(sections: Iterable[Section], console: Console) -> None:
    for number, section in enumerate(section for section in sections if section.shown):
        if number:
            _line(console, "")
        if section.title:
            _line(console, section.title)
        if section.visible:
            console.print(_table(section, console))
        for note in section.notes:
            _line(console, note)


def _table(section: Section, console: Console) -> Table:
    table = Table(show_edge=False, show_footer=bool(section.total), footer_style="bold", box=box.SIMPLE_HEAD)
    total = section.texts(section.total) if section.total else [""] * len(section.visible)
    for column, footer in zip(section.visible, total, strict=True):
        justify = "right" if section.is_number(column) else "left"
        # mypy infers str, and rich takes a literal.
        table.add_column(Text(column.name), Text(footer), justify=justify, overflow="fold")  # type: ignore[arg-type]
    for row in section.rows:
        table.add_row(*map(Text, section.texts(row)))
    if Measurement.get(console, console.options, table).maximum > _RULED_CHARACTERS_MAX:
        table.box = None
    return table


def _found(report: Report) -> Iterator[Text]:
    if report.agrees:
        yield Text(report.nothing_found)
    total = len(report.found) + report.found_left_out
    for number, story in enumerate(report.found, start=1):
        lines = (story.text or story.headline).splitlines()
        text = Text(f"[{number} of {total}] " + "\n".join(printable(line, _LINE_CHARACTERS_MAX) for line in lines))
        text.highlight_regex(r"\A.*", "bold red" if story.severity == "error" else "bold yellow")
        text.highlight_regex(r"(?m)^>.*$", "red")
        text.highlight_regex(r"(?m)^  kvgate replay .*$", "cyan")
        yield text
    if report.more_found:
        yield Text(report.more_found)
    if report.known_seen:
        yield Text("\n".join(("known findings seen:", *(f"- {line}" for line in report.known_lines()))))


def _heading(console: Console, title: str) -> None:
    _line(console, "")
    _line(console, title, "bold")


def _list(console: Console, lines: Iterable[str]) -> None:
    for line in lines:
        _line(console, f"- {line}")


def _line(console: Console, line: str, style: str = "") -> None:
    console.print(Text(printable(line, _LINE_CHARACTERS_MAX), style=style), soft_wrap=True)
