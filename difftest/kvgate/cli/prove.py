"""``kvgate prove``: the formulas of the reference and the invariants of the block manager, proved with z3."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from kvgate.cli.options import Jobs, TableOutput
from kvgate.cli.served import ServingFlags, flags_of, models_of
from kvgate.kernel.errors import UsageError
from kvgate.kernel.extras import require
from kvgate.kernel.output import TableFormat

if TYPE_CHECKING:
    from kvgate.explore.proving.designs import Refutation
    from kvspec.proof_result import Options, ProofResult, Task


def prove(
    serving: ServingFlags = None,
    obligation: Annotated[
        list[str] | None,
        typer.Option(
            "--obligation",
            metavar="ID",
            help="An obligation, or all of a chapter (retention). May be given several times.",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="NAME|FILE",
            help="Prove what is said of one model: a preset, a JSON file of groups, or a config.json.",
        ),
    ] = None,
    design: Annotated[
        list[str] | None,
        typer.Option("--design", metavar="NAME", help="Refute a design that does not work; all of them: all."),
    ] = None,
    proof_only: Annotated[
        bool, typer.Option("--proof-only", help="Neither look for witnesses nor try mutants.")
    ] = False,
    full: Annotated[
        bool, typer.Option("--full", help="Try the mutants, too: with each of them an obligation must be refuted.")
    ] = False,
    second: Annotated[
        bool, typer.Option("--second", help="Ask cvc5, too, each question that z3's answers rest on.")
    ] = False,
    seeds: Annotated[int, typer.Option("--seeds", metavar="N", min=1, help="Repeat the same with N seeds of z3.")] = 1,
    cores: Annotated[
        bool,
        typer.Option("--cores", help="Check the stored unsatisfiable cores of the central theorems by z3 and cvc5."),
    ] = False,
    jobs: Jobs = None,
    list_only: Annotated[bool, typer.Option("--list", help="Say what there is, and prove nothing.")] = False,
    functions: Annotated[
        bool,
        typer.Option("--functions", help="Print which functions of the reference no obligation executes."),
    ] = False,
    output: TableOutput = TableFormat.TEXT,
) -> None:
    """Prove the formulas that the reference runs, and its invariants, with z3.

    An obligation counts as proved only if all its witnesses are found: else its assumptions might never hold. Mutants
    are tried with --full only. Then it counts as proved only if all of them are refuted, too: else its claim might hold
    for any code. Tier P is proved for all sizes, of functions of the reference that run. Tier M is proved for all sizes
    of a model that stands for them. Tier B is proved within the printed bound.

    Exit 0 if all are proved, 1 if one is refuted or says nothing or two solvers disagree, 4 if a solver that was asked
    could not decide one, 130 if interrupted.
    Designs that do not work are expected to end with 1; with 0 if one of them is not refuted.

    Examples:

      kvgate prove

      kvgate prove --full

      kvgate prove --full --obligation retention.mask-sound

      kvgate prove --second --proof-only

      kvgate prove --model dsv4-flash-ascend-128+mtp

      kvgate prove --model gpt-oss-20b/config.json -- --block-size 32

      kvgate prove --design mask-without-shift
    """
    if proof_only and full:
        raise UsageError("--full tries mutants, and --proof-only does not: give one of them")
    if design and (model or obligation or proof_only or full or second or seeds > 1):
        raise UsageError("--design stands alone: a design has its own geometry and its own obligation")
    if cores and (design or model or obligation or proof_only or full or second or seeds > 1):
        raise UsageError("--cores stands alone: it checks the stored cores of the central theorems, and all of them")
    require("z3", "kvgate prove", "prove")
    if second or cores:
        require("cvc5", f"kvgate prove {'--second' if second else '--cores'}", "solvers")
    if cores:
        _check_cores(jobs or os.cpu_count() or 1, output)
    if functions:
        from kvgate.report.formats import echo
        from kvgate.report.proofs import functions_of

        echo(functions_of(), output)
        return
    if list_only:
        from kvgate.explore.proving.designs import chosen as designs_chosen
        from kvgate.explore.proving.tasks import chosen
        from kvgate.report.formats import echo
        from kvgate.report.proofs import list_of

        names = [] if design else chosen(obligation or ())
        designs = designs_chosen(design or ["all"]) if design or not obligation else []
        echo(list_of(names, designs), output)
        return
    if design:
        _refute(design, output)
    from kvspec.proof_result import Options

    todo = _todo(obligation or (), model, flags_of(serving))
    options = Options(proof_only, seeds, second, mutants=full)
    _prove(todo, options, bool(obligation), jobs or os.cpu_count() or 1, output)


def _prove(todo: Sequence[Task], options: Options, in_detail: bool, jobs: int, output: TableFormat) -> None:
    from kvgate.kernel.progress import progress_line
    from kvgate.report.formats import echo
    from kvgate.report.proofs import report_of
    from kvspec.proof_result import check_all

    started = time.perf_counter()
    results: list[ProofResult] = []
    ended = "completed"
    with progress_line() as progress:
        try:
            for result in check_all(todo, options, jobs):
                results.append(result)
                last = f"{result.task.obligation} {result.outcome.value}"
                progress.say(f"{len(results)} of {len(todo)} obligations; {last}")
        except KeyboardInterrupt:
            ended = "interrupted"
    report = report_of(results, len(todo), time.perf_counter() - started, ended, in_detail, options)
    echo(report, output)
    raise typer.Exit(report.exit_code)


def _check_cores(jobs: int, output: TableFormat) -> None:
    """Check the stored cores, and end: with 1 if a proof rests on something else, or a solver does not confirm one."""
    from kvgate.report.formats import echo
    from kvgate.report.proofs import report_of_cores
    from kvspec.cores import CENTRAL, check_all

    report = report_of_cores(list(check_all(CENTRAL, jobs)))
    echo(report, output)
    raise typer.Exit(report.exit_code)


def _todo(names: Sequence[str], model: str | None, flags: Sequence[str]) -> list[Task]:
    """What is to be proved: for all values, or what is said of one model.

    Raises:
        UsageError: the obligation or model is unknown, or no obligation speaks of the model.
    """
    from kvgate.explore.proving.tasks import chosen, of_model
    from kvspec.proof_result import Task

    ids = chosen(names)
    if model is None:
        if flags:
            raise UsageError("flags after -- are those that a config.json is served with: give one with --model")
        return [Task(name) for name in ids]
    ((served,), _) = models_of((model,), flags, None)
    found = list(of_model(served, ids))
    if not found:
        raise UsageError(f"nothing of what was asked speaks of a group of the model {model}")
    return found


def _refute(names: Sequence[str], output: TableFormat) -> None:
    """Refute designs, and end: with 1 if each is refuted by z3 and by its trace, as it should be.

    Raises:
        UsageError: the design is unknown.
    """
    from kvgate.explore.proving.designs import chosen, refute_all
    from kvgate.report.formats import echo
    from kvgate.report.proofs import report_of_designs

    refuted: list[Refutation] = []
    ended = "completed"
    try:
        for each in refute_all(chosen(names)):
            refuted.append(each)
    except KeyboardInterrupt:
        ended = "interrupted"
    report = report_of_designs(refuted, ended)
    echo(report, output)
    raise typer.Exit(report.exit_code)
