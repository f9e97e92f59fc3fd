"""``kvgate check``: lockstep of a system under test with the reference."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvgate.cli.fault import REPORT_DEFAULT, report_fault
from kvgate.cli.options import (
    Diff,
    Jobs,
    Models,
    MonitorsOnly,
    OutputFormat,
    Preloads,
    ProfileName,
    ReportDirectory,
    Seed,
    Sut,
    VllmPath,
)
from kvgate.cli.served import ServingFlags, asking, flags_of, models_on, sources_of
from kvgate.gate.level import LevelChoice
from kvgate.kernel.errors import UsageError
from kvgate.kernel.output import Format
from kvgate.kernel.text import counted

if TYPE_CHECKING:
    from kvgate.adapters.registry import Loaded
    from kvgate.gate.campaign import Outcome, TrialSource
    from kvgate.gate.fault import GateFaultError
    from kvgate.gate.verdict import Found, Verdict
    from kvgate.levels.registry import Preparation
    from kvgate.report.page.recording import Record


def check(
    serving: ServingFlags = None,
    sut: Sut = "installed",
    preload: Preloads = None,
    model: Models = None,
    level: Annotated[
        LevelChoice | None,
        typer.Option(
            "--level",
            help="What is run: the block manager alone, a scheduler that drives it, or one after the other; or a pair, "
            "a scheduler on a prefill node and one on a decode node; or a scheduler with its worker, or with a KV "
            "connector of vLLM's own and its tier on the host. Default: blocks; with --profile precommit both, "
            "where a scheduler comes with the system.",
        ),
    ] = None,
    profile: Annotated[ProfileName, typer.Option("--profile", help="How much is run.")] = ProfileName.QUICK,
    seed: Seed = 0,
    exitfirst: Annotated[
        bool, typer.Option("-x", "--exitfirst", help="Stop at the first divergence, once its case is small.")
    ] = False,
    time_budget: Annotated[
        str | None, typer.Option("--time-budget", metavar="TIME", help="Stop after, for example, 60s, 5m or 2h.")
    ] = None,
    monitors_only: MonitorsOnly = False,
    jobs: Jobs = None,
    corpus: Annotated[
        Path | None,
        typer.Option(
            "--corpus",
            metavar="DIR",
            help="Replay the cases in DIR, vary them, and keep those that reach branches of vLLM's block manager and "
            "scheduler which none has reached. Works in one process.",
        ),
    ] = None,
    connector: Annotated[
        str | None,
        typer.Option(
            "--connector",
            metavar="NAME",
            help="With --level tiers, the KV connector: offloading, simple (SimpleCPUOffloadConnector), multi (a "
            "MultiConnector with both), tiering (offloading with a tier of files below the host), nixl (a "
            "MultiConnector of NixlConnector and offloading), lmcache or ascend-store, or MODULE:CLASS for one of "
            "your own. Default: offloading.",
        ),
    ] = None,
    vllm_path: VllmPath = None,
    base: Annotated[
        str | None,
        typer.Option(
            "--base",
            metavar="REV",
            help="The revision of that checkout since which lines count as changed. Default: what differs from the "
            "release.",
        ),
    ] = None,
    diff: Diff = None,
    report: ReportDirectory = None,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Run a system in lockstep with the reference, and say whether they agree.

    Exit 0 if nothing undeclared was found, 1 if something was, 3 if the system is not available. If nothing was found
    by then, 5 if kvgate itself failed, and 130 if interrupted.

    Examples:

      kvgate check

      kvgate check --model gemma-hybrid+eagle --profile ci

      kvgate check --level scheduler --model gpt-oss-hybrid+eagle

      kvgate check --model gemma-3-12b/config.json -- --speculative-config '{"method": "mtp"}'

      kvgate check --level pair --time-budget 60s

      kvgate check --preload my_patch.py --time-budget 60s

      kvgate check --preload my_patch.py --profile precommit

      kvgate check --vllm-path ~/vllm --base main -x

      kvgate check --sut my_package.adapter:build --report out

      kvgate check --level tiers --sut native@0.33.0 --connector simple

      kvgate check --level scheduler --corpus reached --time-budget 10m
    """
    from contextlib import nullcontext, suppress
    from importlib.util import find_spec

    from attrs import evolve

    from kvgate.adapters.registry import imports_vllm, load_system
    from kvgate.adapters.working_tree import Changes, functions_of, tree_of
    from kvgate.campaigns.case_workers import side_by_side
    from kvgate.campaigns.patch_coverage import branches_of, coverage_of
    from kvgate.campaigns.reaching import reaching
    from kvgate.cli.writable import make_writable
    from kvgate.gate.fault import fault_of
    from kvgate.kernel.extras import require
    from kvgate.kernel.progress import progress_line
    from kvgate.levels.registry import (
        checkers_of,
        default_level,
        default_models,
        not_tested,
        prepare,
        together,
        unbounded,
    )
    from kvgate.levels.tiers import level as tiers
    from kvgate.report.page.recording import once_more

    seconds = None if time_budget is None else parse_duration(time_budget)
    if connector is not None and level is not LevelChoice.TIERS:
        raise UsageError("--connector is for --level tiers")
    flags = flags_of(serving)
    models = models_on(sut, model or (), flags)
    tree = tree_of(vllm_path, diff, base)
    if report is not None:
        make_writable(report, "--report")
    if corpus is not None:
        require("coverage", "kvgate check --corpus", "gate")
        make_writable(corpus, "--corpus")
    if sources_of(models, flags):
        # Last, since it takes long, and a wrong option is to be named at once.
        models = models_on(sut, model or (), flags, asking(sut, bool(preload or tree)))
    with progress_line() as line:
        compared = f", and comparing {vllm_path} with it" if vllm_path is not None and base is None else ""
        line.say(f"loading {sut}{compared} …", at_once=imports_vllm(sut))
        patch = Changes()
        with suppress(UsageError):
            # What is wrong with a file is said where it is loaded.
            patch = functions_of(path for path in preload or () if path.is_file())
        can_measure = corpus is None and find_spec("coverage") is not None
        measure = branches_of(patch) if patch and can_measure else None
        with measure.measured() if measure else nullcontext():
            system = load_system(sut, preload or (), line.say, tree.over if tree else None)
        # What installs a patch runs while it is loaded.
        ran = measure.take() if measure else frozenset()
        if tree is not None:
            patch = tree.changes
            measure = branches_of(patch) if patch and can_measure else None
        level = level or default_level(profile.value, system)
        if not model:
            models = default_models(system, profile.value)
            models = tiers.by_default(models, system.name, connector) if level == "tiers" else models
        preparations = prepare(
            level, system, models, profile.value, seed=seed, seconds=seconds, monitors_only=monitors_only
        )
        if connector is not None:
            preparations = tuple(tiers.with_connector(each, connector) for each in preparations)
        preparations = tuple(
            evolve(each, trials=evolve(each.trials, changes=patch, measure=measure)) for each in preparations
        )
        if exitfirst:
            preparations = tuple(evolve(each, plan=evolve(each.plan, kinds_max=1)) for each in preparations)
        if corpus is not None:
            # Stored and varied cases are others than those in which findings were counted.
            uncounted = [evolve(each.plan, certain=lambda _cases: {}) for each in preparations]
            preparations = tuple(map(lambda each, plan: evolve(each, plan=plan), preparations, uncounted))

    def trials_of(each: Preparation) -> AbstractContextManager[TrialSource]:
        if corpus is not None:
            return reaching(each.trials, each.plan, corpus, system)
        return side_by_side(each.trials, each.plan, jobs or os.cpu_count() or 1)

    checkers = checkers_of(preparations)
    begun = evolve(
        begun_with(system, profile.value, seed, checkers, preload or ()),
        over=tree.options if tree else (),
        models=sources_of(models, flags),
    )

    def first(found: Found) -> None:
        """The whole report comes at the end, which may be far."""
        from kvgate.gate.story import tell

        if output is Format.TEXT and not exitfirst:
            trace = (report or REPORT_DEFAULT) / "divergence-1.jsonl"
            path: Path | None = None
            # Why it cannot be written is said at the end, when all are.
            with suppress(OSError):
                store(found, begun, trace)
                path = trace
            story = tell(found, system=begun.system, version=begun.version, reproducer=path, changed=begun.changed)
            typer.echo(f"{story}\n", err=True)

    outcomes, failed = _run(preparations, trials_of, first)
    outcome = together(preparations, outcomes)
    verdict = evolve(outcome.of(begun), patch=coverage_of(patch, outcome.ran | ran) if measure else None)
    left_out = not_tested(level, system.name)
    if verdict.declared:
        left_out += unbounded(preparations)
    if (preload or tree) and measure is None:
        why = "--corpus measures vLLM" if corpus is not None else "coverage is not installed"
        left_out += (f"Which lines of the patch ran: {why if patch else 'no line inside a def is new'}.",)
    code = publish(verdict, report, output, left_out, once_more(system, checkers))
    if failed is not None:
        report_fault(fault_of(failed, system.name, system.version, checkers), report)
    raise typer.Exit(code)


def _run(
    preparations: Sequence[Preparation],
    trials_of: Callable[[Preparation], AbstractContextManager[TrialSource]],
    first: Callable[[Found], None],
) -> tuple[list[Outcome], GateFaultError | None]:
    """One campaign after the other, until the user interrupts, or the gate fails."""
    from kvgate.gate.campaign import Campaign, Progress
    from kvgate.gate.fault import GateFaultError
    from kvgate.gate.verdict import FAILED
    from kvgate.kernel.progress import progress_line

    outcomes: list[Outcome] = []
    for each in preparations:
        # If there are workers, they begin before the progress line, which is a thread.
        with trials_of(each) as trials, progress_line() as line:

            def say(progress: Progress, of: int = each.plan.operations, tell: Callable[[str], None] = line.say) -> None:
                done = f"{progress.operations:,} of {of:,} operations, {progress.cases:,} cases"
                tell(f"{done}, {counted(progress.found, 'divergence')}")

            campaign = Campaign(trials, each.plan, each.trials.diagnosed)
            try:
                outcomes.append(campaign.run(say, first))
            except GateFaultError as error:
                return [*outcomes, campaign.outcome(FAILED)], error
        if outcomes[-1].ended == "interrupted" or (outcomes[-1].found and each.plan.kinds_max == 1):
            break
    return outcomes, None


def begun_with(
    system: Loaded, profile: str, seed: int, detectors: tuple[str, ...], preloads: Sequence[Path] = ()
) -> Verdict:
    """The verdict of a run before anything is found, with all that is needed to run it again."""
    from kvgate.gate.verdict import Verdict

    return Verdict(system.name, system.version, profile, seed, detectors, preloads=tuple(map(str, preloads)))


def publish(
    verdict: Verdict,
    directory: Path | None,
    format_name: Format,
    left_out: Sequence[str],
    record: Record | None = None,
    command: str = "check",
) -> int:
    """Print the verdict, write a reproducer for each divergence, and all reports where a directory was asked for.

    Returns the exit code.

    ``record`` performs once more what was found, for its page; without it no page is written.

    Raises:
        UsageError: a file could not be written and nothing was found. A divergence counts for more than a file: then
            this is only said.
    """
    from kvgate.report import formats
    from kvgate.report.campaign import report_of
    from kvgate.report.page.pages import write_pages

    reproducers: dict[int, Path] = {}
    pages: Mapping[int, Path] = {}
    failure: OSError | None = None
    try:
        for index, found in enumerate(verdict.found):
            path = (directory or REPORT_DEFAULT) / f"divergence-{index + 1}.jsonl"
            store(found, verdict, path)
            reproducers[index] = path
        if directory is not None:
            written = write_pages(
                verdict, directory, record, not_tested=left_out, reproducers=reproducers, files=tuple(formats.FILES)
            )
            pages = written.of
            for sentence in written.missing:
                _complain(sentence)
            formats.write(report_of(verdict, left_out, reproducers, pages, command), directory)
    except OSError as error:
        failure = error
    report = report_of(verdict, left_out, reproducers, pages, command)
    formats.echo(report, format_name)
    if failure is not None:
        message = f"{failure.filename}: cannot be written: {failure.strerror}"
        if verdict.agrees:
            raise UsageError(message) from failure
        _complain(message)
    return report.exit_code


def _complain(message: str) -> None:
    typer.echo(f"kvgate: {message}", err=True)


def store(found: Found, verdict: Verdict, path: Path) -> None:
    """Write the trace of what was found, with the operations that lead to what follows from it."""
    from attrs import evolve

    from kvgate.gate.trace_codec import trace_of, write

    then = () if found.diagnosis is None else found.diagnosis.then
    case = evolve(found.replayable, operations=(*found.replayable.operations, *then))
    write(trace_of(case, found.divergence, verdict.system, verdict.version, verdict.detectors), path)


def parse_duration(text: str, option: str = "--time-budget") -> float:
    """Seconds from ``90``, ``90s``, ``5m`` or ``2h``.

    Raises:
        UsageError: none of these, or nothing at all.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m|h)?", text)
    if match is None or float(match[1]) == 0:
        raise UsageError(f"{option} {text}: not a time; write, for example, 60s, 5m or 2h")
    return float(match[1]) * {None: 1, "s": 1, "m": 60, "h": 3600}[match[2]]
