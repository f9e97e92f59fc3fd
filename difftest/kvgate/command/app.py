"""The ``kvgate`` command: what it offers. Each subcommand is a file; nothing heavy is imported before it is needed."""

from __future__ import annotations

import sys
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from kvgate.command import (
    check,
    conform,
    corpus,
    diff,
    explain,
    explore,
    fetch,
    fuzz,
    mechanisms,
    mutants,
    prove,
    record,
    replay,
    simulate,
)
from kvgate.errors import SystemUnavailableError, UsageError
from kvgate.reports.wording import printable

MESSAGE_CHARACTERS_MAX = 2000
"""How long the message may be that a command ends with."""


class Commands(TyperGroup):
    """Says what is wrong with an option, and nothing of how it was found: some releases of typer begin with that."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = error.message.removeprefix("Value error, ")
            raise


app = typer.Typer(
    name="kvgate",
    cls=Commands,
    help=(
        "Run a KV-cache block manager in lockstep with an executable specification.\n\n"
        "kvgate check drives vLLM's real block manager and the reference through the same operations, and says "
        "whether they agree. kvgate replay runs what was found again, and judges what kvgate record wrote of a live "
        "engine; kvgate diff compares two of those. kvgate mutants plants known faults, and shows that they are found. "
        "kvgate corpus runs defects that people reported. kvgate fuzz runs campaigns for hours, "
        "and kvgate fetch gets other releases. kvgate explore visits every reachable state of tiny models. kvgate "
        "mechanisms drives and explores the reference alone, mechanism by mechanism. kvgate prove proves its formulas "
        "and its invariants, and kvgate conform shows that the reference is what these proofs are about."
    ),
    epilog=(
        "Exit codes: 0 agreement, 1 divergence, 2 bad usage or input, 3 no system under test, 4 stopped before all was "
        "explored, or not decided, 130 interrupted."
    ),
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("check")(check.check)
app.command("replay")(replay.replay)
app.command("record")(record.record)
app.command("diff")(diff.diff)
app.command("mutants")(mutants.mutants)
app.command("corpus")(corpus.corpus)
app.command("explain")(explain.explain)
app.command("explore")(explore.explore)
app.command("fetch")(fetch.fetch)
app.command("fuzz")(fuzz.fuzz)
app.command("mechanisms")(mechanisms.mechanisms)
app.command("prove")(prove.prove)
app.command("conform")(conform.conform)
app.command("simulate")(simulate.simulate)


def main() -> None:
    """The entry point: runs a subcommand, and turns what ends it early into one message and an exit code."""
    try:
        app()
    except UsageError as error:
        _end(error, 2)
    except SystemUnavailableError as error:
        _end(error, 3)
    except KeyboardInterrupt:
        _end("interrupted", 130)


def _end(message: object, code: int) -> NoReturn:
    print(f"kvgate: {printable(str(message), MESSAGE_CHARACTERS_MAX)}", file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    main()
