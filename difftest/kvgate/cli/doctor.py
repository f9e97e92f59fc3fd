"""``kvgate doctor``: what is installed, and what of kvgate works here."""

from __future__ import annotations

from typing import Annotated

import typer

from kvgate.cli.check import parse_duration
from kvgate.cli.options import TableOutput
from kvgate.kernel.output import TableFormat


def doctor(
    quick: Annotated[bool, typer.Option("--quick", help="Import nothing: print what is installed, at once.")] = False,
    time_budget: Annotated[
        str, typer.Option("--time-budget", metavar="TIME", help="Stop an import after, for example, 60s or 2m.")
    ] = "2m",
    output: TableOutput = TableFormat.TEXT,
) -> None:
    """Say what is installed, what of kvgate works here, and how to fix the rest.

    vLLM, torch and z3 are imported in processes of their own, so that a broken or hanging one is reported as that. What
    the plug-in would patch, symbol by symbol: python -m swa_retention doctor.

    Exit 0 if kvgate check can run, 3 if not, 130 if interrupted. With --quick, 0 means only that vLLM of the right
    version is installed.

    Examples:

      kvgate doctor

      kvgate doctor --quick

      kvgate doctor --format json
    """
    from kvgate.doctor import checks, report
    from kvgate.doctor.facts import gather
    from kvgate.doctor.probe import SYSTEM, Z3, Probe, try_all
    from kvgate.kernel.progress import progress_line
    from kvgate.report.formats import echo

    seconds = parse_duration(time_budget)
    facts = gather()
    tried: dict[str, Probe] = {}
    if not quick:
        programs = {checks.Z3_PROGRAM: Z3}
        if facts.vllm is not None or "torch" in facts.installed:
            programs[checks.SYSTEM_PROGRAM] = SYSTEM
        with progress_line() as line:
            tried = try_all(programs, seconds, line.say)
    shown = report.report_of(facts, tried, checks.run_checks(facts, tried), list(checks.notes(facts)))
    echo(shown, output)
    raise typer.Exit(shown.exit_code)
