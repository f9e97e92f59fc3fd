"""``kvgate conform``: what the reference does is what the proofs are about, and what it has to do."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvgate.cli.mechanisms import tell_mechanisms
from kvgate.cli.options import Seed, TableOutput
from kvgate.kernel.extras import require
from kvgate.kernel.output import AGREEMENT, DIVERGENCE, INTERRUPTED, NOT_EXHAUSTIVE, TableFormat

if TYPE_CHECKING:
    from kvgate.explore.mechanisms import Mechanism

OPERATIONS = 2_000
EXPLORE_SECONDS = 600.0


def conform(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Only these mechanisms, each once.")] = None,
    operations: Annotated[
        int, typer.Option("--operations", metavar="N", min=1, help="How many operations are driven per mechanism.")
    ] = OPERATIONS,
    explores: Annotated[bool, typer.Option("--explore", help="Also follow every edge of the tiny models.")] = False,
    list_only: Annotated[bool, typer.Option("--list", help="Say what there is, and drive nothing.")] = False,
    seed: Seed = 0,
    output: TableOutput = TableFormat.TEXT,
) -> None:
    """Follow the reference with the transition system that the proofs are about, and compare after each operation.

    Every change of a block must be a transition that can happen, such as a hit on what the request asks for; its
    effect must be the reference's, map by map; and the invariants must hold. And nothing may be left out: a request
    names exactly the blocks that the proved formulas say, what is due becomes known with its own content, and an
    eviction, a dispatch, a reset and the end of a request do what they are for.

    Not judged: which free block is handed out, in which order blocks wait, how many are demoted or pinned, which of
    several equal blocks serves a hit, how long a hit is, and whether a request had to be refused.

    Over all mechanisms, a transition that never happened counts as failed: then it was not tested.

    Exit 0 if the two agree, 1 if they part, 4 if an exploration stopped early, 130 if interrupted.

    Examples:

      kvgate conform

      kvgate conform --operations 10000 --explore

      kvgate conform "partial hits" --explore
    """
    from kvgate.explore.mechanisms import MECHANISMS, load
    from kvgate.kernel.progress import progress_line

    chosen = [load(name) for name in dict.fromkeys(names)] if names else list(MECHANISMS.values())
    if list_only:
        tell_mechanisms(chosen, output)
        return
    require("z3", "kvgate conform", "prove")
    tally: Counter[str] = Counter()
    rows: list[dict[str, Any]] = []
    ended = "completed"
    with progress_line() as line:
        try:
            for each in chosen:
                rows.append({**_driven(each, operations, seed, tally, line.say), "explored": []})
                for explored in _explored(each, tally, line.say) if explores else ():
                    rows[-1]["explored"].append(explored)
        except KeyboardInterrupt:
            ended = "interrupted"
    never = [] if names or ended == "interrupted" else _never(tally)
    report = {"format": "kvgate-conformance", "version": 1, "ended": ended, "mechanisms": rows}
    report |= {"transitions": dict(tally), "never": never}
    typer.echo(json.dumps(report, indent=1) if output is TableFormat.JSON else "\n".join(_table(report)))
    raise typer.Exit(_code(report))


def _never(tally: Counter[str]) -> list[str]:
    """The transitions that did not happen."""
    from kvspec.pool.transitions import TRANSITIONS

    return [name for each in TRANSITIONS if not tally[name := each.__name__.lower()]]


def _driven(
    mechanism: Mechanism, operations: int, seed: int, tally: Counter[str], say: Callable[[str], None]
) -> dict[str, Any]:
    from kvgate.explore.refinement_run import drive
    from kvgate.kernel.models import load

    models = [load(name) for name in mechanism.models]
    driven = drive(
        models, operations, tally, seed, lambda done: say(f"{mechanism.name}: {done:,} of {operations:,} operations")
    )
    return {
        "mechanism": mechanism.name,
        "operations": driven.operations,
        "cases": driven.cases,
        "wrong": list(driven.wrong),
    }


def _explored(mechanism: Mechanism, tally: Counter[str], say: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    """A row for each tiny model; an interrupt is raised after the row of the model that it stopped."""
    from kvgate.explore.exploration import INTERRUPTED as BY_HAND
    from kvgate.explore.exploration import Limits, Sighting
    from kvgate.explore.refinement_run import explore
    from kvgate.explore.tiny_models import SHALLOW, load

    for name in mechanism.tiny:

        def report(sighting: Sighting, name: str = name) -> None:
            say(f"{name}: {sighting.states:,} states, {sighting.edges:,} edges")

        found = explore(load(name), Limits(SHALLOW.states_max, EXPLORE_SECONDS), tally, report)
        violations = () if found.found is None else found.found.violations
        yield {
            "model": name,
            "states": found.states,
            "edges": found.edges,
            "seconds": round(found.seconds, 1),
            "stopped": found.stopped,
            "wrong": [f"{each.statement}: {each.detail}" for each in violations],
        }
        if found.stopped == BY_HAND:
            raise KeyboardInterrupt


def _table(report: dict[str, Any]) -> list[str]:
    """The report as text: a line for what was driven, one for each tiny model, and what happened in all of it."""
    lines = []
    for row in report["mechanisms"]:
        driven = f"{row['operations']:,} operations in {row['cases']:,} cases"
        lines.append(f"{row['mechanism']}: {driven}; {_verdict(row)}")
        for each in row["explored"]:
            ended = f"STOPPED, not exhaustive: {each['stopped']}" if each["stopped"] else "exhaustive"
            if each["wrong"]:
                ended = "and no further"
            size = f"{each['states']:,} states, {each['edges']:,} edges, {each['seconds']} s"
            lines.append(f"  {each['model']}: {size}, {ended}; {_verdict(each)}")
    rows = report["mechanisms"]
    edges = sum(each["edges"] for row in rows for each in row["explored"])
    lines.append(f"in all: {sum(row['operations'] for row in rows):,} operations, {edges:,} edges")
    seen = sorted(report["transitions"].items(), key=lambda item: -item[1])
    lines.append("transitions: " + (", ".join(f"{count:,} {name}" for name, count in seen) or "none"))
    if report["never"]:
        lines.append(f"NEVER SEEN: {', '.join(report['never'])}")
    if report["ended"] == "interrupted":
        lines.append("interrupted")
    return lines


def _verdict(row: dict[str, Any]) -> str:
    return "no drift" if not row["wrong"] else "DRIFT: " + "; ".join(row["wrong"])


def _code(report: dict[str, Any]) -> int:
    explored = [each for row in report["mechanisms"] for each in row["explored"]]
    if report["never"] or any(row["wrong"] for row in [*report["mechanisms"], *explored]):
        return DIVERGENCE
    if report["ended"] == "interrupted":
        return INTERRUPTED
    return NOT_EXHAUSTIVE if any(each["stopped"] for each in explored) else AGREEMENT
