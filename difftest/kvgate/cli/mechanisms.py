"""``kvgate mechanisms``: the reference alone, mechanism by mechanism: driven at random, and explored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from kvgate.cli.options import Seed, TableOutput
from kvgate.kernel.output import TableFormat

if TYPE_CHECKING:
    from kvgate.explore.exploration import Exploration, Sighting
    from kvgate.explore.mechanisms import Mechanism
    from kvgate.report.mechanisms import Driven, ExploredModel

    Explore: TypeAlias = Callable[[str, Callable[[Sighting], None]], tuple[Exploration[Any], dict[str, str]]]
    """Explores the tiny model that is called so; returns what came of it, and its bounds."""

OPERATIONS = 2_000
EXPLORE_SECONDS = 120.0


def mechanisms(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Only these mechanisms.")] = None,
    operations: Annotated[
        int, typer.Option("--operations", metavar="N", min=1, help="How many operations are driven per mechanism.")
    ] = OPERATIONS,
    explores: Annotated[bool, typer.Option("--explore", help="Also explore the tiny models of each.")] = False,
    list_only: Annotated[bool, typer.Option("--list", help="Say what there is, and drive nothing.")] = False,
    seed: Seed = 0,
    output: TableOutput = TableFormat.TEXT,
) -> None:
    """Drive the reference alone, and check it after each operation: its invariants, and what every slot would hold.

    A mechanism that never acted while it was driven counts as failed: then nothing was tested.

    Exit 0 if nothing is wrong, 1 if something is, 4 if an exploration stopped early, 130 if interrupted.

    Examples:

      kvgate mechanisms

      kvgate mechanisms --operations 100000 --explore

      kvgate mechanisms "partial hits" --explore
    """
    from kvgate.explore.mechanisms import MECHANISMS, load
    from kvgate.kernel.progress import progress_line
    from kvgate.report.formats import echo
    from kvgate.report.mechanisms import list_of, report_of

    chosen = [load(name) for name in names] if names else list(MECHANISMS.values())
    if list_only:
        echo(list_of("mechanisms", chosen), output)
        return
    with progress_line() as line:
        driven, explored, ended = run(
            chosen, lambda each: _driven(each, operations, seed, line.say), _explore if explores else None, line.say
        )
    report = report_of("mechanisms", driven, explored, ended, noun="violation", seed=seed)
    echo(report, output)
    raise typer.Exit(report.exit_code)


def run(
    chosen: Sequence[Mechanism],
    drive: Callable[[Mechanism], Driven],
    explore: Explore | None,
    say: Callable[[str], None],
) -> tuple[list[Driven], list[ExploredModel], str]:
    """Drive each mechanism, and explore its tiny models; what was done so far, if someone interrupts."""
    from kvgate.explore.exploration import INTERRUPTED
    from kvgate.report.mechanisms import ExploredModel

    driven: list[Driven] = []
    explored: list[ExploredModel] = []
    try:
        for mechanism in chosen:
            driven.append(drive(mechanism))
            for name in mechanism.tiny if explore is not None else ():

                def report(sighting: Sighting, name: str = name) -> None:
                    say(f"{name}: {sighting.states:,} states, {sighting.edges:,} edges")

                assert explore is not None, "else there is nothing to explore"
                exploration, bounds = explore(name, report)
                explored.append(ExploredModel(mechanism.name, name, exploration, bounds))
                if exploration.stopped == INTERRUPTED:
                    raise KeyboardInterrupt
    except KeyboardInterrupt:
        return driven, explored, "interrupted"
    return driven, explored, "completed"


def _driven(mechanism: Mechanism, operations: int, seed: int, say: Callable[[str], None]) -> Driven:
    from kvgate.explore.drive import drive
    from kvgate.explore.tiny_models import load as load_tiny
    from kvgate.explore.walk import walk
    from kvgate.gate.story import describe
    from kvgate.kernel.models import load
    from kvgate.report.mechanisms import Driven

    def report(done: int) -> None:
        say(f"{mechanism.name}: {done:,} of {operations:,} operations")

    models = [load(name) for name in mechanism.models]
    if not models:
        walked = walk([load_tiny(name).world() for name in mechanism.tiny], operations, seed, report)
        return Driven(mechanism, walked.operations, walked.walks, walked.wrong)
    driven = drive(models, operations, seed, report)
    wrong = []
    for divergence, case in driven.found:
        where = "at rest" if divergence.operation is None else describe(divergence.operation)
        difference = divergence.difference
        seen = f"{difference.statement}, expected {difference.expected}, got {difference.got}"
        wrong.append(f"{case.model}, step {divergence.step}, {where}: {seen}")
    wrong += [f"never seen: {witness}" for witness in mechanism.witnesses if not driven.seen[witness]]
    happened = {witness: driven.seen[witness] for witness in mechanism.witnesses}
    return Driven(mechanism, driven.operations, driven.cases, tuple(wrong), happened)


def _explore(name: str, report: Callable[[Sighting], None]) -> tuple[Exploration[Any], dict[str, str]]:
    """Explore a tiny model of the reference alone."""
    from kvgate.explore.exploration import Limits
    from kvgate.explore.search import Search
    from kvgate.explore.tiny_models import SHALLOW, load

    world = load(name).world()
    return Search(world, Limits(SHALLOW.states_max, EXPLORE_SECONDS), report).run(), dict(world.bounds)
