"""``python -m kvgate.equality``: fill the table of token equality with real engines on this machine."""

from __future__ import annotations

from kvgate.kernel.interruption import starting

with starting("kvgate.equality"):
    import sys
    from typing import TYPE_CHECKING, Annotated

    import typer

    from kvgate.kernel.errors import SystemUnavailableError, UsageError
    from kvgate.kernel.output import TableFormat

    if TYPE_CHECKING:
        from kvgate.equality.table import Cell


def equality(
    models: Annotated[list[str] | None, typer.Option("--model", metavar="NAME", help="Only this model.")] = None,
    features: Annotated[list[str] | None, typer.Option("--feature", metavar="NAME", help="Only this feature.")] = None,
    output: Annotated[TableFormat, typer.Option("--format", help="What is printed.")] = TableFormat.TEXT,
) -> None:
    """Compare what engines answer with each feature of the cache with what they answer without a cache.

    Tiny hybrid models with random weights, vLLM 0.20.2 on this machine's CPU, greedy; each engine in a process of its
    own. Then faults are injected that serve blocks with other tokens in them: these must make a difference.

    Exit 0 if all is equal and every injected fault is seen, 1 if something differs that should not, or an injected
    fault does not, 4 if something was not shown.

    Examples:

      python -m kvgate.equality

      python -m kvgate.equality --model gpt-oss --feature hits --feature "eagle, preemption"
    """
    from kvgate.adapters.cpu_engine.engines import engines
    from kvgate.equality.report import report_of
    from kvgate.equality.table import chosen, fill
    from kvgate.kernel.progress import progress_line
    from kvgate.report.formats import echo

    named, wanted = chosen(models or (), features or ())
    cells: list[Cell] = []
    interrupted = False
    with progress_line() as line:
        try:
            line.say("importing vLLM …")
            with engines() as started:
                for cell in fill(started, named, wanted, report=line.say):
                    cells.append(cell)
        except KeyboardInterrupt:
            interrupted = True
    report = report_of(cells, interrupted)
    echo(report, output)
    raise typer.Exit(report.exit_code)


if __name__ == "__main__":
    try:
        typer.run(equality)
    except (UsageError, SystemUnavailableError) as error:
        print(f"kvgate.equality: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, UsageError) else 3)
