"""``kvgate mechanisms``: the reference alone, mechanism by mechanism: driven at random, and explored."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvgate.cli.options import Seed, TableOutput
from kvgate.kernel.output import AGREEMENT, DIVERGENCE, INTERRUPTED, NOT_EXHAUSTIVE, TableFormat

if TYPE_CHECKING:
    from kvgate.explore.mechanisms import Mechanism

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
    """Drive the reference alone, and judge it after each operation: its invariants, and what every slot would hold.

    A mechanism that never acted while it was driven counts as failed: then nothing was tested.

    Exit 0 if nothing is wrong, 1 if something is, 4 if an exploration stopped early, 130 if interrupted.

    Examples:

      kvgate mechanisms

      kvgate mechanisms --operations 100000 --explore

      kvgate mechanisms "partial hits" --explore
    """
    from kvgate.explore.mechanisms import MECHANISMS, load
    from kvgate.kernel.progress import progress_line

    chosen = [load(name) for name in names] if names else list(MECHANISMS.values())
    if list_only:
        tell_mechanisms(chosen, output)
        return
    rows: list[dict[str, Any]] = []
    ended = "completed"
    with progress_line() as line:
        try:
            for each in chosen:
                rows.append({**_driven(each, operations, seed, line.say), "explored": []})
                for explored in _explored(each, line.say) if explores else ():
                    rows[-1]["explored"].append(explored)
        except KeyboardInterrupt:
            ended = "interrupted"
    typer.echo(
        json.dumps({"format": "kvgate-mechanisms", "version": 1, "ended": ended, "mechanisms": rows}, indent=1)
        if output is TableFormat.JSON
        else "\n".join([*_table(rows), *(["interrupted"] if ended == "interrupted" else [])])
    )
    raise typer.Exit(_code(rows, ended))


def tell_mechanisms(chosen: Sequence[Mechanism], output: TableFormat) -> None:
    """Print what can be driven, and on which models."""
    from kvgate.cli.listing import tell

    lines = [f"{each.name}: driven on {', '.join(each.models)}; explored on {', '.join(each.tiny)}" for each in chosen]
    entries = [{"name": each.name, "models": list(each.models), "tiny": list(each.tiny)} for each in chosen]
    tell("\n".join(lines), {"mechanisms": entries}, output)


def _driven(mechanism: Mechanism, operations: int, seed: int, say: Callable[[str], None]) -> dict[str, Any]:
    from kvgate.explore.drive import drive
    from kvgate.gate.story import describe
    from kvgate.kernel.models import load

    models = [load(name) for name in mechanism.models]
    driven = drive(
        models, operations, seed, lambda done: say(f"{mechanism.name}: {done:,} of {operations:,} operations")
    )
    wrong = []
    for divergence, case in driven.found:
        where = "at rest" if divergence.operation is None else describe(divergence.operation)
        difference = divergence.difference
        seen = f"{difference.statement}, expected {difference.expected}, got {difference.got}"
        wrong.append(f"{case.model}, step {divergence.step}, {where}: {seen}")
    return {
        "mechanism": mechanism.name,
        "models": list(mechanism.models),
        "operations": driven.operations,
        "cases": driven.cases,
        "seen": {witness: driven.seen[witness] for witness in mechanism.witnesses},
        "wrong": wrong + [f"never seen: {witness}" for witness in mechanism.witnesses if not driven.seen[witness]],
    }


def _explored(mechanism: Mechanism, say: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    """A row for each tiny model; an interrupt is raised after the row of the model that it stopped."""
    from kvgate.explore.exploration import INTERRUPTED as BY_HAND
    from kvgate.explore.exploration import Limits, Sighting
    from kvgate.explore.search import Search
    from kvgate.explore.tiny_models import SHALLOW, load

    for name in mechanism.tiny:
        world = load(name).world()

        def report(sighting: Sighting, name: str = name) -> None:
            say(f"{name}: {sighting.states:,} states")

        found = Search(world, Limits(SHALLOW.states_max, EXPLORE_SECONDS), report).run()
        yield {
            "model": name,
            "states": found.states,
            "edges": found.edges,
            "depth": found.depth,
            "seconds": round(found.seconds, 1),
            "stopped": found.stopped,
            "wrong": [] if found.found is None else [str(each) for each in found.found.violations],
            "bounds": dict(world.bounds),
        }
        if found.stopped == BY_HAND:
            raise KeyboardInterrupt


def _table(rows: list[dict[str, Any]]) -> list[str]:
    """The rows as text: a line for what was driven, one for each tiny model, and the bounds at the end."""
    lines = []
    for row in rows:
        seen = ", ".join(f"{count:,} {witness}" for witness, count in row["seen"].items())
        verdict = "nothing wrong" if not row["wrong"] else "WRONG: " + "; ".join(row["wrong"])
        lines.append(
            f"{row['mechanism']}: {row['operations']:,} operations in {row['cases']:,} cases; {seen}; {verdict}"
        )
        lines.append(f"  on {', '.join(row['models'])}")
        for each in row["explored"]:
            size = f"{each['states']:,} states, {each['edges']:,} edges, depth {each['depth']}, {each['seconds']} s"
            ended = f"STOPPED, not exhaustive: {each['stopped']}" if each["stopped"] else "exhaustive"
            wrong = f"; WRONG: {'; '.join(each['wrong'])}" if each["wrong"] else ""
            lines.append(f"  {each['model']}: {size}, {ended}{wrong}")
    bounds = [
        f"  {each['model']}: " + "; ".join(f"{what}: {bound}" for what, bound in each["bounds"].items())
        for row in rows
        for each in row["explored"]
    ]
    return [*lines, *(["bounds of what was explored:", *bounds] if bounds else [])]


def _code(rows: list[dict[str, Any]], ended: str) -> int:
    explored = [each for row in rows for each in row["explored"]]
    if any(row["wrong"] for row in [*rows, *explored]):
        return DIVERGENCE
    if ended == "interrupted":
        return INTERRUPTED
    return NOT_EXHAUSTIVE if any(each["stopped"] for each in explored) else AGREEMENT
