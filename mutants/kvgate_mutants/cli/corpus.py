"""``kvgate corpus``: real defects as cases, each of which must be caught."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvgate.cli.options import TableOutput
from kvgate.kernel.output import TableFormat

if TYPE_CHECKING:
    from kvgate_mutants.corpus.probe import Result


def corpus(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="ID", help="Only these defects, by id or by number.")
    ] = None,
    list_only: Annotated[bool, typer.Option("--list", help="Say what there is, and run nothing.")] = False,
    as_page: Annotated[bool, typer.Option("--page", help="Print the page of the corpus, in Markdown.")] = False,
    write: Annotated[
        Path | None,
        typer.Option("--write", metavar="FILE.md", help="Also write that page, and its rows as FILE.csv."),
    ] = None,
    draw_seconds: Annotated[
        float,
        typer.Option(
            "--draw-seconds",
            metavar="S",
            min=0.0,
            help="Also draw cases from seeds on the same groups, for S seconds each, and say how soon they find it.",
        ),
    ] = 0.0,
    output: TableOutput = TableFormat.TEXT,
) -> None:
    """Run reported defects of published block managers as cases, and say what catches each, and how soon.

    Published code with the defect is run if possible, each release in a process of its own, fetched if needed.
    Otherwise a mutant re-introduces the defect, or is an analogue of it. A case counts as caught only if its control
    shows nothing: the same without the defect, or without what brings it about.

    Exit 0 if every defect with a case is caught, 1 if one is not, 4 if a case could not be run, 5 if kvgate itself
    failed, 130 if interrupted.

    Examples:

      kvgate corpus

      kvgate corpus oversize-request-blocks-queue

      kvgate corpus 9 21 --format json

      kvgate corpus --draw-seconds 20

      kvgate corpus 21 --write corpus.md

      kvgate corpus --list
    """
    from kvgate.kernel.data_file import write_both
    from kvgate.kernel.progress import progress_line
    from kvgate.report.formats import echo
    from kvgate_mutants.corpus import page, tables
    from kvgate_mutants.corpus.register import chosen
    from kvgate_mutants.corpus.running import run

    bugs = chosen(names or ())
    if list_only:
        echo(tables.list_of(bugs), output)
        return
    results: list[Result] = []
    interrupted = False
    with progress_line() as line:
        try:
            for result in run(bugs, line.say, draw_seconds=draw_seconds):
                results.append(result)
        except KeyboardInterrupt:
            interrupted = True
    if write is not None:
        write_both(write, page.page(bugs, results), page.data(bugs, results))
    report = tables.report_of(bugs, results, interrupted)
    if as_page and output is TableFormat.TEXT:
        typer.echo(page.page(bugs, results), nl=False)
    else:
        echo(report, output)
    raise typer.Exit(report.exit_code)
