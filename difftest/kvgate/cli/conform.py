"""``kvgate conform``: what the reference does is what the proofs are about, and what it has to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvgate.cli.options import Seed, TableOutput
from kvgate.kernel.extras import require
from kvgate.kernel.output import TableFormat

if TYPE_CHECKING:
    from kvgate.explore.exploration import Exploration, Sighting
    from kvgate.explore.mechanisms import Mechanism
    from kvgate.report.mechanisms import Driven

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

    Every change of a block must be a possible transition, such as a hit on the request's own prefix. Its effect must be
    the reference's, map by map, and the invariants must hold. Nothing may be left out: a request names exactly the
    blocks of the proved formulas, and due blocks become known with their own content. An eviction, a dispatch, a reset
    and the end of a request have their full effect.

    Not checked: which free block is allocated, the order of waiting blocks, how many are demoted or pinned, which of
    several equal blocks serves a hit, the length of a hit, and whether a rejection was due.

    Over all mechanisms, a transition that never happened counts as failed: then it was not tested.

    Exit 0 if the two agree, 1 if they part or the reference raises, 4 if an exploration stopped early, 5 if kvgate
    itself failed, 130 if interrupted.

    Examples:

      kvgate conform

      kvgate conform --operations 10000 --explore

      kvgate conform "partial hits" --explore
    """
    from kvgate.cli.mechanisms import run
    from kvgate.explore.exploration import Limits
    from kvgate.explore.mechanisms import MECHANISMS, load
    from kvgate.explore.tiny_models import SHALLOW
    from kvgate.explore.tiny_models import load as load_tiny
    from kvgate.kernel.progress import progress_line
    from kvgate.report.document import Column, Section
    from kvgate.report.formats import echo
    from kvgate.report.mechanisms import list_of, report_of

    chosen = [load(name) for name in dict.fromkeys(names)] if names else list(MECHANISMS.values())
    if list_only:
        echo(list_of("conform", chosen), output)
        return
    require("z3", "kvgate conform", "prove")
    from kvgate.explore import refinement_run

    tally: Counter[str] = Counter()

    def explore(name: str, report: Callable[[Sighting], None]) -> tuple[Exploration[Any], dict[str, str]]:
        limits = Limits(SHALLOW.states_max, EXPLORE_SECONDS)
        return refinement_run.explore(load_tiny(name), limits, tally, report), {}

    with progress_line() as line:
        driven, explored, ended = run(
            chosen,
            lambda each: _driven(each, operations, seed, tally, line.say),
            explore if explores else None,
            line.say,
        )
    never = [] if names or ended == "interrupted" else _never(tally)
    transitions = Section("Transitions", (Column("transition"), Column("times", ",")), tuple(tally.most_common()))
    report = report_of("conform", driven, explored, ended, noun="drift", seed=seed, more=(transitions,), never=never)
    echo(report, output)
    raise typer.Exit(report.exit_code)


def _never(tally: Counter[str]) -> list[str]:
    """The transitions that did not happen."""
    from kvspec.pool.transitions import TRANSITIONS

    return [name for each in TRANSITIONS if not tally[name := each.__name__.lower()]]


def _driven(
    mechanism: Mechanism, operations: int, seed: int, tally: Counter[str], say: Callable[[str], None]
) -> Driven:
    from kvgate.explore.refinement_run import drive, world_of
    from kvgate.explore.tiny_models import load as load_tiny
    from kvgate.explore.walk import walk
    from kvgate.kernel.models import load
    from kvgate.report.mechanisms import Driven

    def report(done: int) -> None:
        say(f"{mechanism.name}: {done:,} of {operations:,} operations")

    models = [load(name) for name in mechanism.models]
    if not models:
        walked = walk([world_of(load_tiny(name), tally) for name in mechanism.tiny], operations, seed, report)
        return Driven(mechanism, walked.operations, walked.walks, walked.wrong)
    driven = drive(models, operations, tally, seed, report)
    return Driven(mechanism, driven.operations, driven.cases, tuple(driven.wrong))
