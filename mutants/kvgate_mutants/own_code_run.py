"""A run of the mutants of our own code: each is injected into this process, and its probes are run.

A probe of a mutant of the reference is what a user runs, with a smaller budget:

- ``MODEL`` stands for three: ``kvgate check`` of vLLM's block manager (``blocks``) and scheduler (``scheduler``) with
  that model, with the plug-in where the model has a mechanism of it; and ``kvgate conform`` on it (``conform``);
- ``pair:MODEL``, ``explore:TINY`` and ``prove:OBLIGATION`` are one each;
- ``blocks:MODEL@SYSTEM`` and ``scheduler:MODEL@SYSTEM`` are of a system that is named, such as ``native@0.33.0``. They
  run in a process of their own, for a process has one vLLM.

Such a mutant is killed if a probe finds something that it does not find without the mutant: then the command ends with
exit code 1. If a probe raises, the command says with exit code 5 that kvgate itself failed, and names no guarantee: the
mutant is *stopped*, which is counted apart, unless another probe kills it.

A probe of a mutant of a checker is ``CHECKER:MUTANT``, or ``CHECKER:MUTANT@MODEL``: a mutant of vLLM, the plug-in or
two nodes, that this detector finds by itself. The cases up to the one that kills it are run again with the broken
checker. The mutant of the checker is killed if nothing is found in them, so that the broken system passes unnoticed; or
if something is found in the same cases of a system that is not broken. It is *covered*, and not counted as killed, if
the system is found under another guarantee, by another checker or comparison, or at another operation; it survives if
all of that is as it was.

Of a monitor (``ghost``), and of ``LEVEL.DETECTOR``, only what this detector finds counts; above the block manager all
check, and the case ends with what one of them finds. ``glance`` compares the whole states at the end of a case alone,
and before that what an operation may have changed. ``shadow`` attaches a shadow to a simulation of vLLM's scheduler.
``equality``, ``slots``, ``tier-memory``, ``unordered``, ``twice`` and ``findings`` check what is written here, with one
thing wrong. ``tiers.DETECTOR`` is of vLLM 0.33.0's connectors, in a process of its own.

``unbroken:LEVEL:MODEL`` is a system that is not broken: such a probe kills if something is found in it.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext, suppress
from functools import cache
from multiprocessing import get_context
from types import MappingProxyType
from typing import Any
from unittest.mock import patch

from attrs import define, evolve, field, frozen

from kvgate.adapters.registry import Loaded, load_system
from kvgate.findings.rates import AtLeast
from kvgate.gate.campaign import Campaign, Plan
from kvgate.gate.case_runner import Lane, Trial, Trials, kind_of
from kvgate.gate.generator import PRESETS
from kvgate.gate.level import Bench as LevelBench
from kvgate.gate.verdict import Found
from kvgate.kernel.difference import Difference
from kvgate.kernel.errors import SystemUnavailableError, UsageError
from kvgate.kernel.models import load
from kvgate.kernel.output import AGREEMENT, DIVERGENCE, INTERRUPTED
from kvgate.levels.manager import DETECTORS, MONITORS, Bench
from kvgate.levels.registry import LEVELS, certain_of
from kvgate.report.document import Column, Report, Section, Story, columns
from kvgate.shadow.sink_protocol import Passive
from kvgate_mutants.mutants.mutant import Mutant
from kvgate_mutants.mutants.registry import (
    BLOCK_MANAGER_MUTANTS,
    CHECKER_MUTANTS,
    FEATURE_MUTANTS,
    PAIR_MUTANTS,
    PLUGIN_MUTANTS,
    REFERENCE_MUTANTS,
    RELEASE_MUTANTS,
    SCHEDULER_MUTANTS,
    WORKER_MUTANTS,
)
from kvgate_mutants.mutation_run import Kill, Shown, run_until_killed

OPERATIONS = {"blocks": 15_000, "scheduler": 4_000, "pair": 3_000, "conform": 3_000}
"""How many operations a probe runs at most."""
SECONDS = 60.0
"""How long a probe runs at most."""
CHECKED_ON = {
    "blocks": ("full", "swa", "gemma-hybrid", "full+eagle"),
    "scheduler": ("full", "two-windows+eagle", "full+eagle"),
    "pair": ("full", "two-windows+eagle", "gpt-oss-hybrid", "full+eagle", "swa"),
    "worker": ("full", "gemma-hybrid"),
    "tiers": ("full+scratch", "gpt-oss-hybrid+scratch", "full+eagle+scratch"),
}
"""The models that a broken system is run on if it names none."""
TIERS_OF = "native@0.33.0"
"""The release whose broken connectors the checkers of two tiers are shown."""
_RAISED = "raised "
_MECHANISMS = frozenset(("masked", "retention", "scratch", "pinned", "partial"))
"""The suffixes of models that vLLM alone does not serve."""
_KNOWN = {
    level: {each.name: each for each in found}
    for level, found in {
        "blocks": (*PLUGIN_MUTANTS, *BLOCK_MANAGER_MUTANTS),
        "scheduler": (*FEATURE_MUTANTS, *SCHEDULER_MUTANTS),
        "pair": PAIR_MUTANTS,
        "worker": WORKER_MUTANTS,
        "tiers": RELEASE_MUTANTS[TIERS_OF]["tiers"],
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
        return self.kill is None and not self.covered and not self.stopped

    @property
    def kill(self) -> tuple[str, Kill] | None:
        """The first probe that killed it."""
        return next(((probe, kill) for probe, kill in self.kills.items() if kill and not has_stopped(kill)), None)

    @property
    def stopped(self) -> bool:
        """Whether a probe raised, and none killed it."""
        return self.kill is None and any(kill and has_stopped(kill) for kill in self.kills.values())


def has_stopped(kill: Kill) -> bool:
    """Whether a probe raised, instead of finding something."""
    return isinstance(kill.found, Shown) and kill.found.check.startswith(_RAISED)


# Mutants of the reference


def probes_of(mutant: Mutant) -> tuple[str, ...]:
    """The probes, one for each layer and model."""
    return tuple(
        each
        for probe in mutant.probes
        for each in ([probe] if ":" in probe else [f"{layer}:{probe}" for layer in ("blocks", "scheduler", "conform")])
    )


def _system(model: str) -> str:
    model, _, named = model.partition("@")
    if named:
        return named
    return "retention" if _MECHANISMS & {word.partition("=")[0] for word in model.split("+")} else "stock"


def _check(level: str, model: str, operations: int) -> Kill | None:
    chosen, system = LEVELS[level], load_system(_system(model))
    trials, certain = Trials(chosen.bench(system, chosen.gate)), certain_of(system, chosen)
    return run_until_killed(trials, [load(model.partition("@")[0])], 0, operations, SECONDS, certain=certain)


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
    from kvspec.proof_result import Options, Outcome, Task, check_obligation
    from kvspec.registry import obligations

    result = check_obligation(obligations()[name], Task(name), Options(proof_only=True))
    if result.outcome in (Outcome.PROVED, Outcome.UNKNOWN):
        return None
    return Kill(Shown("prove", f"{name}: {result.outcome.value}"), 0, result.seconds)


def _of_reference(probe: str, operations: int | None = None) -> Kill | None:
    """What a probe finds with the current injection."""
    layer, _, what = probe.partition(":")
    if layer in ("explore", "prove"):
        return (_explore if layer == "explore" else _prove)(what)
    limit = OPERATIONS[layer] if operations is None else operations
    return _conform(what, limit) if layer == "conform" else _check(layer, what, limit)


def probed(mutant: Mutant | None, probe: str, operations: int | None = None) -> Kill | None:
    """What a probe finds with ``mutant`` injected into the reference, or without one."""
    if "@" in probe:
        run = _process_of(_system(probe.partition(":")[2])).submit
        return run(_probed_by_name, None if mutant is None else mutant.name, probe, operations).result()
    with nullcontext() if mutant is None else mutant.applied():
        return _guarded(_of_reference, probe, operations)


@cache
def _process_of(system: str) -> ProcessPoolExecutor:
    """The process that has the vLLM of ``system``: it is kept, since loading it takes longer than most probes."""
    del system
    return ProcessPoolExecutor(1, get_context("spawn"))


def _probed_by_name(name: str | None, probe: str, operations: int | None) -> Kill | None:
    with nullcontext() if name is None else next(each for each in REFERENCE_MUTANTS if each.name == name).applied():
        return _guarded(_of_reference, probe, operations)


# Mutants of checkers


@frozen
class _Glancing(Bench):
    """A block manager of which only glances are compared before the end of a case."""

    whole_every: int = 1_000_000

    def glancing(self) -> Bench:
        return self


def _bench(checker: str, system: Loaded) -> LevelBench:
    if checker == "glance":
        return _Glancing(system.factory, ("lockstep",))
    level = LEVELS[level_of(checker)]
    return level.bench(system, (checker,) if checker in DETECTORS else level.gate)


def level_of(checker: str) -> str:
    """The level of the broken systems that a checker is shown."""
    level = checker.partition(".")[0]
    return level if level in ("scheduler", "pair", "worker", "tiers") else "blocks"


@frozen
class _OfOne:
    """Cases of which only counts what one detector found."""

    trials: Trials
    detector: str

    def trial(self, lane: Lane, seed: str, campaign_seed: int, until: float = math.inf) -> Trial:
        trial = self.trials.trial(lane, seed, campaign_seed, until)
        return evolve(trial, found=tuple(each for each in trial.found if each.divergence.detector == self.detector))

    def smallest(self, found: Found, until: float) -> Found:
        return self.trials.smallest(found, until)


def _of_checker(
    probe: str, operations: int | None = None, broken: bool = True, mutant: Mutant | None = None
) -> Kill | None:
    """What a checker finds in the system that the probe names; if not ``broken``, without the fault.

    ``mutant`` is the one that is injected now, for a probe that runs in a process of its own.
    """
    checker, _, name = probe.partition(":")
    if checker in WRITTEN:
        return WRITTEN[checker](name if broken else "")
    if checker == "unbroken":
        level, _, model = name.partition(":")
        return _check(level, model, OPERATIONS[level])
    if level_of(checker) == "tiers":
        run = _process_of(TIERS_OF).submit
        return run(_checked_by_name, mutant.name if mutant else None, probe, operations, broken).result()
    return _in_a_broken_system(probe, operations, broken)


def _checked_by_name(name: str | None, probe: str, operations: int | None, broken: bool) -> Kill | None:
    with nullcontext() if name is None else next(each for each in CHECKER_MUTANTS if each.name == name).applied():
        return _in_a_broken_system(probe, operations, broken)


def _in_a_broken_system(probe: str, operations: int | None, broken: bool) -> Kill | None:
    checker, _, name = probe.partition(":")
    level, (name, _, model) = level_of(checker), name.partition("@")
    fault = _KNOWN[level][name]
    # An adapter rejects a vLLM whose signatures changed.
    system = load_system(TIERS_OF if level == "tiers" else "retention" if is_last(probe) else "stock")
    with fault.applied() if broken else nullcontext():
        if checker == "shadow":
            return _shadow()
        models = [load(each) for each in ((model,) if model else fault.models or CHECKED_ON[level])]
        trials = Trials(_bench(checker, system)).towards(fault.needs)
        detector = checker.partition(".")[2] or (checker if checker in MONITORS else "")
        alone = _OfOne(trials, detector) if detector else trials
        return run_until_killed(alone, models, 0, 30_000 if operations is None else operations, 4 * SECONDS)


@define
class _Beneath(Passive):
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
    from kvgate.shadow.calls import expanded
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
        for record in expanded(salting.salted(records)):
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


def _slots(case: str) -> Kill | None:
    """Whether a fault in a worker's memory, block tables, slot mappings, attention metadata or copies is noticed."""
    from kvgate.adapters.model_runner.compressor import OperatorInput
    from kvgate.adapters.model_runner.runner import Memory, Part, Prepared, Tensor
    from kvgate.levels.worker.slot_check import (
        Granted,
        check,
        check_cleared,
        check_copies,
        check_memory,
        check_metadata,
        check_operator,
    )
    from kvreference.answers import Copy
    from kvreference.slots import Layout

    tensor = Tensor(blocks=4, block_slots=4, block_bytes=4, slot_bytes=1, first_byte=0)
    part = Part(((1, 2), (1, 3), (2, 0), (2, 1)), ((1, 2),), (2,), (6,), (0, 4), (2, 3, 4, 5), 1)
    prepared = Prepared(("a",), (4,), (((1, 2),),), ((6, 7, 8, 9, -7),), metadata=((part,),))
    copied, granted, drafts_max = (b"....abcdefgh....", b"....abcdabgh...."), {"a": Granted(2, 6, ((1, 2),), 3)}, 3
    if case == "memory-with-slots-of-two-bytes":
        tensor = evolve(tensor, slot_bytes=2)
    elif case == "memory-with-blocks-half-as-far":
        tensor = evolve(tensor, block_bytes=2)
    elif case == "memory-with-blocks-of-two-slots":
        tensor = evolve(tensor, blocks=8, block_slots=2, block_bytes=2)
    elif case == "batch-without-its-request":
        prepared = evolve(prepared, requests=())
    elif case == "batch-in-kernel-blocks-of-three":
        prepared = evolve(prepared, kernel_block_sizes=(3,))
    elif case == "batch-with-another-block":
        prepared = evolve(prepared, tables=(((1, 3),),))
    elif case == "batch-with-another-slot":
        prepared = evolve(prepared, slots=((6, 7, 8, 10, -7),))
    elif case == "metadata-without-its-row":
        prepared = evolve(prepared, metadata=((),))
    elif case == "metadata-with-another-slot":
        part = evolve(part, slots=((1, 2), (1, 3), (2, 0), (2, 2)))
        prepared = evolve(prepared, metadata=((part,),))
    elif case == "metadata-without-room-for-a-slot":
        part = evolve(part, slots=None, finds=(4, 1, 3))
        prepared = evolve(prepared, metadata=((part,),))
    elif case in ("operator-without-a-call", "operator-for-numbers-of-slots", "operator-with-a-slot-too-many"):
        kind, room = 1 if case.endswith("numbers-of-slots") else 2, 5 if case.endswith("too-many") else 4
        call = OperatorInput((0, 4), (2,), ((1, 2),), 4, kind, 1, room, 1, (2, 3, 4, 5))
        part = evolve(part, slots=None, finds=(4, 1, 4), found=None if case.endswith("a-call") else call)
        prepared = evolve(prepared, metadata=((part,),))
    elif case == "metadata-with-drafts-as-a-prompt":
        prepared = evolve(prepared, metadata=((evolve(part, decodes=0),),))
    elif case == "metadata-with-a-prompt-as-drafts":
        drafts_max = 2
    elif case == "copies-of-nothing":
        copied = copied[0], copied[0]
    elif case == "copies-to-two-blocks":
        copied = copied[0], b"....abcdabghab.."
    elif case == "cleared-one-too-few":
        prepared = evolve(prepared, cleared=((3,),), touched=frozenset({3}))
    elif case == "cleared-one-too-many":
        prepared = evolve(prepared, cleared=((3, 5),), touched=frozenset({3, 5, 6}))
    memory, layouts = (Memory(4, 16, (tensor,)),), (Layout(4),)
    checkers: Mapping[str, Callable[[], Difference | None]] = {
        "memory": lambda: check_memory(memory, prepared.kernel_block_sizes),
        "batch": lambda: check(prepared, granted, layouts),
        "metadata": lambda: check_metadata(prepared, granted, layouts, drafts_max),
        "operator": lambda: check_operator(prepared, granted, layouts),
        "copies": lambda: check_copies((copied,), memory, layouts, (Copy(0, 1, 2, 2),)),
        "cleared": lambda: check_cleared(prepared, (frozenset({3, 5}),)),
    }
    asked = case.partition("-")[0]
    found = next(filter(None, (found_by() for name, found_by in checkers.items() if asked in ("", name))), None)
    return None if found is None else Kill(Shown("slots", f"{found.statement} {found.subject}"), 1, 0.0)


def _tier_memory(case: str) -> Kill | None:
    """Whether a fault in what jobs, steps and loads do with the blocks of two tiers is noticed."""
    from kvgate.levels.tiers.memory import Claim, Copy, Job, StepUse, TierMemory
    from kvreference.attention import Kind
    from kvreference.geometry import Geometry, Group
    from kvreference.settings import Settings

    groups = Group(Kind.FULL, 4), Group(Kind.SLIDING_WINDOW, 4, 5)
    memory = TierMemory(Settings(Geometry(groups), 20, 100, 100, 4), blocks_per_chunk=1)
    tokens = memory.tokens["one"] = []
    for token in range(8):
        tokens.append(memory.prefixes.after(tokens[-1] if tokens else "no salt", token))
    memory.name(b"first", tokens[3])
    memory.name(b"both", tokens[7])
    for group, table in enumerate(([1, 2], [3, 4])):
        memory.write(group, table, 0, tokens)

    def job(number: int, loads: bool, block: int, chunk: int = 7, key: bytes = b"first", place: int = 0) -> Job:
        return Job((0, number, 0), loads, "one", (Copy(0, block, chunk, 0, place),), {chunk: (key, 0)})

    def reads(table: Sequence[int], claim: Claim | None = None) -> None:
        wrong = memory.wrong(0, table, 7, tokens)
        if wrong is not None:
            memory.misread("one", wrong, claim)

    memory.begin(job(0, False, 1))
    if case == "step-writes-what-a-store-reads":
        memory.write(0, [1, 2], 0, tokens[:1])
    elif case == "load-to-a-block-that-a-store-reads":
        memory.begin(job(1, True, 1, chunk=8))
    elif case == "store-to-a-chunk-that-a-store-writes":
        memory.begin(job(1, False, 1))
    if memory.found is None:
        memory.end((0, 0, 0))
    by_another = case == "load-by-another-key"
    memory.begin(job(2, True, 9, key=b"both" if by_another else b"first", place=int(by_another)))
    memory.begin(job(3, True, 10, place=1 if case == "load-to-another-place" else 0))
    if case == "block-of-a-load-is-cleared":
        memory.clear(9)
    elif case == "block-of-a-load-is-copied-to":
        memory.copy(1, 9)
    memory.claims["one"] = Claim(8, ([9, 11 if case == "hit-lacks-a-block" else 2], [3, 4]))
    if memory.found is None:
        memory.end((0, 2, 0))
    if memory.found is None:
        memory.end((0, 3, 0))
    memory.in_flight = [StepUse(frozenset({1, 2}), frozenset({2}))]
    memory.check_unordered([2 if case == "store-next-to-a-step-that-writes" else 1], loads=False)
    memory.check_unordered([1 if case == "load-next-to-a-step-that-reads" else 5], loads=True)
    memory.begin(job(4, False, 2 if case == "store-of-another-block" else 1, chunk=9))
    if memory.found is None:
        memory.end((0, 4, 0))
    if case == "hash-of-two-prefixes":
        memory.name(b"first", tokens[0])
    memory.write(0, [1, 0 if case == "step-writes-the-null-block" else 2], 4, tokens[4:])
    reads([1, 4 if case == "read-of-another-group" else 2])
    # Block 6 holds already what the load is to bring there.
    memory.device[6] = memory.device[2]
    claim = Claim(8, ([1, 6], [3, 4]), 4)
    memory.expect("one", claim)
    if case == "load-brings-nothing":
        reads([1, 6], claim)
    memory.device[6] = memory.device[2]
    reads([1, 6], claim)
    memory.fail({6}, ())
    if case == "failed-block-is-read":
        reads([1, 6])
    wrong = memory.wrong(0, [1, 6], 7, tokens)
    if case == "step-after-a-failed-load-counts" and wrong is not None:
        memory.counts("one", wrong)
    found = memory.found
    return None if found is None else Kill(Shown("tier-memory", f"{found.statement} {found.subject}"), 1, 0.0)


def _unordered(case: str) -> Kill | None:
    """Whether a fault in the events of a system with an order of its own is noticed."""
    from kvgate.conformance.unordered import UnorderedComparison
    from kvreference.answers import Happened
    from kvreference.events import Cleared, Event, Removed
    from kvreference.operations import TakeEvents

    comparison = UnorderedComparison()
    for content in "ab":
        comparison.correspondence.relate(content, content)
    before, after = [Removed("a"), Removed("b")], [Removed("a")]
    reported: list[Event] = [*reversed(before), Cleared(), *after]
    if case == "not-cleared":
        reported.remove(Cleared())
    elif case == "one-too-few":
        reported = [*before, Cleared()]
    elif case == "of-another-content":
        reported = [*before, Cleared(), Removed("b")]
    found = comparison.of_answers(TakeEvents(), Happened((*before, Cleared(), *after)), Happened(tuple(reported)))
    return None if found is None else Kill(Shown("unordered", found.subject), 1, 0.0)


def _twice(case: str) -> Kill | None:
    """Whether it is noticed that a second run differs."""
    from kvgate.campaigns.twice import PARTS, differing
    from kvreference.operations import TakeEvents

    first = [tuple(f"{part} {step}" for part in PARTS) for step in range(2)]
    second = first[:1] if case == "a-step-less" else list(first)
    if case == "other-copies":
        second[1] = tuple("other" if part == "copies" else said for part, said in zip(PARTS, first[1], strict=True))
    found = differing(first, second, [TakeEvents(), TakeEvents()])
    return None if found is None else Kill(Shown("twice", found.difference.subject), found.step, 0.0)


def _findings(case: str) -> Kill | None:
    """Whether it is noticed that findings act where they cannot, in a case more than they may, less often, or never."""
    from kvgate.findings import modelled
    from kvgate.findings.finding import Finding
    from kvgate.findings.register import with_ids

    lanes = tuple(Lane(load("two-windows+eagle"), preset) for preset in sorted(PRESETS))
    allowed = -1 if case == "act-too-often" else 0

    def most(model: str, finding: str, _cases: int) -> int:
        return campaign.acted[model, finding] + allowed

    system = load_system("stock")
    plan = Plan(lanes, 3_000, seconds=SECONDS, kinds_max=1, shrinks=False, most=most)
    if case == "never-act":
        plan = evolve(plan, certain=lambda cases: {"000-acts-nowhere": 1.0} if any(cases.values()) else {})
    if case == "act-too-seldom":

        def least(model: str, _cases: int) -> dict[str, AtLeast]:
            counts = {finding: number for (of_model, finding), number in campaign.acted.items() if of_model == model}
            return {finding: AtLeast(number + 1, number + 1) for finding, number in counts.items()}

        plan = evolve(plan, least=least)
    campaign = Campaign(Trials(LEVELS["blocks"].bench(system, ("lockstep",))), plan)

    def acting_elsewhere(ids: Iterable[str]) -> list[Finding]:
        return [evolve(each, holds=lambda *_given: False) for each in with_ids(ids)]

    with patch.object(modelled, "with_ids", acting_elsewhere) if case == "act-elsewhere" else nullcontext():
        outcome = campaign.run()
    for seldom in outcome.too_seldom:
        saw = f"{seldom.finding} acts in {seldom.expected:.0f} of {seldom.cases} cases"
        return Kill(Shown("findings", saw), 3_000, outcome.seconds)
    if not outcome.found:
        return None
    return Kill(Shown("findings", str(outcome.found[0].divergence.difference)), 3_000, outcome.seconds)


WRITTEN: Mapping[str, Callable[[str], Kill | None]] = MappingProxyType(
    {
        **{"equality": _equality, "slots": _slots, "unordered": _unordered, "twice": _twice, "findings": _findings},
        "tier-memory": _tier_memory,
    }
)
"""What checks something that is written here."""


# A run


def is_last(probe: str) -> bool:
    """Whether a probe loads the plug-in, which stays in a process: such probes are run after all others."""
    layer, _, what = probe.partition(":")
    if layer in (*DETECTORS, "glance"):
        return any(each.name == what.partition("@")[0] for each in PLUGIN_MUTANTS)
    return layer in ("blocks", "scheduler") and _system(what) == "retention"


def _guarded(run: Callable[..., Kill | None], *given: Any) -> Kill | None:
    """What a probe finds, or that our own code raised.

    Raises:
        SystemUnavailableError: what a probe runs is not here; a mutant is not killed by that.
        UsageError: the same of what a probe asks for.
    """
    started = time.monotonic()
    try:
        return run(*given)
    except (SystemUnavailableError, UsageError) as error:
        probe = " ".join(map(str, given[:1]))
        raise type(error)(f"probe {probe} cannot be run, so it says nothing of a mutant: {error}") from error
    except Exception as error:
        return Kill(Shown(f"{_RAISED}{type(error).__name__}", str(error)), 0, time.monotonic() - started)


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
        kill = result.kills[probe] = probed(mutant, probe)
        if kill is not None:
            operations[probe] = max(operations.get(probe, 0), kill.operations)
        yield list(results.values())
    for probe, most in operations.items():
        report(f"without a mutant: {probe}")
        if probed(None, probe, most or None) is not None:
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
        is_unbroken = probe.startswith("unbroken:")
        if probe not in usual:
            usual[probe] = _of_checker(probe)
        found = usual[probe]
        if (found is None) is not is_unbroken:
            # The checker does not find it even as it is, or finds something without a fault: this probe says nothing.
            result.kills[probe] = None
            continue
        operations = None if found is None else found.operations
        with mutant.applied():
            seen = _guarded(_of_checker, probe, operations, True, mutant)
            alarm = seen and _guarded(_of_checker, probe, operations, False, mutant)
        if alarm is not None and _guarded(_of_checker, probe, operations, False) is not None:
            # It is raised without the mutant of the checker, too.
            alarm = None
        if found is None:
            result.kills[probe] = None if alarm is None else Kill(Shown("false alarm", alarm.by), alarm.operations, 0.0)
        elif seen is None:
            result.kills[probe] = Kill(Shown("unnoticed", found.statement or ""), found.operations, found.seconds)
        elif alarm is not None:
            result.kills[probe] = Kill(Shown("false alarm", alarm.by), alarm.operations, alarm.seconds)
        else:
            result.kills[probe] = None
            if _found(seen) != _found(found):
                result.covered[probe] = seen
        yield list(results.values())
    yield list(results.values())


def _found(kill: Kill) -> tuple[str, str | None, str, int]:
    if isinstance(kill.found, Shown):
        return kill.by, kill.found.saw, "", kill.operations
    return kill.by, kill.statement, kind_of(kill.found.divergence)[-1], kill.operations


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
    kill = next(iter(sorted(filter(None, run), key=has_stopped)), None)
    if kill is None:
        return "no"
    if has_stopped(kill):
        return "stopped"
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
    stopped = sum(each.stopped for each in results)
    covered = sum(each.kill is None and not each.survived for each in results) - stopped
    line += f", {covered} covered" if covered else ""
    line += f", {stopped} stopped" if stopped else ""
    killing = ({probe for probe, kill in each.kills.items() if kill and not has_stopped(kill)} for each in results)
    layers = Counter(layer for probes in killing for layer in {probe.partition(":")[0] for probe in probes})
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


def page(of: str, results: Sequence[Result], command: str, data: str) -> tuple[str, str]:
    """The sums as a page, and the rows as its data file ``data``; a survivor has its argument."""
    section = section_of(results, of)
    lines = [f"# Mutants of the {of}", "", _HEADS[of], "", f"{summary(results, of)}.", ""]
    lines += [f"Each mutant has a row in [{data}]({data}). Written by `{command}`; not edited.", ""]
    survives = [each.mutant.survives or "not argued" if each.survived else None for each in results]
    rows = tuple((*row, why) for row, why in zip(section.rows, survives, strict=True))
    argued = Section("", (*section.columns, Column("survives", optional=True)), rows)
    return "\n".join(lines), argued.csv()


_HEADS = {
    "reference": """\
A fault is injected into the reference; vLLM and the plug-in stay as they are. A layer must find it: the check of vLLM's
block manager (blocks), of its scheduler or of two nodes (pair), or `kvgate conform`, `explore` or `prove`. A cell names
the violated guarantee and the operation; "no" says that the layer found nothing, an empty cell that it was not run.
"stopped" says that kvgate itself failed (exit code 5), which is not a kill.""",
    "checkers": """\
A fault is injected into a checker, and then one into vLLM that this checker finds by itself. The broken checker must
let the broken vLLM pass: the table names the mutant of vLLM that it no longer finds. "Covered": the broken vLLM is
still found, by the checker or the guarantee that is named, by another comparison, or at a later operation.""",
}
