"""``kvgate shrink``: make a stored case smaller."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvgate.cli.options import Diff, OwnConnector, Preloads, VllmPath
from kvgate.kernel.errors import UsageError


def shrink(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A trace that kvgate wrote, of any level.")],
    sut: Annotated[
        str | None, typer.Option("--sut", metavar="NAME", help="Another system under test than the trace names.")
    ] = None,
    connector: OwnConnector = None,
    preload: Preloads = None,
    vllm_path: VllmPath = None,
    diff: Diff = None,
    time_budget: Annotated[
        str, typer.Option("--time-budget", metavar="TIME", help="Stop after, for example, 60s, 5m or 2h.")
    ] = "60s",
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Where the smaller trace goes. Default: FILE itself.")
    ] = None,
) -> None:
    """Make a stored case smaller, as long as it shows the same divergence.

    Exit 0 if the case diverges, whether it got smaller or not; 2 if it does not diverge, and nothing is written then.

    Examples:

      kvgate shrink kvgate-report/divergence-1.jsonl --time-budget 5m

      kvgate shrink divergence-1.jsonl --preload my_patch.py --out small.jsonl
    """
    import time

    from kvgate.adapters.registry import imports_vllm, load_system
    from kvgate.adapters.working_tree import tree_of
    from kvgate.cli.check import parse_duration
    from kvgate.cli.replay import named
    from kvgate.cli.writable import see_writable
    from kvgate.gate.case_runner import Trials, run_case
    from kvgate.gate.trace_codec import trace_of, write
    from kvgate.kernel.progress import progress_line
    from kvgate.kernel.text import counted
    from kvgate.levels.registry import read
    from kvgate.levels.tiers.level import see_connector, take_connector

    seconds, tree = parse_duration(time_budget), tree_of(vllm_path, diff)
    trace = read(file)
    see_writable(out or file, "--out")
    level, header, case = trace.level, trace.header, trace.case
    name = named(file, sut, header.system)
    with progress_line() as line:
        line.say(f"loading {name} …", at_once=imports_vllm(name))
        see_connector(file, case.stage, connector)
        system = load_system(name, preload or (), line.say, tree.over if tree else None)
        take_connector(case.stage, connector)
        bench = level.bench(system, header.detectors)
        line.say("making the case smaller …")
        seed = header.seed if isinstance(header.seed, int) else 0
        found = next((each for each in run_case(bench, case).found(seed) if each.finding is None), None)
        if found is None:
            raise UsageError(
                f"{file}: nothing diverges on {name} that no known finding explains: nothing to make smaller"
            )
        until = time.monotonic() + seconds
        least = Trials(bench).smallest(found, until)
    write(trace_of(least.replayable, least.divergence, name, system.version, bench.checkers), out or file)
    before, after = len(case.operations), len(least.replayable.operations)
    end = "" if time.monotonic() < until else "; stopped by --time-budget, so the case may not be minimal"
    typer.echo(f"{counted(before, 'operation')} before, {after} now{end}: {out or file}")
