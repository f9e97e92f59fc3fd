"""``kvgate simulate``: requests against a server that computes nothing: what hits, under which policy."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvgate.cli.options import Seed, TableOutput
from kvgate.kernel.errors import UsageError
from kvgate.kernel.output import TableFormat

if TYPE_CHECKING:
    from kvgate.simulation.policy import Policy, Serving
    from kvgate.simulation.result import Result
    from kvgate.simulation.sweep import Job
    from kvgate.simulation.workload import Workload
    from kvreference.geometry import Geometry

Asked = Annotated[
    list[str] | None,
    typer.Argument(metavar="WORKLOAD", help="What is asked: NAME or NAME:key=value,key=value (see --list)."),
]
Policies = Annotated[
    list[str] | None,
    typer.Option(
        "--policy",
        metavar="WORDS",
        help="dense, masked, retention=N, junctions, scratch, pinned[=B], partial[=U], min=N, joined by +. May be "
        "given several times.",
    ),
]
Arms = Annotated[
    list[str] | None,
    typer.Option("--arm", metavar="NAME", help="Who serves (see --list). May be given several times."),
]
Accepted = Annotated[
    float, typer.Option("--acceptance", metavar="P", min=0.0, max=1.0, help="How probable it is that a draft holds.")
]
Jobs = Annotated[
    int | None,
    typer.Option(
        # The older name takes 0 for each core, too.
        "--jobs",
        "--processes",
        metavar="N",
        min=0,
        help="How many processes work side by side. Default: one for each core.",
    ),
]
WORKLOAD = "repeat-rate"
MODEL = "dsv4-flash-ascend-128"
BLOCKS = 4000


def simulate(
    workload: Asked = None,
    model: Annotated[str, typer.Option("--model", metavar="NAME|FILE", help="A model preset, or a JSON file.")] = MODEL,
    blocks: Annotated[
        list[int] | None,
        typer.Option("--blocks", metavar="N", min=2, help="Blocks in the pool. May be given several times."),
    ] = None,
    policy: Policies = None,
    arm: Arms = None,
    tokens_max: Annotated[int, typer.Option("--max-model-len", metavar="N", min=2, help="As vLLM's.")] = 135_000,
    chunk_tokens: Annotated[
        int, typer.Option("--max-num-batched-tokens", metavar="N", min=1, help="As vLLM's.")
    ] = 8192,
    running_max: Annotated[int, typer.Option("--max-num-seqs", metavar="N", min=1, help="As vLLM's.")] = 256,
    drafts: Annotated[
        int, typer.Option("--drafts", metavar="N", min=0, help="Draft tokens behind each sampled one.")
    ] = 0,
    acceptance: Accepted = 0.6,
    seed: Seed = 0,
    jobs: Jobs = None,
    plots: Annotated[Path | None, typer.Option("--plot", metavar="DIR", help="Write plots (SVG) to DIR.")] = None,
    list_only: Annotated[bool, typer.Option("--list", help="Say what there is, and simulate nothing.")] = False,
    output: TableOutput = TableFormat.TEXT,
) -> None:
    """Simulate serving, request by request, and say what hits.

    Every combination of workload, pool, policy and arm is one simulation. The arms reference, ranges, stock and
    retention must agree on every request; a hit rate counts only if every block that was read held what it should.

    Exit 0 if so, 1 if a read was unsound or arms differ, 130 if interrupted (what is done is printed).

    Examples:

      kvgate simulate repeat-rate:lanes=8,input_tokens=32768 --policy dense --policy masked+scratch

      kvgate simulate replays:others=2 --model dsv4-flash --blocks 71833 --arm ranges --max-model-len 1048576

      kvgate simulate agents --model dsv4-flash --blocks 2000 --blocks 8000 --arm reference --arm retention --plot out
    """
    from kvgate.kernel.progress import progress_line
    from kvgate.report.formats import echo
    from kvgate.report.simulations import report_of
    from kvgate.simulation.catalogue import workload_of
    from kvgate.simulation.policy import Serving, policy_of
    from kvgate.simulation.sweep import run_all

    if list_only:
        _list(output)
        return
    workloads = [workload_of(each) for each in workload or (WORKLOAD,)]
    policies = [policy_of(each) for each in policy or ("dense",)]
    servings = [
        Serving(model, _geometry(model), each, tokens_max, chunk_tokens, running_max, drafts, acceptance)
        for each in blocks or (BLOCKS,)
    ]
    if plots is not None:
        _make_folder(plots)
    todo = _jobs(list(product(workloads, servings, policies)), arm or ("reference",), seed)
    results: dict[int, Result] = {}
    ended = "completed"
    with progress_line() as line:
        try:
            run_all(todo, jobs or os.cpu_count() or 1, results.__setitem__, line.say)
        except KeyboardInterrupt:
            ended = "interrupted"
    done = [results[place] for place in sorted(results)]
    if plots is not None and done:
        from kvgate.simulation.plots import draw

        for path in draw(done, plots):
            typer.echo(f"wrote {path}", err=True)
    report = report_of(done, ended)
    echo(report, output)
    raise typer.Exit(report.exit_code)


def _jobs(combinations: Sequence[tuple[Workload, Serving, Policy]], arms: Sequence[str], seed: int) -> list[Job]:
    """Every arm on every setting; whatever does not fit is refused before anything is run."""
    from kvgate.simulation.arm import ARMS, Setting
    from kvgate.simulation.sweep import Job

    for name in arms:
        if name not in ARMS:
            raise UsageError(f"no arm {name!r}: there are {', '.join(ARMS)}")
    settings = [Setting(*each, seed) for each in combinations]
    for setting in settings:
        setting.check()
    return [Job(name, setting) for setting in settings for name in arms]


def _geometry(name: str) -> Geometry:
    """The groups of a model; what its cache keeps is said with a policy, not with the model's name."""
    from kvgate.kernel.models import load
    from kvgate.kernel.variants import Features

    model = load(name)
    if model.features != Features():
        raise UsageError(f"model {name!r}: say with --policy what stays in the cache, not with the model's name")
    return model.geometry


def _list(output: TableFormat) -> None:
    """The workloads, and the arms that can serve them."""
    from kvgate.report.document import Report, Section, columns
    from kvgate.report.formats import echo
    from kvgate.simulation.arm import ARMS
    from kvgate.simulation.catalogue import WORKLOADS, options

    workloads = tuple((name, about, options(name)) for name, (_, about) in WORKLOADS.items())
    arms = tuple((name, about) for name, (_, about) in ARMS.items())
    sections = (
        Section("Workloads:", columns("name", "about", "options"), workloads),
        Section("Arms:", columns("name", "about"), arms),
    )
    echo(Report("simulate --list", tested=sections), output)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder}: cannot be written to: {error.strerror}") from error
