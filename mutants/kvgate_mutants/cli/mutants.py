"""``kvgate mutants``: inject known faults into vLLM or the plug-in, and show that the gate finds them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from attrs import frozen

from kvgate.cli.options import Seed, TableOutput
from kvgate.gate.level import LevelChoice
from kvgate.kernel.errors import UsageError
from kvgate.kernel.output import TableFormat

if TYPE_CHECKING:
    from kvgate.gate.case_runner import Trials
    from kvgate.kernel.models import Model
    from kvgate_mutants.kill_table import Killed
    from kvgate_mutants.mutants.mutant import Mutant
    from kvgate_mutants.mutation_run import MutantResult


class Code(str, Enum):
    """Whose code the mutants break."""

    STOCK = "stock"
    RETENTION = "retention"
    ASCEND_WORKER = "ascend-worker"
    ASCEND_WORKER_0_23_0 = "ascend-worker@0.23.0"
    ASCEND_WORKER_0_30_0 = "ascend-worker@0.30.0rc2"
    ASCEND_0_23_0 = "ascend@0.23.0"
    ASCEND_RECOMPUTE_0_23_0 = "ascend-recompute@0.23.0"
    ASCEND_0_30_0 = "ascend@0.30.0rc2"
    NATIVE_0_33_0 = "native@0.33.0"

    @property
    def release(self) -> str:
        """The version that a name ends with, if it is that of a release."""
        return self.value.partition("@")[2]


class Of(str, Enum):
    """Mutants of one subject, as a set of their own."""

    FEATURES = "features"
    REFERENCE = "reference"
    CHECKERS = "checkers"


OWN = (Of.REFERENCE, Of.CHECKERS)
"""Mutants of our own code, which have a run of their own."""


BASELINE_OPERATIONS = 40_000
MUTANT_OPERATIONS = 200_000
MUTANT_SECONDS = 300.0


@frozen
class MutantSet:
    """The mutants of one system, and how they are run."""

    code: Code
    level: LevelChoice
    title: str
    """The unmutated system, in the tables."""
    of: Of | None = None

    @property
    def option(self) -> str:
        """The options that select this set."""
        if self.of is not None:
            return f" --of {self.of.value}"
        sut = "" if self.code is Code.STOCK else f" --sut {self.code.value}"
        return sut + ("" if self.level is LevelChoice.BLOCKS else f" --level {self.level.value}")

    @property
    def mutants(self) -> Sequence[Mutant]:
        """The mutants, in their order."""
        from kvgate_mutants.mutants import registry

        if self.of is Of.FEATURES:
            return registry.FEATURE_MUTANTS
        if self.of in OWN:
            return registry.REFERENCE_MUTANTS if self.of is Of.REFERENCE else registry.CHECKER_MUTANTS
        if self.code is Code.RETENTION:
            return registry.PLUGIN_MUTANTS
        if self.code is Code.ASCEND_WORKER:
            return registry.WORKER_MUTANTS
        if self.level is LevelChoice.WORKER:
            return registry.LATER_WORKER_MUTANTS[self.code.release]
        if self.code.release:
            return registry.RELEASE_MUTANTS[self.code.value][self.level.value]
        if self.level is LevelChoice.SCHEDULER:
            return registry.SCHEDULER_MUTANTS
        return registry.PAIR_MUTANTS if self.level is LevelChoice.PAIR else registry.BLOCK_MANAGER_MUTANTS

    @property
    def models(self) -> list[Model]:
        """The models that every mutant is run on; a mutant may name others."""
        from kvgate.adapters.registry import DEFAULT_MODELS, WORKER_MODELS
        from kvgate.gate.profiles import models_named

        if self.code is Code.RETENTION:
            # Each mutant names the few on which it shows soon.
            return []
        if self.code is Code.ASCEND_WORKER:
            return models_named(DEFAULT_MODELS[self.code.value])
        if self.level is LevelChoice.WORKER:
            return models_named(WORKER_MODELS[self.code.release])
        if self.code is Code.ASCEND_0_23_0 and self.level is LevelChoice.TIERS:
            return models_named(("gemma-hybrid+scratch",))
        if self.code.release and self.code is not Code.NATIVE_0_33_0:
            # Each mutant names those that show it; the schedulers of their own are run on what needs no more.
            return models_named(("gpt-oss-hybrid+scratch",))
        if self.code.release:
            return models_named(OF_LEVELS[self.level])
        if self.level is not LevelChoice.BLOCKS:
            return models_named(SCHEDULED)
        return models_named(()) + models_named(("two-windows+eagle",))

    @property
    def needs(self) -> tuple[str, ...]:
        """The connector, where all its mutants are of one: the system as it is runs with that as well."""
        from kvgate.levels.tiers.level import CONNECTOR

        wanted = [{need for need in mutant.needs if need.startswith(CONNECTOR)} for mutant in self.mutants]
        return tuple(set.intersection(*wanted)) if wanted else ()

    def benches(self, each_detector: bool) -> tuple[Trials, dict[str, Trials]]:
        """What runs the cases with all detectors, and, if asked for, with fewer."""
        from kvgate.adapters.registry import load_system
        from kvgate.gate.case_runner import Trials
        from kvgate.levels.registry import LEVELS
        from kvgate_mutants.mutation_run import each_alone

        system, level = load_system(self.code.value), LEVELS[self.level.value]
        gate = Trials(level.bench(system, level.gate))
        if not each_detector:
            return gate, {}
        if self.level is LevelChoice.BLOCKS:
            return gate, each_alone(system)
        return gate, {"monitors": Trials(level.bench(system, level.monitors))}


SETS = (
    MutantSet(Code.STOCK, LevelChoice.BLOCKS, "vLLM as it is"),
    MutantSet(Code.STOCK, LevelChoice.SCHEDULER, "vLLM's scheduler as it is"),
    MutantSet(Code.STOCK, LevelChoice.PAIR, "two nodes as they are"),
    MutantSet(Code.STOCK, LevelChoice.SCHEDULER, "vLLM's scheduler as it is, where features meet", Of.FEATURES),
    MutantSet(Code.STOCK, LevelChoice.BLOCKS, "The reference", Of.REFERENCE),
    MutantSet(Code.STOCK, LevelChoice.BLOCKS, "The checkers", Of.CHECKERS),
    # The plug-in stays in a process that has loaded it, so its set comes last.
    MutantSet(Code.RETENTION, LevelChoice.BLOCKS, "vLLM with the plug-in as it is"),
    # Its modules change vLLM for good: it is run by itself.
    MutantSet(Code.ASCEND_WORKER, LevelChoice.WORKER, "vLLM-Ascend's worker as it is"),
    MutantSet(Code.ASCEND_WORKER_0_23_0, LevelChoice.WORKER, "The worker of vLLM-Ascend 0.23.0 as it is"),
    MutantSet(Code.ASCEND_WORKER_0_30_0, LevelChoice.WORKER, "The worker of vLLM-Ascend 0.30.0rc2 as it is"),
    # A process has one vLLM.
    MutantSet(Code.ASCEND_0_23_0, LevelChoice.BLOCKS, "The block manager of vLLM-Ascend 0.23.0 as it is"),
    MutantSet(Code.ASCEND_0_23_0, LevelChoice.SCHEDULER, "vLLM-Ascend 0.23.0 under vLLM's scheduler as it is"),
    MutantSet(Code.ASCEND_0_23_0, LevelChoice.TIERS, "AscendStoreConnector of vLLM-Ascend 0.23.0 as it is"),
    MutantSet(
        Code.ASCEND_RECOMPUTE_0_23_0, LevelChoice.SCHEDULER, "The recomputing scheduler of vLLM-Ascend 0.23.0 as it is"
    ),
    MutantSet(Code.ASCEND_0_30_0, LevelChoice.BLOCKS, "The block manager of vLLM-Ascend 0.30.0rc2 as it is"),
    MutantSet(Code.ASCEND_0_30_0, LevelChoice.SCHEDULER, "vLLM-Ascend 0.30.0rc2 under vLLM's scheduler as it is"),
    MutantSet(Code.NATIVE_0_33_0, LevelChoice.BLOCKS, "The block manager of vLLM 0.33.0 as it is"),
    MutantSet(Code.NATIVE_0_33_0, LevelChoice.SCHEDULER, "The scheduler of vLLM 0.33.0 as it is"),
    MutantSet(Code.NATIVE_0_33_0, LevelChoice.TIERS, "The connector of vLLM 0.33.0 and its tier as they are"),
)
SCHEDULED = ("full", "two-windows+eagle", "gpt-oss-hybrid", "full+eagle", "swa")
"""The models that a mutant of a scheduler is run on: little of what a scheduler does depends on the groups."""
OF_RELEASES = (
    *("full+eagle+hashed-ahead+scratch", "gpt-oss-hybrid+scratch", "gemma-hybrid+eagle+scratch"),
    *("mixed-blocks+masked+scratch", "mamba-align+scratch"),
)
"""The models that a mutant of a release's block manager is run on, if it names none."""
SCHEDULED_IN_RELEASES = (
    *("full+scratch", "two-windows+eagle+scratch", "gpt-oss-hybrid+scratch", "full+eagle+hashed-ahead+scratch"),
    "swa+scratch",
)
"""The same of a release's scheduler."""
WITH_TIERS = ("full+scratch", "gpt-oss-hybrid+scratch", "full+eagle+scratch", "swa+scratch")
"""The same of a release's connector."""
OF_LEVELS = {
    LevelChoice.BLOCKS: OF_RELEASES,
    LevelChoice.SCHEDULER: SCHEDULED_IN_RELEASES,
    LevelChoice.TIERS: WITH_TIERS,
}


def mutants(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Only these mutants.")] = None,
    sut: Annotated[
        Code,
        typer.Option(
            "--sut",
            help="Whose code they break: vLLM's (stock), the plug-in's (retention), a later release's (native@0.33.0), "
            "vLLM-Ascend's (ascend@0.23.0), or that of its worker (ascend-worker, or a later release of it, with "
            "--level worker).",
        ),
    ] = Code.STOCK,
    level: Annotated[
        LevelChoice,
        typer.Option(
            "--level", help="In vLLM: its block manager, its scheduler, or one after the other; or two nodes."
        ),
    ] = LevelChoice.BLOCKS,
    of: Annotated[
        Of | None,
        typer.Option(
            "--of",
            help="A set of its own: of where the scheduler's features meet (features); of kvgate's own reference or "
            "checkers.",
        ),
    ] = None,
    everywhere: Annotated[
        bool, typer.Option("--all", help="Every set of vLLM at both levels and on two nodes, and of the plug-in.")
    ] = False,
    list_only: Annotated[bool, typer.Option("--list", help="List the mutants, and run nothing.")] = False,
    each_detector: Annotated[
        bool,
        typer.Option(
            "--each-detector",
            help="Also run lockstep and each monitor on its own; for the scheduler, the monitors without lockstep; for "
            "kvgate's own code, also the probes after the one that kills.",
        ),
    ] = False,
    minimise: Annotated[
        bool, typer.Option("--minimise", help="Also search for the smallest case that kills each.")
    ] = False,
    write: Annotated[
        Path | None,
        typer.Option("--write", metavar="FILE.md", help="Also write the sums as a page, and the rows as FILE.csv."),
    ] = None,
    seed: Seed = 0,
    output: TableOutput = TableFormat.TEXT,
) -> None:
    """Inject known faults one at a time, and report what finds each, after how many operations and seconds.

    Exit 0 if nothing new is found without a mutant and every mutant that is not equivalent is killed, 1 otherwise, 5
    if kvgate itself failed, 130 if interrupted and nothing failed by then.

    Examples:

      kvgate mutants

      kvgate mutants --list

      kvgate mutants look-ahead-not-dropped --each-detector

      kvgate mutants --level scheduler --minimise

      kvgate mutants --level pair

      kvgate mutants --of features --write features.md

      kvgate mutants --of reference --each-detector

      kvgate mutants --sut retention

      kvgate mutants --sut native@0.33.0 --level both

      kvgate mutants --all --minimise --write mutants.md
    """
    sets = _sets(sut, level, of, everywhere)
    chosen = _chosen(sets, names or ())
    command = _command(sut, level, of, everywhere, minimise)
    if list_only:
        _list([mutant for group in chosen.values() for mutant in group], output, write, command)
        return
    if of in OWN:
        _run_own(of.value, chosen[sets[0]], each_detector, write, output)
    finished: list[Killed] = []
    interrupted = False
    try:
        for each in _runs(chosen, seed, each_detector, minimise):
            # A later state of the same set replaces the earlier one.
            finished = [*(other for other in finished if other.title != each.title), each]
    except KeyboardInterrupt:
        interrupted = True
    from kvgate.kernel.data_file import data_name, write_both
    from kvgate.report.formats import echo
    from kvgate_mutants.kill_table import page, report_of

    if write is not None:
        write_both(write, *page(finished, f"{command} --write {write.name}", data_name(write)))
    report = report_of(finished, interrupted)
    echo(report, output)
    raise typer.Exit(report.exit_code)


def _list(known: Sequence[Mutant], output: TableFormat, write: Path | None, command: str) -> None:
    from kvgate.kernel.data_file import data_name, write_both
    from kvgate.report.document import Report
    from kvgate.report.formats import echo
    from kvgate_mutants.kill_table import list_of, list_page

    section = list_of(known)
    if write is not None:
        write_both(write, *list_page(section, f"{command} --list --write {write.name}", data_name(write)))
    echo(Report("mutants --list", tested=(section,)), output)


def _run_own(of: str, chosen: Sequence[Mutant], every: bool, write: Path | None, output: TableFormat) -> NoReturn:
    """Run mutants of kvgate's own code, and end."""
    from kvgate.kernel.data_file import data_name, write_both
    from kvgate.kernel.progress import progress_line
    from kvgate.report.formats import echo
    from kvgate_mutants import own_code_run

    results: list[own_code_run.Result] = []
    interrupted = False
    with progress_line() as line:
        line.say("importing vLLM …")
        run = own_code_run.run_reference if of == Of.REFERENCE.value else own_code_run.run_checkers
        try:
            for state in run(chosen, every, line.say):
                results = state
        except KeyboardInterrupt:
            interrupted = True
    if write is not None:
        command = " ".join(["kvgate mutants --of", of, *(["--each-detector"] if every else []), "--write", write.name])
        write_both(write, *own_code_run.page(of, results, command, data_name(write)))
    report = own_code_run.report_of(of, results, interrupted)
    echo(report, output)
    raise typer.Exit(report.exit_code)


def _sets(code: Code, level: LevelChoice, of: Of | None, everywhere: bool) -> tuple[MutantSet, ...]:
    if everywhere:
        if (code, level, of) != (Code.STOCK, LevelChoice.BLOCKS, None):
            raise UsageError("--all takes no --sut and no --level: it runs every mutant set of vLLM and the plug-in")
        everything = [each for each in SETS if each.of not in OWN and each.code in (Code.STOCK, Code.RETENTION)]
        # The plug-in stays in the process, and with it the others would not break what is published.
        return tuple(sorted(everything, key=lambda each: each.code is Code.RETENTION))
    if of is not None:
        if (code, level) != (Code.STOCK, LevelChoice.BLOCKS):
            raise UsageError("--of takes no --sut and no --level: the set says where it runs")
        return tuple(each for each in SETS if each.of is of)
    levels = (LevelChoice.BLOCKS, LevelChoice.SCHEDULER) if level is LevelChoice.BOTH else (level,)
    if code is Code.RETENTION and levels != (LevelChoice.BLOCKS,):
        raise UsageError(f"the mutants of schedulers are vLLM's own: kvgate mutants --level {level.value}")
    chosen = tuple(each for each in SETS if each.code is code and each.level in levels and each.of is None)
    if not chosen:
        there = " or ".join(f"kvgate mutants{each.option}" for each in SETS if each.code is code)
        raise UsageError(f"no mutants of {code.value} at --level {level.value}: {there}")
    return chosen


def _command(code: Code, level: LevelChoice, of: Of | None, everywhere: bool, minimise: bool) -> str:
    options = ["--sut", code.value, "--level", level.value]
    if everywhere or of is not None:
        options = ["--all"] if of is None else ["--of", of.value]
    return " ".join(["kvgate mutants", *options, *(["--minimise"] if minimise else [])])


def _chosen(sets: Sequence[MutantSet], names: Sequence[str]) -> dict[MutantSet, list[Mutant]]:
    known = {mutant.name: (each, mutant) for each in sets for mutant in each.mutants}
    chosen: dict[MutantSet, list[Mutant]] = {}
    for name in names or known:
        if name not in known:
            other = next((each for each in SETS if name in {mutant.name for mutant in each.mutants}), None)
            hint = f"it is one of kvgate mutants{other.option}" if other else ""
            raise UsageError(
                f"unknown mutant {name!r}: {hint or f'kvgate mutants --list{sets[0].option} says what there is'}"
            )
        of, mutant = known[name]
        chosen.setdefault(of, []).append(mutant)
    return chosen


def _runs(chosen: dict[MutantSet, list[Mutant]], seed: int, each_detector: bool, minimise: bool) -> Iterator[Killed]:
    """Run each set; the state after every mutant is yielded, so that an interrupt loses nothing."""
    from kvgate.kernel.progress import progress_line
    from kvgate_mutants.kill_table import Killed
    from kvgate_mutants.mutation_run import run_mutant, run_until_killed

    with progress_line() as line:
        for each, group in chosen.items():
            line.say(f"loading {each.code.value} …")
            bench, alone = each.benches(each_detector)
            models = each.models
            line.say(f"{each.title} …")
            baseline = BASELINE_OPERATIONS if each.level is LevelChoice.BLOCKS else BASELINE_OPERATIONS // 4
            everywhere = [*models, *_beyond(models, each.mutants)]
            alarm = run_until_killed(bench.towards(each.needs), everywhere, seed, baseline, MUTANT_SECONDS)
            results: list[MutantResult] = []
            yield Killed(each.title, alarm, ())
            for number, mutant in enumerate(group):
                line.say(f"{number + 1} of {len(group)}: {mutant.name}")
                results.append(
                    run_mutant(
                        bench,
                        mutant,
                        [*models, *_beyond(models, [mutant])],
                        seed=seed,
                        operations=MUTANT_OPERATIONS if mutant.equivalent is None else baseline,
                        seconds=MUTANT_SECONDS,
                        alone=alone,
                        shrinks=minimise,
                    )
                )
                yield Killed(each.title, alarm, tuple(results))


def _beyond(models: Sequence[Model], named_by: Iterable[Mutant]) -> list[Model]:
    """The models that mutants name and ``models`` lacks: on others these mutants do not show."""
    from kvgate.gate.profiles import models_named

    there = {name for model in models for name in (model.name, model.name.split("+")[0])}
    beyond = dict.fromkeys(name for mutant in named_by for name in mutant.models or () if name not in there)
    return models_named(tuple(beyond)) if beyond else []
