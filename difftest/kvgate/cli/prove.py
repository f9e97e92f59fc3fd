"""``kvgate prove``: the formulas of the reference and the invariants of the block manager, proved with z3."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from kvgate.cli.options import Jobs, TableOutput
from kvgate.kernel.errors import UsageError
from kvgate.kernel.extras import require
from kvgate.kernel.output import AGREEMENT, DIVERGENCE, INTERRUPTED, NOT_EXHAUSTIVE, TableFormat

if TYPE_CHECKING:
    from kvgate.explore.proving.designs import Refutation
    from kvspec.proof_result import ProofResult, Task

UNKNOWN = NOT_EXHAUSTIVE
"""z3 could not decide: that is no proof, and no refutation."""


def prove(
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
        typer.Option("--model", metavar="NAME|FILE", help="Prove what is said of one model: a preset, or a JSON file."),
    ] = None,
    design: Annotated[
        list[str] | None,
        typer.Option("--design", metavar="NAME", help="Refute a design that does not work; all of them: all."),
    ] = None,
    proof_only: Annotated[
        bool, typer.Option("--proof-only", help="Neither look for witnesses nor try mutants.")
    ] = False,
    jobs: Jobs = None,
    list_only: Annotated[bool, typer.Option("--list", help="Say what there is, and prove nothing.")] = False,
    output: TableOutput = TableFormat.TEXT,
) -> None:
    """Prove the formulas that the reference runs, and its invariants, with z3.

    An obligation counts as proved only if all its witnesses are found and all its mutants refuted: else it might say
    nothing. Tier P is proved for all sizes, tier B within the bound that is printed.

    Exit 0 if all are proved, 1 if one is refuted or says nothing, 4 if z3 could not decide one, 130 if interrupted.
    Designs that do not work are expected to end with 1; with 0 if one of them is not refuted.

    Examples:

      kvgate prove

      kvgate prove --obligation retention.mask-sound

      kvgate prove --model dsv4-flash-ascend-128+mtp

      kvgate prove --design mask-without-shift
    """
    if design and (model or obligation or proof_only):
        raise UsageError("--design stands alone: a design has its own geometry and its own obligation")
    require("z3", "kvgate prove", "prove")
    if list_only:
        from kvgate.explore.proving.designs import chosen as designs_chosen
        from kvgate.explore.proving.listing import listing, listing_as_json
        from kvgate.explore.proving.tasks import chosen

        names = [] if design else chosen(obligation or ())
        designs = designs_chosen(design or ["all"]) if design or not obligation else []
        typer.echo((listing_as_json if output is TableFormat.JSON else listing)(names, designs))
        return
    if design:
        _refute(design, output)
    _prove(obligation or (), model, proof_only, jobs or os.cpu_count() or 1, output)


def _prove(names: Sequence[str], model: str | None, proof_only: bool, jobs: int, output: TableFormat) -> None:
    from kvgate.explore.proving import report
    from kvgate.kernel.progress import progress_line
    from kvspec.proof_result import check_all

    todo = _todo(names, model)
    width = max(len(task.obligation) for task in todo)
    started = time.perf_counter()
    results: list[ProofResult] = []
    ended = "completed"
    with progress_line() as progress:
        try:
            for result in check_all(todo, proof_only, jobs):
                results.append(result)
                progress.say(f"{len(results)} of {len(todo)} obligations")
                if output is TableFormat.TEXT:
                    typer.echo(report.line(result, width))
        except KeyboardInterrupt:
            ended = "interrupted"
    seconds = time.perf_counter() - started
    if output is TableFormat.JSON:
        typer.echo(report.as_json(results, ended, seconds))
    else:
        for line in _rest(results, len(todo), seconds, bool(names), ended):
            typer.echo(line)
    raise typer.Exit(INTERRUPTED if ended == "interrupted" else _code(results))


def _rest(results: Sequence[ProofResult], asked: int, seconds: float, in_detail: bool, ended: str) -> list[str]:
    """What follows the lines: details of what was asked for or went wrong, and the sums."""
    from kvgate.explore.proving import report
    from kvspec.proof_result import Outcome

    told = [each for each in results if in_detail or each.outcome not in (Outcome.PROVED, Outcome.SILENT)]
    lines = [line for each in told for line in ("", *report.details(each))]
    return [*lines, "", *report.summary(results, asked, seconds), *(["interrupted"] if ended != "completed" else [])]


def _todo(names: Sequence[str], model: str | None) -> list[Task]:
    """What is to be proved: for all values, or what is said of one model.

    Raises:
        UsageError: there is no such obligation or model, or nothing is said of the model.
    """
    from kvgate.explore.proving.tasks import chosen, of_model
    from kvgate.kernel.models import load
    from kvspec.proof_result import Task

    ids = chosen(names)
    if model is None:
        return [Task(name) for name in ids]
    found = list(of_model(load(model), ids))
    if not found:
        raise UsageError(f"nothing of what was asked speaks of a group of the model {model}")
    return found


def _code(results: Sequence[ProofResult]) -> int:
    from kvspec.proof_result import Outcome

    outcomes = {each.outcome for each in results}
    if outcomes & {Outcome.REFUTED, Outcome.VACUOUS}:
        return DIVERGENCE
    return UNKNOWN if Outcome.UNKNOWN in outcomes else AGREEMENT


def _refute(names: Sequence[str], output: TableFormat) -> None:
    """Refute designs, and end: with 1 if each is refuted by z3 and by its trace, as it should be.

    Raises:
        UsageError: there is no such design.
    """
    from kvgate.explore.proving.designs import as_json, chosen, refute_all, told
    from kvspec.prover import Verdict

    refuted = []
    ended = "completed"
    try:
        for each in refute_all(chosen(names)):
            refuted.append(each)
            if output is TableFormat.TEXT:
                typer.echo(f"{told(each)}\n")
    except KeyboardInterrupt:
        ended = "interrupted"
    typer.echo(as_json(refuted, ended) if output is TableFormat.JSON else _sum_of(refuted, ended))
    if ended == "interrupted":
        raise typer.Exit(INTERRUPTED)
    undecided = any(each.proof.verdict is Verdict.UNKNOWN for each in refuted)
    raise typer.Exit(UNKNOWN if undecided else DIVERGENCE if all(each.is_refuted for each in refuted) else AGREEMENT)


def _sum_of(refuted: Sequence[Refutation], ended: str) -> str:
    told = f"{sum(each.is_refuted for each in refuted)} of {len(refuted)} refuted"
    return told if ended == "completed" else f"{told}\ninterrupted"
