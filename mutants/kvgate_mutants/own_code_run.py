"""A run of the mutants of our own code: each is injected into this process, and its probes are run.

A probe of a mutant of the reference is what a user runs, with a smaller budget:

- ``MODEL`` stands for three: ``kvgate check`` of vLLM's block manager (``blocks``) and scheduler (``scheduler``) with
  that model, with the plug-in where the model has a mechanism of it; and ``kvgate conform`` on it (``conform``);
- ``pair:MODEL``, ``explore:TINY`` and ``prove:OBLIGATION`` are one each.

Such a mutant is killed if a probe finds something, or raises, that it does not find without the mutant: then the
command ends with an exit code other than 0.

A probe of a mutant of a checker is ``CHECKER:MUTANT``: a mutant of vLLM, the plug-in or two nodes, that this detector
finds by itself. The cases up to the one that kills it are run again with the broken checker. The mutant of the
checker is killed if nothing is found in them, so that the broken system passes unnoticed; or if something is found in
the same cases of a system that is not broken. It is *covered*, and not counted as killed, if the system is found under
another guarantee, by another checker or at another operation; it survives if all of that is as it was.
``shadow`` attaches a shadow to a simulation of vLLM's scheduler; ``equality`` compares results that are written here.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from typing import Any

from attrs import define, evolve, field, frozen

from kvgate.adapters.registry import load_system
from kvgate.gate.case_runner import Trials
from kvgate.kernel.models import load
from kvgate.kernel.output import AGREEMENT, DIVERGENCE, INTERRUPTED
from kvgate.levels.manager import DETECTORS
from kvgate.levels.registry import LEVELS
from kvgate.report.document import Column, Report, Section, Story, columns
from kvgate.report.github import markdown_table
from kvgate_mutants.mutants.mutant import Mutant
from kvgate_mutants.mutants.registry import BLOCK_MANAGER_MUTANTS, PAIR_MUTANTS, PLUGIN_MUTANTS, SCHEDULER_MUTANTS
from kvgate_mutants.mutation_run import Kill, Shown, run_until_killed

OPERATIONS = {"blocks": 10_000, "scheduler": 4_000, "pair": 3_000, "conform": 3_000}
"""How many operations a probe runs at most."""
SECONDS = 60.0
"""How long a probe runs at most."""
CHECKED_ON = {"scheduler": ("full", "two-windows+eagle", "full+eagle"), "pair": ("gpt-oss-hybrid", "full")}
"""The models that a broken system is run on if it names none; a block manager's on ``BLOCKS_ON``."""
BLOCKS_ON = ("full", "swa", "gemma-hybrid", "full+eagle")
_MECHANISMS = frozenset(("masked", "retention", "scratch", "pinned", "partial"))
"""The suffixes of models that vLLM alone does not serve."""
_KNOWN = {
    level: {each.name: each for each in found}
    for level, found in {
        "blocks": (*PLUGIN_MUTANTS, *BLOCK_MANAGER_MUTANTS),
        "scheduler": SCHEDULER_MUTANTS,
        "pair": PAIR_MUTANTS,
    }.items()
}


@frozen
class Result:
    """What became of one mutant."""

    mutant: Mutant
    kills: dict[str, Kill | None] = field(factory=dict)
    """Per probe that was run, what it found; None: nothing."""
    covered: dict[str, Kill] = field(factory=dict)
    """Per probe that found the broken system otherwise than a checker that is not broken, what it found."""

    @property
    def survived(self) -> bool:
        """Whether no probe found anything, or anything else than without the mutant."""
        return self.kill is None and not self.covered

    @property
    def kill(self) -> tuple[str, Kill] | None:
        """The first probe that killed it."""
        return next(((probe, kill) for probe, kill in self.kills.items() if kill is not None), None)


# Mutants of the reference


def probes_of(mutant: Mutant) -> tuple[str, ...]:
    """The probes, one for each layer and model."""
    return tuple(
        each
        for probe in mutant.probes
        for each in ([probe] if ":" in probe else [f"{layer}:{probe}" for layer in ("blocks", "scheduler", "conform")])
    )


def _system(model: str) -> str:
    return "retention" if _MECHANISMS & {word.partition("=")[0] for word in model.split("+")} else "stock"


def _check(level: str, model: str, operations: int) -> Kill | None:
    chosen, system = LEVELS[level], load_system(_system(model))
    return run_until_killed(Trials(chosen.bench(system, chosen.gate)), [load(model)], 0, operations, SECONDS)


def _conform(model: str, operations: int) -> Kill | None:
    from kvgate.explore.refinement_run import drive

    driven = drive([load(model)], operations, Counter())
    return Kill(Shown("conform", driven.wrong[0]), driven.operations, 0.0) if driven.wrong else None


def _explore(name: str) -> Kill | None:
    from kvgate.explore.exploration import Limits
    from kvgate.explore.search import Search
    from kvgate.explore.tiny_models import load as load_tiny

    found = Search(load_tiny(name).world(False, None), Limits(200_000, SECONDS), lambda _sighting: None).run()
    if found.found is None:
        return None
    saw = ", ".join(each.statement for each in found.found.violations) or "a circle without progress"
    return Kill(Shown("explore", saw), found.edges, found.seconds)


def _prove(name: str) -> Kill | None:
    from kvspec.proof_result import Outcome, Task, check_obligation
    from kvspec.registry import obligations

    result = check_obligation(obligations()[name], Task(name), proof_only=True)
    if result.outcome in (Outcome.PROVED, Outcome.UNKNOWN):
        return None
    return Kill(Shown("prove", f"{name}: {result.outcome.value}"), 0, result.seconds)


def _of_reference(probe: str, operations: int | None = None) -> Kill | None:
    """What a probe finds, whatever is injected now."""
    layer, _, what = probe.partition(":")
    if layer in ("explore", "prove"):
        return (_explore if layer == "explore" else _prove)(what)
    limit = OPERATIONS[layer] if operations is None else operations
    return _conform(what, limit) if layer == "conform" else _check(layer, what, limit)


# Mutants of checkers


def _of_checker(probe: str, operations: int | None = None, broken: bool = True) -> Kill | None:
    """What a checker finds in the system that the probe names; if not ``broken``, without the fault."""
    checker, _, name = probe.partition(":")
    if checker == "equality":
        return _equality(name if broken else "")
    level = "blocks" if checker in DETECTORS or checker == "shadow" else checker
    fault = _KNOWN[level][name]
    # An adapter refuses a vLLM whose signatures changed.
    system = load_system("retention" if is_last(probe) else "stock")
    with fault.applied() if broken else nullcontext():
        if checker == "shadow":
            return _shadow()
        default = BLOCKS_ON if level == "blocks" else CHECKED_ON[level]
        models = [load(each) for each in fault.models or default]
        detectors = (checker,) if level == "blocks" else LEVELS[level].gate
        trials = Trials(LEVELS[level].bench(system, detectors)).towards(fault.needs)
        return run_until_killed(trials, models, 0, operations or 30_000, 4 * SECONDS)


@define
class _Beneath:
    """A sink that checks each record at once."""

    follow: Callable[[Sequence[Any]], None]
    lost: int = 0
    is_immediate: bool = False

    def ready(self) -> bool:
        return True

    def send(self, records: Sequence[Any]) -> None:
        self.follow(records)


def _shadow() -> Kill | None:
    """What a shadow finds at vLLM's scheduler, which serves a few conversations in a small pool."""
    from kvgate.shadow.adapter.geometry import settings_of
    from kvgate.shadow.adapter.observer import Observer
    from kvgate.shadow.salting import Salting
    from kvgate.shadow.shadow_checker import Finding, ShadowChecker
    from kvgate.simulation.adapter.real import RealRun
    from kvgate.simulation.arm import Setting
    from kvgate.simulation.generators import agents
    from kvgate.simulation.policy import Policy, Serving

    talks = agents(sessions=8, turns=3, lanes=4, system_tokens=64, turn_tokens=48, answer_tokens=24)
    geometry = load("two-windows").geometry
    run = RealRun(Setting(talks, Serving("two-windows", geometry, 140, 1024, 64, 4), Policy()), "stock")
    settings, found = settings_of(run.scheduler), list[Finding]()
    checker = ShadowChecker(settings)
    salting = Salting(geometry.grain_tokens, [group.block_size_tokens for group in geometry.groups])

    def follow(records: Sequence[Any]) -> None:
        for record in salting.salted(records):
            found.extend(checker.follow(record))

    def failed(error: BaseException) -> None:
        raise error

    Observer(run.scheduler, _Beneath(follow), failed, checkpoint_calls=200, share_of_time=0)
    # A broken system may raise, and is over then: what the shadow saw until then counts.
    with suppress(AssertionError, LookupError, ValueError, AttributeError):
        run.finish()
    if not found:
        return None
    return Kill(Shown("shadow", found[0].difference.statement), found[0].call, 0.0)


def _equality(case: str) -> Kill | None:
    """Whether a fault in an engine's results is noticed."""
    from kvgate.adapters.cpu_engine.job import Answer, JobResult
    from kvgate.equality.feature import FEATURE, lacking
    from kvgate.equality.table import compare

    plain = Answer((5, 6), 0, -1.0, 0.5)
    expected = JobResult("without caching", (plain,))
    result = JobResult("hits", (plain,), drafts=4, drafts_accepted=2)
    if case == "other-tokens":
        result = evolve(result, answers=(evolve(plain, tokens=(5, 7)),))
    elif case == "other-probability":
        result = evolve(result, answers=(evolve(plain, first_logprob=-1.5),))
    elif case == "one-of-two":
        expected = evolve(expected, answers=(plain, plain))
        result = evolve(result, answers=(plain, evolve(plain, tokens=(5, 7))))
    elif case == "no-draft-accepted":
        result = evolve(result, drafts_accepted=0)
    unseen = [each for each in lacking(FEATURE["n-gram"], result, result) if each == "drafts"]
    cell = compare("model", "hits", expected, result, unseen)
    return None if cell.is_as_it_should_be else Kill(Shown("equality", cell.state.value), 1, 0.0)


# A run


def is_last(probe: str) -> bool:
    """Whether a probe loads the plug-in, which stays in a process: such probes are run after all others."""
    layer, _, what = probe.partition(":")
    if layer in DETECTORS:
        return any(each.name == what for each in PLUGIN_MUTANTS)
    return layer in ("blocks", "scheduler") and _system(what) == "retention"


def _guarded(run: Callable[..., Kill | None], *given: Any) -> Kill | None:
    """What a probe finds; an exception of our own code counts."""
    started = time.monotonic()
    try:
        return run(*given)
    except Exception as error:
        return Kill(Shown(f"raised {type(error).__name__}", str(error)), 0, time.monotonic() - started)


def run_reference(
    mutants: Sequence[Mutant], every_layer: bool, report: Callable[[str], None]
) -> Iterator[list[Result]]:
    """Run mutants of the reference; the state after each probe. With ``every_layer`` all probes of a killed one, too.

    What a probe finds without a mutant kills nothing: such kills are taken back in the last state.
    """
    results = {mutant.name: Result(mutant) for mutant in mutants}
    operations: dict[str, int] = {}
    for mutant, probe in _in_order((each, probe) for each in mutants for probe in probes_of(each)):
        result = results[mutant.name]
        if result.kill is not None and not every_layer:
            continue
        report(f"{mutant.name}: {probe}")
        with mutant.applied():
            kill = result.kills[probe] = _guarded(_of_reference, probe)
        if kill is not None:
            operations[probe] = max(operations.get(probe, 0), kill.operations)
        yield list(results.values())
    for probe, most in operations.items():
        report(f"without a mutant: {probe}")
        if _guarded(_of_reference, probe, most or None) is not None:
            for result in results.values():
                result.kills.pop(probe, None)
    yield list(results.values())


def run_checkers(mutants: Sequence[Mutant], every_layer: bool, report: Callable[[str], None]) -> Iterator[list[Result]]:
    """Run mutants of checkers; the state after each probe."""
    results = {mutant.name: Result(mutant) for mutant in mutants}
    usual: dict[str, Kill | None] = {}
    for mutant, probe in _in_order((each, probe) for each in mutants for probe in each.probes):
        result = results[mutant.name]
        if result.kill is not None and not every_layer:
            continue
        report(f"{mutant.name}: {probe}")
        if probe not in usual:
            usual[probe] = _of_checker(probe)
        found = usual[probe]
        if found is None:
            # The checker does not find it even as it is: this probe says nothing.
            result.kills[probe] = None
            continue
        with mutant.applied():
            seen = _guarded(_of_checker, probe, found.operations)
            alarm = None if seen is None else _guarded(_of_checker, probe, found.operations, False)
        if seen is None:
            result.kills[probe] = Kill(Shown("unnoticed", found.statement or ""), found.operations, found.seconds)
        elif alarm is not None:
            result.kills[probe] = Kill(Shown("false alarm", alarm.by), alarm.operations, alarm.seconds)
        else:
            result.kills[probe] = None
            if _found(seen) != _found(found):
                result.covered[probe] = seen
        yield list(results.values())
    yield list(results.values())


def _found(kill: Kill) -> tuple[str, str | None, int]:
    saw = kill.found.saw if isinstance(kill.found, Shown) else kill.statement
    return kill.by, saw, kill.operations


def _in_order(probes: Iterator[tuple[Mutant, str]]) -> list[tuple[Mutant, str]]:
    return sorted(probes, key=lambda each: is_last(each[1]))


# The report

LAYERS = ("blocks", "scheduler", "pair", "conform", "explore", "prove")


def section_of(results: Sequence[Result], of: str) -> Section:
    """The table: which layer, or which mutant of vLLM, kills which."""
    if of == "checkers":
        shown = (*columns("mutant", "guarantee", "checker", "what passes"), Column("what is broken"))
        return Section("", shown, tuple(map(_checker_row, results)))
    shown = (*columns("mutant", "guarantee", *LAYERS), Column("before", optional=True), Column("what is broken"))
    return Section("", shown, tuple(map(_reference_row, results)))


def _reference_row(result: Result) -> tuple[Any, ...]:
    mutant = result.mutant
    cells = [_layer(result, layer) for layer in LAYERS]
    return mutant.name, mutant.statement, *cells, mutant.before, mutant.sentence


def _layer(result: Result, layer: str) -> str | None:
    """What one layer found; None if it was not run."""
    run = [kill for probe, kill in result.kills.items() if probe.startswith(f"{layer}:")]
    if not run:
        return None
    kill = next((each for each in run if each is not None), None)
    if kill is None:
        return "no"
    if isinstance(kill.found, Shown):
        return kill.found.check if kill.found.check != layer else "yes"
    return f"{kill.statement} at {kill.operations}"


def _checker_row(result: Result) -> tuple[Any, ...]:
    mutant, kill = result.mutant, result.kill
    place = mutant.targets[0].partition(":")[0].rpartition(".")[2]
    if kill is not None:
        assert isinstance(kill[1].found, Shown)
        passes = f"{kill[0].partition(':')[2]}: {kill[1].found.check}"
    else:
        seen = [
            f"{probe.partition(':')[2]}: {' '.join(map(str, _found(kill)[:2]))}"
            for probe, kill in result.covered.items()
        ]
        passes = f"covered: {'; '.join(seen)}" if seen else "SURVIVED"
    return mutant.name, mutant.statement, place, passes, mutant.sentence


def summary(results: Sequence[Result], of: str) -> str:
    """The table in one line."""
    killed = sum(each.kill is not None for each in results)
    line = f"{killed} of {len(results)} mutants of the {of} killed"
    line += (
        f", {covered} covered" if (covered := sum(each.kill is None and not each.survived for each in results)) else ""
    )
    layers = Counter(
        layer for each in results for layer in {probe.partition(":")[0] for probe, kill in each.kills.items() if kill}
    )
    by = ", ".join(f"{layer} {count}" for layer, count in layers.most_common())
    return f"{line}; by {by}" if by else line


def report_of(of: str, results: Sequence[Result], interrupted: bool) -> Report:
    """The report: the table, and each survivor below Found."""
    survivors = [each for each in results if each.survived]
    return Report(
        command="mutants",
        outcome=summary(results, of),
        exit_code=DIVERGENCE if survivors else INTERRUPTED if interrupted else AGREEMENT,
        ended="interrupted" if interrupted else "completed",
        tested=(section_of(results, of),),
        found=tuple(Story(f"{each.mutant.name} SURVIVED: {each.mutant.sentence}") for each in survivors),
        found_noun="survivor",
    )


def page(of: str, results: Sequence[Result], command: str) -> str:
    """The table as a Markdown file."""
    section = section_of(results, of)
    lines = [f"# Mutants of the {of}", "", _HEADS[of], "", f"Written by `{command}`; not edited."]
    lines += ["", f"{summary(results, of)}.", "", *markdown_table(section, map(section.texts, section.rows))]
    survivors = [each for each in results if each.survived]
    lines += ["", "Survivors:", ""] if survivors else []
    lines += [f"- `{each.mutant.name}`: {each.mutant.sentence}" for each in survivors]
    return "\n".join((*lines, ""))


_HEADS = {
    "reference": """\
A fault is injected into the reference; vLLM and the plug-in stay as they are. A layer must find it: the check of vLLM's
block manager (blocks), of its scheduler or of two nodes (pair), or `kvgate conform`, `explore` or `prove`. A cell names
the violated guarantee and the operation; "no" says that the layer found nothing, an empty cell that it was not run.""",
    "checkers": """\
A fault is injected into a checker, and then one into vLLM that this checker finds by itself. The broken checker must
let the broken vLLM pass: the table names the mutant of vLLM that it no longer finds. "Covered": the broken vLLM is
still found, by the checker or the guarantee that is named, or at a later operation.""",
}
