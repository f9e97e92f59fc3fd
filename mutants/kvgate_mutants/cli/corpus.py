"""``kvgate corpus``: real defects as cases, each of which must be caught."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from kvgate.cli.options import TableOutput
from kvgate.kernel.output import AGREEMENT, DIVERGENCE, INTERRUPTED, NOT_EXHAUSTIVE, TableFormat

if TYPE_CHECKING:
    from kvgate_mutants.corpus.bug import Bug
    from kvgate_mutants.corpus.probe import Result


def corpus(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="ID", help="Only these defects, by id or by number.")
    ] = None,
    list_only: Annotated[bool, typer.Option("--list", help="Say what there is, and run nothing.")] = False,
    as_page: Annotated[bool, typer.Option("--page", help="Print the page of the corpus, in Markdown.")] = False,
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

    Published code that has the defect is run where it can be, each release in a process of its own and fetched if it
    is not there; else a mutant re-introduces it, or is an analogue of it. A case counts as caught only if its control
    shows nothing: the same without the defect, or without what brings it about.

    Exit 0 if every defect is caught that has a case, 1 if one is not, 4 if a case of one could not be run, 130 if
    interrupted.

    Examples:

      kvgate corpus

      kvgate corpus oversize-request-blocks-queue

      kvgate corpus 9 21 --format json

      kvgate corpus --draw-seconds 20

      kvgate corpus --list
    """
    from kvgate.kernel.progress import progress_line
    from kvgate_mutants.corpus import page, tables
    from kvgate_mutants.corpus.register import chosen
    from kvgate_mutants.corpus.running import run

    bugs = chosen(names or ())
    if list_only:
        _list(bugs, output)
        return
    results: list[Result] = []
    interrupted = False
    with progress_line() as line:
        try:
            for result in run(bugs, line.say, draw_seconds=draw_seconds):
                results.append(result)
        except KeyboardInterrupt:
            interrupted = True
    if output is TableFormat.JSON:
        typer.echo(json.dumps(tables.document(bugs, results), indent=1))
    elif as_page:
        typer.echo(page.page(bugs, results), nl=False)
    else:
        tables.show(bugs, results)
    raise typer.Exit(INTERRUPTED if interrupted else _code(bugs, results))


def _code(bugs: Sequence[Bug], results: Sequence[Result]) -> int:
    from kvgate_mutants.corpus.probe import State
    from kvgate_mutants.corpus.running import state_of

    states = {state_of(bug, results) for bug in bugs if bug.trials}
    if State.NOT_CAUGHT in states:
        return DIVERGENCE
    return NOT_EXHAUSTIVE if states & {State.NOT_RUN, State.PARTLY_RUN} else AGREEMENT


def _list(bugs: Sequence[Bug], output: TableFormat) -> None:
    from kvgate.cli.listing import tell

    lines, entries = [], []
    for bug in bugs:
        code = list(dict.fromkeys(trial.code for trial in bug.trials))
        how = ", ".join(code) or "not caught"
        lines.append(f"{bug.number:2} {bug.id} ({bug.kind.value}; {how}; {bug.thread}): {bug.title}")
        entry = {"number": bug.number, "id": bug.id, "class": bug.kind.value, "code": code}
        entries.append({**entry, "thread": bug.thread, "title": bug.title})
    tell("\n".join(lines), {"defects": entries}, output)
