"""``kvgate replay``: run a stored case again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvgate.command.options import AGREEMENT, DIVERGENCE, Format, OutputFormat, Preloads
from kvgate.errors import UsageError

if TYPE_CHECKING:
    from kvgate.trace import Trace


def replay(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A trace that kvgate wrote.")],
    sut: Annotated[
        str | None, typer.Option("--sut", metavar="NAME", help="Another system under test than the trace names.")
    ] = None,
    preload: Preloads = None,
    as_pytest: Annotated[bool, typer.Option("--as-pytest", help="Print a plain test that does the same.")] = False,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Run a stored case again, and say whether it still diverges.

    Examples:

      kvgate replay kvgate-report/divergence-1.jsonl

      kvgate replay divergence-1.jsonl --preload my_fix.py

      kvgate replay divergence-1.jsonl --as-pytest > test_regression.py
    """
    from attrs import evolve

    from kvgate import trace as traces
    from kvgate.case import Case
    from kvgate.command.progress import progress_line
    from kvgate.declared import explain
    from kvgate.reports import formats
    from kvgate.reports.wording import printable
    from kvgate.runner import Bench, run
    from kvgate.systems import is_built_in, load_system
    from kvgate.verdict import Found, Tally, Verdict

    trace = traces.read(file)
    header = trace.header
    name = sut or header.system
    if sut is None and not is_built_in(name):
        raise UsageError(f"{file}: written for the system {name!r}; to run that code, say so with --sut {name}")
    if as_pytest:
        from kvgate.regression_test import regression_test

        typer.echo(regression_test(trace, name, preload or ()), nl=False)
        return
    changed = where_the_reference_changed(trace)
    if changed is not None:
        message = f"the reference has changed since this trace was written: {changed}"
        typer.echo(f"kvgate: {printable(message, 2000)}", err=True)
    with progress_line() as line:
        line.say(f"loading {name} …")
        system = load_system(name, preload or (), line.say)
        lockstep, divergences = run(Bench(system.factory, header.detectors), header.settings, trace.operations)
    case = Case(header.settings, trace.operations, header.model, header.preset, header.seed)
    found = [
        Found(divergence, evolve(case, operations=tuple(lockstep.performed[: divergence.step + 1])), 1, known)
        for divergence in divergences
        for known in [explain(divergence, lockstep)]
    ]
    verdict = Verdict(
        system=name,
        version=system.version,
        profile="replay",
        seed=header.seed,
        detectors=header.detectors,
        tallies=(Tally(header.model, header.preset, 1, len(lockstep.performed)),),
        # Whoever replays wants the story, declared or not; it says which finding it belongs to.
        found=tuple(found),
        preloads=tuple(map(str, preload or ())),
    )
    reproducers = dict.fromkeys(range(len(verdict.found)), file)
    typer.echo(formats.render(verdict, output.value, not_tested=(), reproducers=reproducers))
    raise typer.Exit(DIVERGENCE if found else AGREEMENT)


def where_the_reference_changed(trace: Trace) -> str | None:
    """The first operation that the reference of today does not answer as it did when the trace was written."""
    from kvgate.trace import annotated

    today = list(annotated(trace.header.settings, trace.operations))
    if len(today) != len(trace.lines):
        return f"{len(trace.lines) - len(today)} of its operations are not legal any more"
    for number, (then, now) in enumerate(zip(trace.lines, today, strict=True)):
        if then.digest and then.digest != now.digest:
            return f"operation {number}: then {then.answer}; now {now.answer}"
    return None
