"""The ``kvgate`` command: what it offers. Each subcommand is a file; nothing heavy is imported before it is needed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from kvgate.cli import (
    check,
    conform,
    diff,
    doctor,
    explain,
    explore,
    fetch,
    fuzz,
    mechanisms,
    prove,
    record,
    replay,
    rule,
    shrink,
    simulate,
    status,
)
from kvgate.cli.version import Version
from kvgate.kernel.errors import SystemUnavailableError, UsageError
from kvgate.kernel.extras import from_a_clone
from kvgate.kernel.output import FAULT
from kvgate.kernel.text import printable

MESSAGE_CHARACTERS_MAX = 2000
"""How long the message may be that a command ends with."""


class Commands(TyperGroup):
    """The subcommands, by what they are for; and what is wrong with an option, without how it was found."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            # Some releases of typer begin with that.
            error.message = error.message.removeprefix("Value error, ")
            raise

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a list for each panel: in plain text, which is quick, can be piped, and keeps its lines."""
        del ctx
        for panel in PANELS:
            with formatter.section(panel):
                formatter.write_dl([(name, sentence) for name, (_, at, sentence) in COMMANDS.items() if at == panel])


GATE = "The gate: production code against its specification"
LIVE = "A live engine"
HITS = "Hit rates"
MODEL = "The reference, and its proofs"
ITSELF = "The gate itself: what it finds, and what it misses"
MAINTENANCE = "Maintenance"
PANELS = (GATE, LIVE, HITS, MODEL, ITSELF, MAINTENANCE)


def _from_mutants(name: str) -> Callable[..., None]:
    """The command that kvgate-mutants provides; without that distribution, one that says how to install it."""
    for found in entry_points(group="kvgate.commands", name=name):
        command: Callable[..., None] = found.load()
        return command

    def missing(arguments: Annotated[list[str] | None, typer.Argument(hidden=True)] = None) -> None:
        del arguments
        raise UsageError(f"kvgate {name} comes with kvgate-mutants: {from_a_clone('', 'mutants')}")

    return missing


COMMANDS: dict[str, tuple[Callable[..., None], str, str]] = {
    "check": (check.check, GATE, "Run a system in lockstep with the reference: do they agree?"),
    "replay": (replay.replay, GATE, "Run again what was found; check what was recorded."),
    "shrink": (shrink.shrink, GATE, "Make a stored case smaller."),
    "fuzz": (fuzz.fuzz, GATE, "The same for hours, on all cores or on a cluster."),
    "record": (record.record, LIVE, "Run a server with a shadow that records, or checks."),
    "status": (status.status, LIVE, "What the shadows of a server have seen."),
    "diff": (diff.diff, LIVE, "Where two recordings part."),
    "explain": (explain.explain, HITS, "Why is my hit rate zero? From model and flags alone."),
    "simulate": (simulate.simulate, HITS, "Serve requests without a model: what hits, and when?"),
    "rule": (rule.rule, MODEL, "What a guarantee means, and what is known of it."),
    "prove": (prove.prove, MODEL, "The formulas and the invariants, by z3."),
    "conform": (conform.conform, MODEL, "The reference's steps are those that are proved."),
    "explore": (explore.explore, MODEL, "Every state of tiny models; designs that fail."),
    "mechanisms": (mechanisms.mechanisms, MODEL, "The reference alone, mechanism by mechanism."),
    "mutants": (_from_mutants("mutants"), ITSELF, "Inject known faults: is each of them found?"),
    "corpus": (_from_mutants("corpus"), ITSELF, "Run defects that people reported: is each caught?"),
    "doctor": (doctor.doctor, MAINTENANCE, "What is installed, and what of kvgate works here."),
    "fetch": (fetch.fetch, MAINTENANCE, "Get other releases, to be systems under test."),
}
"""The subcommands: what each runs, where the help shows it, and as what."""


app = typer.Typer(
    name="kvgate",
    cls=Commands,
    help=(
        "Run a KV-cache block manager in lockstep with an executable specification.\n\n"
        "Begin with kvgate doctor, which says what works here, and kvgate check, which runs vLLM's real block manager "
        "and the reference through the same operations. It prints each difference as a short story, and writes it as "
        "a trace for kvgate replay."
    ),
    epilog=(
        "kvgate COMMAND --help has examples. Exit codes: 0 agreement, 1 divergence, 2 bad usage or input, 3 no system "
        "under test, 4 stopped before all was explored, or not decided, 5 kvgate itself failed, "
        "130 interrupted."
    ),
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback()
def of_all(version: Version = False) -> None:
    """What stands before a subcommand."""
    # The option has done it.
    del version


for name, (run, panel, sentence) in COMMANDS.items():
    # A command that is not installed accepts everything, so that it can say what to install.
    anything = {"ignore_unknown_options": run.__name__ == "missing"}
    app.command(name, rich_help_panel=panel, short_help=sentence, context_settings=anything)(run)


def main() -> None:
    """Run a subcommand, and turn what ends it early into one message and an exit code."""
    try:
        app()
    except UsageError as error:
        _end(error, 2)
    except SystemUnavailableError as error:
        _end(error, 3)
    except KeyboardInterrupt:
        _end("interrupted", 130)
    except MemoryError:
        # A legal state may still exceed this configuration; it is not a divergence.
        _end("not enough memory: give it more, or smaller numbers", 4)
    except Exception as error:
        if _was_interrupted(error):
            _end("interrupted", 130)
        from kvgate.cli.fault import report_fault
        from kvgate.gate.fault import fault_of

        report_fault(fault_of(error))
        sys.exit(FAULT)


def _was_interrupted(error: BaseException | None) -> bool:
    """Whether an exception was raised for Ctrl-C: Python 3.11 raises another one for it while a class is made."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__
    return error is not None


def _end(message: object, code: int) -> NoReturn:
    print(f"kvgate: {printable(str(message), MESSAGE_CHARACTERS_MAX)}", file=sys.stderr)
    sys.exit(code)
