"""The report for a terminal: the verdict in one line, then what was claimed, tested, found and not tested.

Names are never read as markup, and no line of a story is wrapped: what is to be pasted must come out in one piece.
"""

from __future__ import annotations

from collections.abc import Iterator

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kvgate.kernel.console import plain
from kvgate.kernel.text import counted, printable
from kvgate.report.contents import Contents


def text_report(contents: Contents) -> str:
    """The report as plain text."""
    return plain(lambda console: show(contents, console))


def show(contents: Contents, console: Console) -> None:
    """Print the report on ``console``, in colour if it has any."""
    agrees = contents.verdict.agrees and contents.verdict.operations > 0
    _line(console, contents.outcome, "bold green" if agrees else "bold red")
    _section(console, "Claimed")
    for claim in contents.claims or ("nothing",):
        _line(console, f"- {claim}")
    _section(console, "Tested")
    _line(console, contents.circumstances)
    _line(console, "")
    console.print(_tested(contents))
    _section(console, "Found")
    for part in _found(contents):
        _line(console, "")
        console.print(part, soft_wrap=True)
    _section(console, "Not tested")
    for sentence in contents.not_tested or ("Whatever lies outside these cases.",):
        _line(console, f"- {sentence}")


def _tested(contents: Contents) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, show_footer=True, footer_style="bold")
    verdict = contents.verdict
    table.add_column("model", Text("all"), overflow="fold")
    table.add_column("preset", overflow="fold")
    table.add_column("cases", Text(str(verdict.cases)), justify="right")
    table.add_column("operations", Text(str(verdict.operations)), justify="right")
    for tally in verdict.tallies:
        cells = (printable(tally.model), printable(tally.preset), str(tally.cases), str(tally.operations))
        table.add_row(*map(Text, cells))
    return table


def _found(contents: Contents) -> Iterator[Text]:
    if not contents.told:
        yield Text("nothing that is not declared")
    total = len(contents.verdict.found)
    for number, told in enumerate(contents.told, start=1):
        story = Text(f"[{number} of {total}] {told.story}")
        story.highlight_regex(r"\A.*", "bold red")
        story.highlight_regex(r"(?m)^>.*$", "red")
        story.highlight_regex(r"(?m)^  kvgate replay .*$", "cyan")
        yield story
    if contents.left_out:
        yield Text(f"{counted(len(contents.left_out), 'divergence')} more, left out here")
    if contents.declared:
        yield Text("\n".join(("declared:", *(f"- {line}" for line in contents.declared))))


def _section(console: Console, title: str) -> None:
    _line(console, "")
    _line(console, title, "bold")


def _line(console: Console, line: str, style: str = "") -> None:
    console.print(Text(line, style=style), soft_wrap=True)
