"""``kvgate replay``: run a stored case again."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from kvgate.cli.options import Diff, OutputFormat, OwnConnector, Preloads, VllmPath
from kvgate.kernel.errors import UsageError
from kvgate.kernel.output import Format

if TYPE_CHECKING:
    from kvgate.adapters.working_tree import Tree
    from kvgate.gate.trace_codec import Line, Trace
    from kvgate.gate.verdict import Verdict


def replay(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="A trace that kvgate wrote, of any level; or a recording, or a folder with some."
        ),
    ],
    sut: Annotated[
        str | None, typer.Option("--sut", metavar="NAME", help="Another system under test than the trace names.")
    ] = None,
    connector: OwnConnector = None,
    preload: Preloads = None,
    vllm_path: VllmPath = None,
    diff: Diff = None,
    as_pytest: Annotated[bool, typer.Option("--as-pytest", help="Print a plain test that does the same.")] = False,
    as_vllm_test: Annotated[
        bool,
        typer.Option("--as-vllm-test", help="Print a test that imports vLLM and pytest alone, to submit to vLLM."),
    ] = False,
    html: Annotated[
        Path | None,
        typer.Option(
            "--html", metavar="FILE.html", help="Write what happened, step by step, as a page for any browser."
        ),
    ] = None,
    chrome: Annotated[
        Path | None,
        typer.Option("--chrome", metavar="FILE.json", help="Write trace events, for chrome://tracing or Perfetto."),
    ] = None,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Run a stored case again, and say whether it still diverges; or check what a shadow recorded.

    Exit 0 if it does not, 1 if it does, 3 if the system is not here, 5 if kvgate itself failed.

    Examples:

      kvgate replay kvgate-report/divergence-1.jsonl

      kvgate replay divergence-1.jsonl --preload my_fix.py

      kvgate replay divergence-1.jsonl --connector my_package.connector:Connector

      kvgate replay divergence-1.jsonl --as-pytest > test_regression.py

      kvgate replay divergence-1.jsonl --preload my_patch.py --as-vllm-test > test_upstream.py

      kvgate replay divergence-1.jsonl --html divergence-1.html --chrome divergence-1.json

      kvgate replay kvgate-shadow
    """
    from kvgate.adapters.working_tree import tree_of
    from kvgate.report.campaign import report_of
    from kvgate.report.formats import echo
    from kvgate.shadow.recheck import is_recorded

    if is_recorded(file):
        _check_recording(
            file, output, any((sut, connector, preload, vllm_path, diff, as_pytest, as_vllm_test, html, chrome))
        )
    _see_what_is_asked(as_pytest or as_vllm_test, html, chrome, output)
    tree = tree_of(vllm_path, diff)
    if connector is not None and (as_pytest or as_vllm_test):
        raise UsageError("--as-pytest and --as-vllm-test take no --connector: the test would not have it")
    if as_pytest and (as_vllm_test or tree is not None):
        raise UsageError("--as-pytest takes neither --as-vllm-test nor a working tree: the test would not have it")
    if as_vllm_test:
        _print_vllm_test(file, sut, preload or (), tree)
        return
    verdict = _replay(file, sut, preload or (), as_pytest, tree, connector)
    if verdict is None:
        return
    failure: OSError | None = None
    if html is not None or chrome is not None:
        from kvgate.report.page.pages import draw

        try:
            draw(verdict, file, html, chrome)
        except OSError as error:
            failure = error
    reproducers = dict.fromkeys(range(len(verdict.found)), file)
    report = report_of(verdict, reproducers=reproducers, command="replay")
    echo(report, output)
    if failure is not None:
        message = f"{failure.filename}: cannot be written: {failure.strerror}"
        if not verdict.found:
            raise UsageError(message)
        # A divergence counts for more than a file.
        typer.echo(f"kvgate: {message}", err=True)
    raise typer.Exit(report.exit_code)


def _see_what_is_asked(as_pytest: bool, html: Path | None, chrome: Path | None, output: Format) -> None:
    """Reject options that would be ignored, or lost at the end, before anything runs."""
    from kvgate.cli.writable import see_writable

    if as_pytest and (html or chrome or output is not Format.TEXT):
        raise UsageError("--as-pytest and --as-vllm-test print a test: they take no --format, --html or --chrome")
    for path, option in ((html, "--html"), (chrome, "--chrome")):
        if path is not None:
            see_writable(path, option)


def _check_recording(file: Path, output: Format, has_options: bool) -> NoReturn:
    """Let the reference follow what a live engine did, and say whether it agrees."""
    from kvgate.kernel.progress import progress_line
    from kvgate.report.formats import echo
    from kvgate.report.recordings import report_of
    from kvgate.shadow.recheck import recheck_recordings

    if has_options:
        raise UsageError(f"{file}: a recording is checked as it is: it takes no option but --format")
    if output not in (Format.TEXT, Format.JSON):
        raise UsageError(f"a recording is reported as text or json, not as {output.value}")
    with progress_line() as line:
        report = report_of(recheck_recordings(file, line.say))
    echo(report, output)
    raise typer.Exit(report.exit_code)


def named(file: Path, sut: str | None, system: str) -> str:
    """The system to run: a trace is not trusted to name code of one's own."""
    from kvgate.adapters.registry import is_built_in

    if sut is None and not is_built_in(system):
        raise UsageError(f"{file}: written for the system {system!r}; to run that code, say so with --sut {system}")
    return sut or system


def _print_vllm_test(file: Path, sut: str | None, preloads: Sequence[Path], tree: Tree | None) -> None:
    """Run a stored case once more, where it diverges, and print what was called as a test."""
    from kvgate.adapters.registry import imports_vllm, load_system
    from kvgate.gate.vllm_test import vllm_test
    from kvgate.kernel.progress import progress_line
    from kvgate.levels.registry import read

    trace = read(file)
    name = named(file, sut, trace.header.system)
    with progress_line() as line:
        line.say(f"loading {name} …", at_once=imports_vllm(name))
        system = load_system(name, preloads, line.say, tree.over if tree else None)
        # Monitors read a block manager from within.
        source = vllm_test(trace.level.bench(system, ("lockstep",)), trace.case)
    typer.echo(source, nl=False)


def _replay(
    file: Path,
    sut: str | None,
    preloads: Sequence[Path],
    as_pytest: bool,
    tree: Tree | None = None,
    connector: str | None = None,
) -> Verdict | None:
    """Run a stored case of any level; or print it as a test, without a verdict."""
    from attrs import evolve

    from kvgate.adapters.registry import imports_vllm, load_system
    from kvgate.campaigns.twice import TWICE, again, in_one_of
    from kvgate.gate.case_runner import Trials, run_case
    from kvgate.gate.verdict import Tally, Verdict
    from kvgate.kernel.progress import progress_line
    from kvgate.kernel.text import printable
    from kvgate.levels.registry import read
    from kvgate.levels.tiers.level import see_connector, take_connector

    trace = read(file)
    level, header, case = trace.level, trace.header, trace.case
    name = named(file, sut, header.system)
    if as_pytest:
        from kvgate.gate.regression_test import regression_test

        typer.echo(regression_test(trace, name, preloads), nl=False)
        return None
    changed = where_the_reference_changed(trace) if level.trace_annotated else None
    if changed is not None:
        message = f"the reference has changed since this trace was written: {changed}"
        typer.echo(f"kvgate: {printable(message, 2000)}", err=True)
    # The seed of a case is not that of a campaign.
    seed = header.seed if isinstance(header.seed, int) else 0
    with progress_line() as line:
        line.say(f"loading {name} …", at_once=imports_vllm(name))
        see_connector(file, case.stage, connector)
        system = load_system(name, preloads, line.say, tree.over if tree else None)
        take_connector(case.stage, connector)
        bench = level.bench(system, header.detectors)
        run = run_case(bench, case)
        trials, rest = Trials(bench, changes=tree.changes if tree else None), case.operations[run.performed :]
        found = [
            each if each.finding is not None else trials.diagnosed(evolve(each, rest=rest)) for each in run.found(seed)
        ]
        if header.violates is not None and header.violates.detector == TWICE:
            found += in_one_of(lambda: again(bench, case, seed))
    return Verdict(
        system=name,
        version=system.version,
        profile="replay",
        seed=seed,
        detectors=header.detectors,
        tallies=(Tally(header.model, level.label(header.preset), 1, run.operations),),
        # A replay shows the story of what ends a run, known or not, with the finding that it belongs to.
        found=tuple(found),
        declared=tuple(run.known(seed)),
        preloads=tuple(map(str, preloads)),
        instead=name != header.system,
        over=tree.options if tree else (),
    )


def where_the_reference_changed(trace: Trace) -> str | None:
    """The first operation that the reference of today does not answer as it did when the trace was written."""
    from kvgate.adapters.release_variants import choices_of_release, release_of
    from kvgate.findings.modelled import reference_named
    from kvgate.gate.trace_codec import annotated
    from kvreference.manager import Manager

    header = trace.header
    # Without the findings of its release too: older traces were written so.
    choices = choices_of_release(release_of(header.system))
    references = reference_named(header.system), partial(Manager, choices=choices)
    changes = [_changed(trace, list(annotated(header.settings, trace.operations, each))) for each in references]
    return changes[0] if all(changes) else None


def _changed(trace: Trace, today: Sequence[Line]) -> str | None:
    if len(today) != len(trace.lines):
        return f"{len(trace.lines) - len(today)} of its operations are not legal any more"
    for number, (then, now) in enumerate(zip(trace.lines, today, strict=True)):
        if then.digest and then.digest != now.digest:
            return f"operation {number}: then {then.answer}; now {now.answer}"
    return None
