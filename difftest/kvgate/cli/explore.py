"""``kvgate explore``: every reachable state of tiny models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvgate.cli.check import parse_duration
from kvgate.cli.options import TableOutput
from kvgate.kernel.errors import UsageError
from kvgate.kernel.output import TableFormat

if TYPE_CHECKING:
    from kvgate.explore.designs import Design
    from kvgate.explore.exploration import Limits
    from kvgate.explore.explored import Explored
    from kvgate.explore.world import Explorable


def explore(
    model: Annotated[
        list[str] | None, typer.Option("--model", metavar="NAME", help="A tiny model. May be given several times.")
    ] = None,
    all_models: Annotated[bool, typer.Option("--all", help="All tiny models.")] = False,
    design: Annotated[
        str | None,
        typer.Option("--design", metavar="NAME", help="A design that does not work, in the model that shows it."),
    ] = None,
    deep: Annotated[
        bool, typer.Option("--deep", help="The deeper variant of each model: minutes, not seconds.")
    ] = False,
    states_max: Annotated[
        int | None, typer.Option("--states-max", metavar="N", min=1, help="Stop a search at N states.")
    ] = None,
    time_budget: Annotated[
        str | None,
        typer.Option(
            "--time-budget", "--seconds-max", metavar="TIME", help="Stop each search after, for example, 60s or 5m."
        ),
    ] = None,
    list_only: Annotated[bool, typer.Option("--list", help="Say what there is, and explore nothing.")] = False,
    trace: Annotated[
        Path | None, typer.Option("--trace", metavar="FILE", help="Write the way to the first violation to FILE.")
    ] = None,
    output: TableOutput = TableFormat.TEXT,
) -> None:
    """Visit every reachable state of tiny models, and print the shortest path to one that violates a guarantee.

    Exit 0 if every state was visited and nothing is wrong, 1 if something is, 4 if a limit was reached before. A
    design that does not work is expected to end with 1. 130 if interrupted.

    Examples:

      kvgate explore --list

      kvgate explore --all

      kvgate explore --model tiny-eagle --deep --time-budget 10m

      kvgate explore --design released-early --trace released-early.jsonl
    """
    from kvgate.explore import designs, tiny_models
    from kvgate.explore.exploration import INTERRUPTED as BY_HAND
    from kvgate.explore.exploration import Limits
    from kvgate.kernel.progress import progress_line
    from kvgate.report.exploration import report_of
    from kvgate.report.formats import echo

    if list_only:
        _list(output)
        return
    chosen_design = None if design is None else designs.load(design)
    chosen = _chosen(model or (), all_models, chosen_design)
    usual = tiny_models.DEEP if deep else tiny_models.SHALLOW
    limits = Limits(
        states_max or usual.states_max, usual.seconds_max if time_budget is None else parse_duration(time_budget)
    )
    explored: list[Explored] = []
    with progress_line() as line:
        for each in chosen:
            explored.append(_explored(each, chosen_design, deep, limits, line.say))
            if explored[-1].exploration.stopped == BY_HAND:
                break
    if trace is not None:
        explored = _with_trace(explored, trace)
    report = report_of(explored)
    echo(report, output)
    raise typer.Exit(report.exit_code)


def _list(output: TableFormat) -> None:
    """Every model and every design, a row for each."""
    from kvgate.explore.designs import DESIGNS
    from kvgate.explore.tiny_models import MODELS
    from kvgate.report.document import Report, Section, columns
    from kvgate.report.formats import echo

    models = tuple((tiny.name, tiny.mechanism) for tiny in MODELS.values())
    designs = tuple((each.name, each.model, each.statement, each.story) for each in DESIGNS.values())
    sections = (
        Section("models:", columns("name", "mechanism"), models),
        Section("designs that do not work:", columns("name", "model", "statement", "story"), designs),
    )
    echo(Report("explore --list", tested=sections), output)


def _chosen(names: Sequence[str], all_models: bool, design: Design | None) -> list[Explorable]:
    """The models to explore: those that were named, all of them, or the one that shows what is wrong with a design.

    Raises:
        UsageError: the model is unknown, or none was asked for.
    """
    from kvgate.explore.tiny_models import MODELS, load

    if all_models:
        return list(MODELS.values())
    if names:
        return [load(name) for name in dict.fromkeys(names)]
    if design is None:
        raise UsageError("nothing to explore: give --model NAME, --all or --design NAME; --list says what there is")
    return [load(design.model)]


def _explored(
    tiny: Explorable, design: Design | None, deep: bool, limits: Limits, say: Callable[[str], None]
) -> Explored:
    from kvgate.explore.exploration import Sighting
    from kvgate.explore.explored import Explored
    from kvgate.explore.search import Search

    world = tiny.world(deep, design)

    def report(sighting: Sighting) -> None:
        say(f"{world.name}: {sighting.states:,} states, {sighting.edges:,} edges, depth {sighting.depth}")

    return Explored(world, Search(world, limits, report).run(), design)


def _with_trace(explored: Sequence[Explored], path: Path) -> list[Explored]:
    """Write the first violation to ``path``, if there is one.

    Raises:
        UsageError: it cannot be written.
    """
    from attrs import evolve

    from kvgate.explore.ahead_world import AheadWorld
    from kvgate.explore.manager_world import ManagerWorld
    from kvgate.explore.reproducer import command_of, trace_of
    from kvgate.gate import trace_codec

    for index, each in enumerate(explored):
        if each.exploration.found is not None and isinstance(each.world, AheadWorld):
            name = each.world.name
            typer.echo(f"kvgate: --trace: no trace file can say that a step in flight is over: {name}", err=True)
        elif each.exploration.found is not None and isinstance(each.world, ManagerWorld):
            try:
                trace_codec.write(trace_of(each.world, each.exploration.found), path)
            except OSError as error:
                raise UsageError(f"--trace {path}: cannot be written: {error.strerror}") from error
            return [*explored[:index], evolve(each, again=command_of(each.world, path)), *explored[index + 1 :]]
    return list(explored)
