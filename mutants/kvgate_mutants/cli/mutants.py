"""``kvgate mutants``: plant known faults in vLLM's own code, or in the plug-in's, and show that the gate finds them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvgate.cli.options import Seed, TableOutput
from kvgate.gate.level import Level
from kvgate.kernel.errors import UsageError
from kvgate.kernel.output import AGREEMENT, DIVERGENCE, INTERRUPTED, TableFormat

if TYPE_CHECKING:
    from kvgate.gate.campaign import Trials
    from kvgate.gate.case_runner import Bench
    from kvgate.kernel.models import Model
    from kvgate_mutants.kill_table import Killed
    from kvgate_mutants.mutants.mutant import Mutant
    from kvgate_mutants.mutation_run import Prey


class Planted(str, Enum):
    """What faults are known of."""

    STOCK = "stock"
    RETENTION = "retention"


BASELINE_OPERATIONS = 40_000
HUNT_OPERATIONS = 200_000
HUNT_SECONDS = 60.0
Zoo = tuple[Planted, Level]
ZOOS: tuple[Zoo, ...] = (
    (Planted.STOCK, Level.BLOCKS),
    (Planted.STOCK, Level.SCHEDULER),
    (Planted.STOCK, Level.PAIR),
    # The plug-in stays in a process that has it: it comes last.
    (Planted.RETENTION, Level.BLOCKS),
)
_AS_IT_IS = dict(
    zip(
        ZOOS,
        ("vLLM as it is", "vLLM's scheduler as it is", "two nodes as they are", "vLLM with the plug-in as it is"),
        strict=True,
    )
)


def mutants(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Only these mutants.")] = None,
    sut: Annotated[
        Planted, typer.Option("--sut", help="What they are planted in: vLLM alone, or the plug-in, retention.")
    ] = Planted.STOCK,
    level: Annotated[
        Level,
        typer.Option(
            "--level", help="Of vLLM: its block manager, its scheduler, or one after the other; or two nodes."
        ),
    ] = Level.BLOCKS,
    everywhere: Annotated[
        bool, typer.Option("--all", help="All there are: in vLLM at both levels and on two nodes, and in the plug-in.")
    ] = False,
    list_only: Annotated[bool, typer.Option("--list", help="Say what there is, and plant nothing.")] = False,
    each_detector: Annotated[
        bool,
        typer.Option(
            "--each-detector", help="Also try lockstep and every monitor alone; of the scheduler, the monitors alone."
        ),
    ] = False,
    minimise: Annotated[
        bool, typer.Option("--minimise", help="Also look for the smallest case that shows each.")
    ] = False,
    write: Annotated[
        Path | None, typer.Option("--write", metavar="FILE.md", help="Write the table as a Markdown file, too.")
    ] = None,
    seed: Seed = 0,
    output: TableOutput = TableFormat.TEXT,
) -> None:
    """Plant known faults one at a time, and say what finds each, after how many operations and seconds.

    Exit 0 if the system as it is shows nothing new and every mutant that can be found is found, 1 otherwise, 130 if
    interrupted and nothing was found by then.

    Examples:

      kvgate mutants

      kvgate mutants --list

      kvgate mutants look-ahead-not-dropped --each-detector

      kvgate mutants --level scheduler --minimise

      kvgate mutants --level pair

      kvgate mutants --sut retention

      kvgate mutants --all --minimise --write mutants.md
    """
    chosen = _chosen(_zoos(sut, level, everywhere), names or ())
    if list_only:
        _list([mutant for group in chosen.values() for mutant in group], output)
        return
    hunted: list[Killed] = []
    interrupted = False
    try:
        for each in _hunts(chosen, seed, each_detector, minimise):
            # What is hunted so far takes the place of what was hunted before.
            hunted = [*(other for other in hunted if other.title != each.title), each]
    except KeyboardInterrupt:
        interrupted = True
    _tell(hunted, output, write, _command(sut, level, everywhere, minimise))
    if not all(each.sound for each in hunted):
        raise typer.Exit(DIVERGENCE)
    raise typer.Exit(INTERRUPTED if interrupted else AGREEMENT)


def _list(known: Sequence[Mutant], output: TableFormat) -> None:
    from kvgate.cli.listing import tell

    lines = [f"{each.name}: {each.sentence}" + (" (equivalent)" if each.equivalent else "") for each in known]
    entries = [{"name": each.name, "sentence": each.sentence, "equivalent": each.equivalent} for each in known]
    tell("\n".join(lines), {"mutants": entries}, output)


def _zoos(sut: Planted, level: Level, everywhere: bool) -> tuple[Zoo, ...]:
    if everywhere:
        if (sut, level) != (Planted.STOCK, Level.BLOCKS):
            raise UsageError("--all takes no --sut and no --level: it plants all there are")
        return ZOOS
    levels = (Level.BLOCKS, Level.SCHEDULER) if level is Level.BOTH else (level,)
    if sut is Planted.RETENTION and levels != (Level.BLOCKS,):
        raise UsageError(f"the mutants of schedulers are vLLM's own: kvgate mutants --level {level.value}")
    return tuple((sut, each) for each in levels)


def _command(sut: Planted, level: Level, everywhere: bool, minimise: bool) -> str:
    options = ["--all"] if everywhere else ["--sut", sut.value, "--level", level.value]
    return " ".join(["kvgate mutants", *options, *(["--minimise"] if minimise else [])])


def _hunts(chosen: dict[Zoo, list[Mutant]], seed: int, each_detector: bool, minimise: bool) -> Iterator[Killed]:
    """Hunt in each zoo; told after every mutant, so that nothing is lost when somebody interrupts."""
    from kvgate.kernel.progress import progress_line
    from kvgate_mutants.kill_table import Killed
    from kvgate_mutants.mutation_run import chase, hunt

    with progress_line() as line:
        for zoo, group in chosen.items():
            bench, alone = _bench(zoo, each_detector, line.say)
            models = _models(zoo)
            line.say(f"{_AS_IT_IS[zoo]} …")
            baseline = BASELINE_OPERATIONS if zoo[1] is Level.BLOCKS else BASELINE_OPERATIONS // 4
            alarm = chase(bench, [*models, *_beyond(models, _zoo(zoo))], seed, baseline, HUNT_SECONDS)
            prey: list[Prey] = []
            yield Killed(_AS_IT_IS[zoo], alarm, ())
            for number, mutant in enumerate(group):
                line.say(f"{number + 1} of {len(group)}: {mutant.name}")
                operations = HUNT_OPERATIONS if mutant.equivalent is None else baseline
                prey.append(
                    hunt(
                        bench,
                        mutant,
                        [*models, *_beyond(models, [mutant])],
                        seed=seed,
                        operations=operations,
                        seconds=HUNT_SECONDS,
                        alone=alone,
                        minimises=minimise,
                    )
                )
                yield Killed(_AS_IT_IS[zoo], alarm, tuple(prey))


def _bench(
    zoo: Zoo, each_detector: bool, say: Callable[[str], None]
) -> tuple[Bench | Trials, dict[str, Bench | Trials]]:
    """What runs the cases, and what does with fewer judges."""
    from kvgate.adapters.registry import load_system
    from kvgate.gate.case_runner import Bench
    from kvgate_mutants.mutation_run import each_alone

    sut, level = zoo
    say(f"loading {sut.value} …")
    system = load_system(sut.value)
    if level is Level.BLOCKS:
        bench = Bench(system.factory)
        return bench, each_alone(bench) if each_detector else {}
    if level is Level.PAIR:
        return _pair_bench(system.name, each_detector)
    from kvgate.levels.registry import engine_bench
    from kvgate.levels.scheduler.case_runner import EngineTrials
    from kvgate.levels.scheduler.detectors import GATE, MONITORS

    alone: dict[str, Bench | Trials] = {"monitors": EngineTrials(engine_bench(system.name, MONITORS))}
    return EngineTrials(engine_bench(system.name, GATE)), alone if each_detector else {}


def _pair_bench(system: str, each_detector: bool) -> tuple[Trials, dict[str, Bench | Trials]]:
    from kvgate.levels.pair.case_runner import PairTrials
    from kvgate.levels.pair.detectors import GATE, MONITORS
    from kvgate.levels.registry import pair_bench

    alone: dict[str, Bench | Trials] = {"monitors": PairTrials(pair_bench(system, MONITORS))}
    return PairTrials(pair_bench(system, GATE)), alone if each_detector else {}


def _chosen(zoos: Sequence[Zoo], names: Sequence[str]) -> dict[Zoo, list[Mutant]]:
    known = {mutant.name: (zoo, mutant) for zoo in zoos for mutant in _zoo(zoo)}
    unknown = [name for name in names if name not in known]
    if unknown:
        others = [zoo for zoo in ZOOS if zoo not in zoos]
        option = next((_option(zoo) for zoo in others if unknown[0] in {each.name for each in _zoo(zoo)}), "")
        hint = f"it is one of kvgate mutants{option}" if option else f"kvgate mutants --list{_option(zoos[0])} says"
        raise UsageError(f"unknown mutant {unknown[0]!r}: {hint}" + ("" if option else " what there is"))
    chosen: dict[Zoo, list[Mutant]] = {}
    for name in names or known:
        zoo, mutant = known[name]
        chosen.setdefault(zoo, []).append(mutant)
    return chosen


def _option(zoo: Zoo) -> str:
    sut = "" if zoo[0] is Planted.STOCK else f" --sut {zoo[0].value}"
    return sut + ("" if zoo[1] is Level.BLOCKS else f" --level {zoo[1].value}")


def _zoo(zoo: Zoo) -> Sequence[Mutant]:
    if zoo[0] is Planted.RETENTION:
        from kvgate_mutants.mutants.plugin import registry as of_the_plugin

        return of_the_plugin.ZOO
    if zoo[1] is Level.SCHEDULER:
        from kvgate_mutants.mutants.scheduler import registry as of_the_scheduler

        return of_the_scheduler.ZOO
    if zoo[1] is Level.PAIR:
        from kvgate_mutants.mutants.pair import registry as of_two_nodes

        return of_two_nodes.ZOO
    from kvgate_mutants.mutants import registry as of_the_block_manager

    return of_the_block_manager.ZOO


def _models(zoo: Zoo) -> list[Model]:
    from kvgate.gate.profiles import models_named

    if zoo[0] is Planted.RETENTION:
        # Each mutant names the few on which it shows soon.
        return []
    if zoo[1] is not Level.BLOCKS:
        return models_named(SCHEDULED)
    return models_named(()) + models_named(("two-windows+eagle",))


def _beyond(models: Sequence[Model], named_by: Iterable[Mutant]) -> list[Model]:
    """What mutants name that is not among ``models``: on others they would not show."""
    from kvgate.gate.profiles import models_named

    there = {name for model in models for name in (model.name, model.name.split("+")[0])}
    beyond = dict.fromkeys(name for mutant in named_by for name in mutant.models or () if name not in there)
    return models_named(tuple(beyond)) if beyond else []


SCHEDULED = ("full", "two-windows+eagle", "gpt-oss-hybrid", "full+eagle", "swa")
"""The models that a broken scheduler is tried on: little of what it does depends on the groups."""


def _tell(hunted: Sequence[Killed], output: TableFormat, write: Path | None, command: str) -> None:
    from kvgate_mutants.kill_table import page, record

    if write is not None:
        try:
            write.parent.mkdir(parents=True, exist_ok=True)
            write.write_text(page(hunted, f"{command} --write {write.name}"), encoding="utf-8")
        except OSError as error:
            typer.echo(f"kvgate: --write {write}: cannot be written: {error.strerror}", err=True)
    if output is TableFormat.JSON:
        records = [record(prey) for each in hunted for prey in each.prey]
        alarm = any(each.alarm is not None for each in hunted)
        document = {"format": "kvgate-mutants", "version": 1, "false_alarm": alarm, "mutants": records}
        typer.echo(json.dumps(document, indent=1))
        return
    for killed in hunted:
        _print(killed)


def _print(killed: Killed) -> None:
    from rich.console import Console
    from rich.table import Table

    from kvgate_mutants.kill_table import COLUMNS, alarm_told, row, summary

    console = Console(width=150) if not Console().is_terminal else Console()
    console.print(alarm_told(killed), markup=False)
    minimised = any(kill and kill.smallest for each in killed.prey for kill in each.kills.values())
    columns = COLUMNS if minimised else COLUMNS[:-1]
    table = Table(box=None)
    for column in columns:
        table.add_column(column, justify="right" if column in ("operations", "seconds", "smallest case") else "left")
    alone = [name for name in (killed.prey[0].kills if killed.prey else ()) if name != "gate"]
    for name in alone:
        table.add_column(f"{name} alone", justify="right")
    for each in killed.prey:
        kills = [each.kills[name] for name in alone]
        table.add_row(*row(each)[: len(columns)], *("-" if kill is None else str(kill.operations) for kill in kills))
    console.print(table)
    console.print(summary(killed))
    if alone:
        told = ", ".join(f"{name} {sum(each.kills[name] is not None for each in killed.expected)}" for name in alone)
        console.print(f"alone, of {len(killed.expected)}: {told}")
    for each in killed.prey:
        if each.mutant.equivalent:
            console.print(f"{each.mutant.name} is equivalent: {each.mutant.equivalent}", markup=False)
