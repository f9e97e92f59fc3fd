"""``kvgate fuzz``: campaigns for hours, on the cores of this machine or on a Ray cluster."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from kvgate.cli.check import parse_duration
from kvgate.cli.fault import report_fault
from kvgate.cli.options import Jobs, Models, MonitorsOnly, OutputFormat, Preloads, Seed, Sut
from kvgate.gate.level import LevelChoice
from kvgate.kernel.errors import SystemUnavailableError, UsageError
from kvgate.kernel.output import Format

if TYPE_CHECKING:
    from kvgate.campaigns.folder import RunFolder
    from kvgate.campaigns.plan import FuzzPlan
    from kvgate.campaigns.run import Progress, Run
    from kvgate.campaigns.workers import Workers
    from kvgate.gate.verdict import Verdict

OUT_DEFAULT = Path("kvgate-fuzz")

Out: TypeAlias = Annotated[Path, typer.Option("--out", metavar="DIR", help="The directory of a new run.")]
Resume: TypeAlias = Annotated[
    Path | None, typer.Option("--resume", metavar="DIR", help="Continue the run in DIR, which says what is fuzzed.")
]
OnRay: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="ADDRESS",
        help="Workers of a Ray cluster, on whose machines kvgate, the system and all files given must be: auto, or "
        "ray://host:10001; local starts one here.",
    ),
]
AtLevel: TypeAlias = Annotated[
    LevelChoice,
    typer.Option(
        "--level",
        # Two nodes are run in one process.
        metavar="<blocks|scheduler|both>",
        help="What is run: the block manager alone, a scheduler that drives it, or both. For two nodes there is kvgate "
        "check --level pair.",
    ),
]
Shards: TypeAlias = Annotated[
    int | None,
    typer.Option("--shards", metavar="N", min=1, max=1_000_000, help="How many shards. Default: no end."),
]
ShardOperations: TypeAlias = Annotated[
    int, typer.Option("--shard-operations", metavar="N", min=1, help="How many operations a shard has at least.")
]
ShardTimeout: TypeAlias = Annotated[
    str,
    typer.Option("--shard-timeout", metavar="TIME", help="End a worker that takes longer for a shard, such as 20m."),
]
Twice: TypeAlias = Annotated[
    int, typer.Option("--twice", metavar="PERCENT", min=0, max=100, help="How many cases are run a second time.")
]
TimeBudget: TypeAlias = Annotated[
    str | None, typer.Option("--time-budget", metavar="TIME", help="Begin no shard after, for example, 60s or 8h.")
]


def fuzz(
    sut: Sut = "installed",
    preload: Preloads = None,
    model: Models = None,
    level: AtLevel = LevelChoice.BLOCKS,
    seed: Seed = 0,
    out: Out = OUT_DEFAULT,
    resume: Resume = None,
    jobs: Jobs = None,
    ray: OnRay = None,
    time_budget: TimeBudget = None,
    shards: Shards = None,
    shard_operations: ShardOperations = 20_000,
    shard_timeout: ShardTimeout = "1h",
    twice: Twice = 5,
    monitors_only: MonitorsOnly = False,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Run shard after shard of a campaign, until all are done, the time is up, or you interrupt it.

    A shard is a small campaign of its own: its cases follow from the seed and its number. DIR/shards has a result for
    each finished shard. DIR/corpus has the shortest trace of each defect, for kvgate replay. DIR/report has all
    reports, with a page for each divergence. A worker that dies costs its shard, which is run again; an interrupt costs
    those that were running, and --resume continues. Of 100 cases 5 are run twice, on fresh systems: another outcome is
    a finding.

    Exit 0 if nothing undeclared was found, 1 if something was, 3 if the system is not available, 4 if a shard killed
    its worker three times or nothing was run. If nothing was found by then, 5 if kvgate itself failed in a shard, and
    130 if interrupted.

    Examples:

      kvgate fuzz --time-budget 8h --out night

      kvgate fuzz --resume night --jobs 8

      kvgate fuzz --sut retention --level both --ray auto --jobs 64 --time-budget 2h
    """
    from kvgate.campaigns.folder import RunFolder
    from kvgate.campaigns.plan import FuzzPlan
    from kvgate.gate.profiles import models_named

    seconds = None if time_budget is None else parse_duration(time_budget)
    shard_seconds_max = parse_duration(shard_timeout, "--shard-timeout")
    folder = RunFolder(resume or out)
    if level is LevelChoice.PAIR:
        raise UsageError("two nodes are run in one process: kvgate check --level pair --time-budget 8h")
    if resume is None:
        plan = FuzzPlan(
            sut=sut,
            models=tuple(map(_from_anywhere, model or [])),
            level=level.value,
            preloads=tuple(str(path.resolve()) for path in preload or ()),
            seed=seed,
            shards=shards,
            shard_operations=shard_operations,
            twice_percent=twice,
            monitors_only=monitors_only,
        )
        models_named(plan.models)
        folder.create(plan)
    else:
        refuse_foreign_code(folder, sut, preload or ())
    try:
        verdict, run = _session(folder, jobs, ray, seconds, shard_seconds_max)
    except (UsageError, SystemUnavailableError):
        if resume is None:
            folder.discard()
        raise
    exit_code = _publish(verdict, folder, output)
    _say_what_is_left(verdict, folder, run)
    raise typer.Exit(exit_code)


def refuse_foreign_code(folder: RunFolder, sut: str, preloads: Sequence[Path]) -> None:
    """A folder is not trusted to name code that is run: a command that continues it must name that code again.

    Raises:
        UsageError: its plan names a system or a preload that the command does not.
    """
    given = {f"--sut {sut}", *(f"--preload {path.resolve()}" for path in preloads)}
    foreign = [words for words in _foreign_code(folder.plan()) if words not in given]
    if foreign:
        raise UsageError(
            f"--resume {folder.path}: its plan runs code that does not come with kvgate; if that is what you want, say "
            f"so: {' '.join(foreign)}"
        )


def _foreign_code(plan: FuzzPlan) -> list[str]:
    """The options that name the code of a plan which does not come with kvgate."""
    from kvgate.adapters.registry import is_built_in

    system = [] if is_built_in(plan.sut) else [f"--sut {plan.sut}"]
    return system + [f"--preload {path}" for path in plan.preloads]


def _from_anywhere(model: str) -> str:
    """The name of a model, or of its file as it is called from any directory."""
    return str(Path(model).resolve()) if model.endswith(".json") else model


def _session(
    folder: RunFolder, jobs: int | None, ray: str | None, seconds: float | None, shard_seconds_max: float
) -> tuple[Verdict, Run]:
    """Continue a run; returns what all its shards say by now, and this session with the shards that failed."""
    from kvgate.campaigns.merging import merge
    from kvgate.campaigns.run import Run
    from kvgate.kernel.progress import progress_line

    plan = folder.plan()
    # Ray reports dead workers on standard output, which is for the verdict.
    with folder.held(), redirect_stdout(sys.stderr), progress_line() as line:
        merged = merge(folder.results())
        line.say("starting workers …")
        workers = _workers(plan, jobs, ray)
        try:
            say = line.say
            run = Run(
                plan,
                folder,
                merged,
                workers,
                seconds,
                lambda seen: say(_format_progress(seen, plan)),
                shard_seconds_max,
            )
            ended = run.run()
        finally:
            workers.stop()
        return merged.verdict(plan, folder.corpus, ended), run


def _workers(plan: FuzzPlan, jobs: int | None, ray: str | None) -> Workers:
    from kvgate.campaigns.plan import manifest

    if ray is not None:
        from kvgate.campaigns.on_ray import RayWorkers

        return RayWorkers(manifest(plan), jobs, ray)
    from kvgate.campaigns.workers import LocalWorkers

    return LocalWorkers(manifest(plan), jobs or os.cpu_count() or 1)


def _format_progress(progress: Progress, plan: FuzzPlan) -> str:
    """One line: how far it is."""
    from kvgate.kernel.text import counted

    of = "" if plan.shards is None else f" of {plan.shards:,}"
    lost = f", {counted(progress.lost, 'worker')} lost" if progress.lost else ""
    if not progress.shards:
        return f"workers load the system and run their first shards{lost} …"
    return (
        f"{progress.shards:,}{of} shards, {progress.operations:,} operations, "
        f"{progress.operations_per_second:,.0f} a second, {counted(progress.found, 'divergence')}{lost}"
    )


def _publish(verdict: Verdict, folder: RunFolder, output: Format) -> int:
    """Print the verdict, and write all reports next to the shards; each thing found gets a page if one can be made."""
    from kvgate.adapters.registry import load_system
    from kvgate.cli.check import publish
    from kvgate.gate.level import LevelChoice
    from kvgate.levels.registry import not_tested
    from kvgate.report.page.recording import once_more

    plan = folder.plan()
    record = None
    if verdict.found:
        record = once_more(load_system(plan.sut, [Path(path) for path in plan.preloads]), verdict.detectors)
    return publish(
        verdict, folder.path / "report", output, not_tested(LevelChoice(plan.level), plan.sut), record, "fuzz"
    )


def _say_what_is_left(verdict: Verdict, folder: RunFolder, run: Run) -> None:
    for shard, fault in sorted(run.faults.items()):
        report_fault(fault, folder.path / "report", f"fault-{shard}")
    for shard, why in sorted(run.given_up.items()):
        typer.echo(f"kvgate: shard {shard} ended its worker three times: {why}", err=True)
    if verdict.ended != "completed":
        words = " ".join(["kvgate fuzz --resume", str(folder.path), *_foreign_code(folder.plan())])
        typer.echo(f"kvgate: to continue: {words}", err=True)
