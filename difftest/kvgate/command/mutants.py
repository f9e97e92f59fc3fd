"""``kvgate mutants``: plant known faults in vLLM's own code, or in the plug-in's, and show that the gate finds them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from kvgate.command.options import AGREEMENT, DIVERGENCE, Seed, TableFormat
from kvgate.errors import UsageError

if TYPE_CHECKING:
    from kvgate.hunt import Kill, Prey
    from kvgate.models import Model
    from kvgate.mutants.mutant import Mutant


class Planted(str, Enum):
    """What faults are known of."""

    STOCK = "stock"
    RETENTION = "retention"


BASELINE_OPERATIONS = 40_000
HUNT_OPERATIONS = 200_000
HUNT_SECONDS = 60.0


def mutants(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]…", help="Only these mutants.")] = None,
    sut: Annotated[
        Planted, typer.Option("--sut", help="What they are planted in: vLLM alone, or the plug-in, retention.")
    ] = Planted.STOCK,
    list_only: Annotated[bool, typer.Option("--list", help="Say what there is, and plant nothing.")] = False,
    each_detector: Annotated[
        bool, typer.Option("--each-detector", help="Also try lockstep and every monitor alone.")
    ] = False,
    seed: Seed = 0,
    output: Annotated[TableFormat, typer.Option("--format", help="What is printed.")] = TableFormat.TEXT,
) -> None:
    """Plant known faults one at a time, and say what finds each, after how many operations and seconds.

    Exit 0 if the system as it is shows nothing new and every mutant that can be found is found, 1 otherwise.

    Examples:

      kvgate mutants

      kvgate mutants --list

      kvgate mutants look-ahead-not-dropped --each-detector

      kvgate mutants --sut retention
    """
    chosen = _chosen(sut, names or ())
    if list_only:
        for mutant in chosen:
            typer.echo(f"{mutant.name}: {mutant.sentence}" + (" (equivalent)" if mutant.equivalent else ""))
        return
    from kvgate.command.progress import progress_line
    from kvgate.hunt import chase, hunt
    from kvgate.runner import Bench
    from kvgate.systems import load_system

    models = _models(sut)
    prey: list[Prey] = []
    with progress_line() as line:
        line.say(f"loading {sut.value} …")
        bench = Bench(load_system(sut.value).factory)
        line.say(f"{_AS_IT_IS[sut]} …")
        alarm = chase(bench, models, seed, BASELINE_OPERATIONS, HUNT_SECONDS)
        for number, mutant in enumerate(chosen):
            line.say(f"{number + 1} of {len(chosen)}: {mutant.name}")
            operations = HUNT_OPERATIONS if mutant.equivalent is None else BASELINE_OPERATIONS
            prey.append(
                hunt(
                    bench,
                    mutant,
                    models,
                    seed=seed,
                    operations=operations,
                    seconds=HUNT_SECONDS,
                    each_detector=each_detector,
                )
            )
    if output is TableFormat.JSON:
        typer.echo(
            json.dumps({"false_alarm": alarm is not None, "mutants": [_record(each) for each in prey]}, indent=1)
        )
    else:
        _print(prey, alarm, _AS_IT_IS[sut])
    exposed = [each for each in prey if each.mutant.equivalent and each.kills["gate"]]
    survivors = [each for each in prey if each.survived]
    raise typer.Exit(DIVERGENCE if alarm or survivors or exposed else AGREEMENT)


_AS_IT_IS = {Planted.STOCK: "vLLM as it is", Planted.RETENTION: "vLLM with the plug-in as it is"}


def _chosen(sut: Planted, names: Sequence[str]) -> list[Mutant]:
    known = {mutant.name: mutant for mutant in _zoo(sut)}
    unknown = [name for name in names if name not in known]
    if unknown:
        option = "" if sut is Planted.STOCK else f" --sut {sut.value}"
        raise UsageError(f"unknown mutant {unknown[0]!r}: kvgate mutants --list{option} says what there is")
    return [known[name] for name in names] if names else list(known.values())


def _zoo(sut: Planted) -> Sequence[Mutant]:
    if sut is Planted.RETENTION:
        from kvgate.mutants.plugin import zoo as of_the_plugin

        return of_the_plugin.ZOO
    from kvgate.mutants import zoo

    return zoo.ZOO


def _models(sut: Planted) -> list[Model]:
    from kvgate.profiles import models_named

    if sut is Planted.RETENTION:
        # Each mutant names the few on which it shows soon.
        return models_named(tuple(dict.fromkeys(name for mutant in _zoo(sut) for name in mutant.models or ())))
    return models_named(()) + models_named(("two-windows+eagle",))


def _record(prey: Prey) -> dict[str, object]:
    return {
        "mutant": prey.mutant.name,
        "statement": prey.mutant.statement,
        "equivalent": prey.mutant.equivalent,
        "kills": {
            name: None
            if kill is None
            else {
                "by": kill.by,
                "statement": kill.statement,
                "operations": kill.operations,
                "seconds": round(kill.seconds, 2),
            }
            for name, kill in prey.kills.items()
        },
    }


def _print(prey: Sequence[Prey], alarm: Kill | None, as_it_is: str) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(width=150) if not Console().is_terminal else Console()
    console.print(f"{as_it_is}: " + ("nothing found" if alarm is None else f"FOUND {_told(alarm)}"), markup=False)
    table = Table(box=None)
    for column in ("mutant", "killed by", "statement", "operations", "seconds"):
        table.add_column(column, justify="right" if column in ("operations", "seconds") else "left")
    alone = [name for name in (prey[0].kills if prey else ()) if name != "gate"]
    for name in alone:
        table.add_column(f"{name} alone", justify="right")
    for each in prey:
        table.add_row(each.mutant.name, *_verdict(each), *(_alone(each.kills[name]) for name in alone))
    console.print(table)
    killed = [each.kills["gate"] for each in prey if each.kills["gate"] is not None]
    expected = [each for each in prey if each.mutant.equivalent is None]
    slowest = max((kill.seconds for kill in killed if kill), default=0.0)
    console.print(
        f"{sum(not each.survived for each in expected)} of {len(expected)} killed, {len(prey) - len(expected)} "
        f"equivalent; the slowest took {slowest:.1f} s"
    )
    if alone:
        told = ", ".join(f"{name} {sum(each.kills[name] is not None for each in expected)}" for name in alone)
        console.print(f"alone, of {len(expected)}: {told}")
    for each in prey:
        if each.mutant.equivalent:
            console.print(f"{each.mutant.name} is equivalent: {each.mutant.equivalent}", markup=False)


def _verdict(prey: Prey) -> tuple[str, str, str, str]:
    kill = prey.kills["gate"]
    if kill is None:
        return ("equivalent" if prey.mutant.equivalent else "SURVIVED", "", "", "")
    return (kill.by, kill.statement or "-", str(kill.operations), f"{kill.seconds:.1f}")


def _told(kill: Kill) -> object:
    return getattr(kill.found, "divergence", kill.found)


def _alone(kill: Kill | None) -> str:
    return "-" if kill is None else str(kill.operations)
