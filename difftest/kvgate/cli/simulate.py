"""``kvgate simulate``: requests against a server that computes nothing: what hits, under which policy."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from attrs import evolve

from kvgate.cli.cpu_tier import CpuTier, blocks_of
from kvgate.cli.explain import version_of
from kvgate.cli.options import Seed, TableOutput
from kvgate.cli.served import KEPT, models_of
from kvgate.kernel.errors import UsageError
from kvgate.kernel.output import TableFormat

if TYPE_CHECKING:
    from kvgate.explain.serving import Serving as Served
    from kvgate.simulation.policy import Policy, Serving
    from kvgate.simulation.result import Result
    from kvgate.simulation.sweep import Job
    from kvgate.simulation.workload import Workload
    from kvreference.geometry import Geometry

Asked = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="WORKLOAD... -- FLAGS",
        help="What is asked: NAME or NAME:key=value,key=value (see --list). With a config.json: the flags it is served "
        "with after --, as kvgate explain takes them.",
    ),
]
Policies = Annotated[
    list[str] | None,
    typer.Option(
        "--policy",
        metavar="WORDS",
        help="dense, masked, retention=N, junctions, interval-only, scratch, pinned[=B], partial[=U], min=N, joined by "
        "+. May be given several times. Default: what the release does if nothing is set.",
    ),
]
Arms = Annotated[
    list[str] | None,
    typer.Option("--arm", metavar="NAME", help="Who serves (see --list). May be given several times."),
]
Version = Annotated[
    str | None,
    typer.Option("--vllm-version", metavar="V", help="Of vLLM, for the arm release. Default: what is installed."),
]
Ideal = Annotated[
    bool,
    typer.Option(
        "--ideal",
        help="Serve with the reference too, and say where the release differs from it, and by which finding.",
    ),
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
TOKENS_MAX, CHUNK_TOKENS, RUNNING_MAX = 135_000, 8192, 256


def simulate(
    workload: Asked = None,
    model: Annotated[
        str, typer.Option("--model", metavar="NAME|FILE", help="A preset, a JSON file of groups, or a config.json.")
    ] = MODEL,
    blocks: Annotated[
        list[int] | None,
        typer.Option("--blocks", metavar="N", min=2, help="Blocks in the pool. May be given several times."),
    ] = None,
    policy: Policies = None,
    arm: Arms = None,
    version: Version = None,
    ideal: Ideal = False,
    tokens_max: Annotated[
        int | None,
        typer.Option("--max-model-len", metavar="N", min=2, help=f"As vLLM's. Default: {TOKENS_MAX}."),
    ] = None,
    chunk_tokens: Annotated[
        int | None,
        typer.Option("--max-num-batched-tokens", metavar="N", min=1, help=f"As vLLM's. Default: {CHUNK_TOKENS}."),
    ] = None,
    running_max: Annotated[
        int | None, typer.Option("--max-num-seqs", metavar="N", min=1, help=f"As vLLM's. Default: {RUNNING_MAX}.")
    ] = None,
    drafts: Annotated[
        int | None,
        typer.Option(
            "--drafts",
            metavar="N",
            min=0,
            help="Draft tokens after each sampled one. Default: 1 for a model with a draft layer, 0 for others.",
        ),
    ] = None,
    acceptance: Accepted = 0.6,
    cpu_tier: CpuTier = None,
    seed: Seed = 0,
    jobs: Jobs = None,
    plots: Annotated[Path | None, typer.Option("--plot", metavar="DIR", help="Write plots (SVG) to DIR.")] = None,
    list_only: Annotated[bool, typer.Option("--list", help="Say what there is, and simulate nothing.")] = False,
    output: TableOutput = TableFormat.TEXT,
) -> None:
    """Simulate serving, request by request, and say what hits.

    Every combination of workload, pool, policy and arm is one simulation. By default the arm is the release: the
    reference with what that vLLM decides, and with its findings. Arms must agree on every request, unless a finding
    of the release explains the difference; a hit rate counts only if every block that was read held what it should.

    Exit 0 if so, 1 if a read was unsound or arms differ, 130 if interrupted (what is done is printed).

    Examples:

      kvgate simulate repeat-rate:lanes=8,input_tokens=32768 --policy dense --policy masked+scratch

      kvgate simulate replays:others=2 --model dsv4-flash --blocks 71833 --arm ranges --max-model-len 1048576

      kvgate simulate agents --model dsv4-flash --blocks 2000 --blocks 8000 --arm release --arm retention --plot out

      kvgate simulate agents --model gpt-oss-20b/config.json -- --max-num-seqs 64 --num-gpu-blocks-override 8000

      kvgate simulate agents --model mixed-blocks+eagle --vllm-version 0.33.0 --ideal

      kvgate simulate agents --model gpt-oss-20b/config.json --cpu-tier 64GiB -- --num-gpu-blocks-override 8000
    """
    from kvgate.kernel.progress import progress_line
    from kvgate.report.formats import echo
    from kvgate.report.simulations import report_of
    from kvgate.simulation.catalogue import workload_of
    from kvgate.simulation.policy import Serving, policy_of
    from kvgate.simulation.release import not_simulated
    from kvgate.simulation.sweep import run_all

    if list_only:
        _list(output)
        return
    words = list(workload or ())
    first_flag = next((place for place, word in enumerate(words) if word.startswith("-")), len(words))
    workloads = [workload_of(each, _workloads()) for each in words[:first_flag] or (WORKLOAD,)]
    geometry, served, is_read = _served(model, words[first_flag:], version)
    version = served.version
    policies = [policy_of(each) for each in policy or (_policy(served, geometry),)]
    if drafts is None:
        drafts = served.drafts if served.speculation else _drafts(geometry)
    if is_read and geometry.keeps_states and drafts != served.drafts:
        raise UsageError(
            f"--drafts {drafts}: the states of {model}, and so its blocks, are as large as its drafts make them: give "
            "--speculative-config, or --mtp, after --"
        )
    geometry = _drafting(geometry, drafts)
    limits = (
        tokens_max or served.max_model_len or TOKENS_MAX,
        chunk_tokens or served.max_num_batched_tokens or CHUNK_TOKENS,
        running_max or served.max_num_seqs,
    )
    pools = blocks or (served.num_gpu_blocks_override or BLOCKS,)
    tier = _tier(cpu_tier, model, served)
    servings = [Serving(model, geometry, each, *limits, drafts, acceptance, version, tier) for each in pools]
    arms = dict.fromkeys((*(arm or ("release",)), *(("reference",) if ideal else ())))
    if tier and not arms.keys() <= {"release", "reference"}:
        raise UsageError("--cpu-tier: the arms release and reference count what a tier adds, and no other")
    if plots is not None:
        _make_folder(plots)
    todo = _jobs(list(product(workloads, servings, policies)), tuple(arms), seed)
    released = [job.setting for job in todo if job.arm == "release"]
    notes = tuple(dict.fromkeys(note for setting in released for note in not_simulated(setting)))
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
    report = report_of(done, ended, notes)
    echo(report, output)
    raise typer.Exit(report.exit_code)


def _jobs(combinations: Sequence[tuple[Workload, Serving, Policy]], arms: Sequence[str], seed: int) -> list[Job]:
    """Every arm on every setting; a combination that does not fit is rejected before anything runs."""
    from kvgate.simulation.arm import ARMS, Setting
    from kvgate.simulation.release import served_by
    from kvgate.simulation.sweep import Job

    for name in arms:
        if name not in ARMS:
            raise UsageError(f"no arm {name!r}: there are {', '.join(ARMS)}")
    settings = [Setting(*each, seed) for each in combinations]
    for setting in settings:
        setting.check()
        if "release" in arms:
            served_by(setting)
    return [Job(name, setting) for setting in settings for name in arms]


def _served(name: str, flags: Sequence[str], version: str | None) -> tuple[Geometry, Served, bool]:
    """The groups of a model, the server, and whether they were read for that server; what its cache keeps is said with
    a policy, not with the model's name."""
    from kvgate.explain.serving import Serving as Served
    from kvgate.kernel.variants import Features

    ((model,), serving) = models_of((name,), flags, version, used=KEPT | _SIZES)
    if model.features != (serving.features(model.geometry) if serving else Features()):
        raise UsageError(f"model {name!r}: say with --policy what stays in the cache, not with the model's name")
    return model.geometry, serving or Served(version=version_of(version)), serving is not None


def _tier(size: str | None, model: str, served: Served) -> int:
    """How many blocks the tier has; 0 if there is none."""
    from kvgate.explain.load import load

    return 0 if size is None else blocks_of(size, load(model, served).block_bytes) or 0


def _policy(served: Served, geometry: Geometry) -> str:
    """What a release keeps if nothing else is set."""
    kept = served.features(geometry)
    interval = kept.retention_interval_tokens
    words = ["masked" if kept.masked else "dense" if interval is None else f"retention={interval}"]
    junctions, scratch = ["junctions"] * kept.keeps_junctions, ["scratch"] * kept.scratch_first
    return "+".join([*words, *junctions, *scratch])


def _drafting(geometry: Geometry, drafts: int) -> Geometry:
    """The groups as they are with that many drafts: there is a state for each. Served without speculation, no layer of
    the model drafts, and a hit asks for no look-ahead.

    Raises:
        UsageError: blocks of states are too short for so many.
    """
    from kvreference.geometry import Geometry

    try:
        groups = tuple(
            evolve(group, draft_states=drafts)
            if group.keeps_states
            else group
            if drafts
            else evolve(group, lookahead=False)
            for group in geometry.groups
        )
    except ValueError as error:
        raise UsageError(f"--drafts {drafts}: {error}") from error
    return Geometry(groups, geometry.hashed_ahead_tokens if drafts else 0)


_SIZES = frozenset({"max_model_len", "max_num_batched_tokens", "max_num_seqs", "num_gpu_blocks_override"})
"""Further settings that ``simulate`` takes from a server's flags, unless its own options give them."""


def _drafts(geometry: Geometry) -> int:
    """One, where a draft layer is, and states are kept for it."""
    states = min((group.draft_states for group in geometry.groups if group.keeps_states), default=1)
    return min(1, states) if geometry.lookahead_tokens else 0


def _workloads() -> Mapping[str, tuple[str, str]]:
    """Those of the simulation, and what a shadow recorded."""
    from kvgate.simulation.catalogue import WORKLOADS

    recorded = "kvgate.campaigns.recorded_workload:recorded"
    return {**WORKLOADS, "recording": (recorded, "what kvgate record saw of a live engine")}


def _list(output: TableFormat) -> None:
    """The workloads, and the arms that can serve them."""
    from kvgate.report.document import Report, Section, columns
    from kvgate.report.formats import echo
    from kvgate.simulation.arm import ARMS
    from kvgate.simulation.catalogue import options

    known = _workloads()
    workloads = tuple((name, about, options(name, known)) for name, (_, about) in known.items())
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
