"""The one call, and the one that runs again what it found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from attrs import evolve

from kvgate.adapters.registry import Loaded, load_system
from kvgate.conformance.bench import FOLLOWING, ConformanceBench
from kvgate.conformance.capabilities import Capabilities
from kvgate.conformance.report import Report
from kvgate.gate import trace_codec
from kvgate.gate.campaign import Campaign, Progress
from kvgate.gate.case_runner import Trials, run_case
from kvgate.gate.fault import fault_of
from kvgate.gate.profiles import PROFILES, models_named, plan
from kvgate.gate.verdict import Tally, Verdict
from kvgate.kernel.errors import SystemUnavailableError, UsageError
from kvgate.kernel.protocol import Factory
from kvgate.levels.manager import GATE, MANAGER, MONITORS


def run(
    adapter: Factory | str,
    *,
    models: Sequence[str] = (),
    profile: str = "quick",
    capabilities: Capabilities | None = None,
    seed: int = 0,
    seconds: float | None = None,
    operations: int | None = None,
    name: str | None = None,
    progress: Callable[[Progress], None] = lambda _progress: None,
) -> Report:
    """Drive an allocator and the specification through the same operations, and say whether they agree.

    Args:
        adapter: What builds a system: a callable that takes ``Settings``, or its name, ``module:callable``.
        models: Names of models (see ``kvgate check --help``) or JSON files; those of the gate unless given.
        profile: How much: one of ``PROFILES``.
        capabilities: What the allocator has; everything, in vLLM's order, unless said otherwise.
        seed: What every case follows from.
        seconds: A time budget.
        operations: How many operations, instead of what the profile says.
        name: How the report calls the system.
        progress: Called now and then with the progress.

    Nothing is raised but ``KeyboardInterrupt`` before the first case; a campaign that is interrupted reports what it
    has. A report with an error has not passed, and neither has one of nothing.
    """
    has = capabilities or Capabilities()
    called = name or _name_of(adapter)

    def drive(system: Loaded) -> Verdict:
        if profile not in PROFILES:
            raise UsageError(f"unknown profile {profile!r}: give one of {', '.join(PROFILES)}")
        names = [models] if isinstance(models, str) else models
        planned = plan(profile, models_named(names), seed=seed, seconds=seconds)
        planned = evolve(planned, operations=operations or planned.operations)
        outcome = Campaign(Trials(bench_for(system.factory, has)), planned).run(progress)
        return Verdict(
            system=called,
            version=system.version,
            profile=profile,
            seed=seed,
            detectors=detectors_of(bench_for(system.factory, has)),
            tallies=outcome.tallies,
            found=outcome.found,
            declared=outcome.declared,
            seconds=outcome.seconds,
            ended=outcome.ended,
        )

    return _reported(adapter, has, Verdict(called, "unknown", profile, seed, ()), drive)


def replay(adapter: Factory | str, file: Path | str, *, capabilities: Capabilities | None = None) -> Report:
    """Run again what a report has written. The capabilities must be those that it was found with."""
    has = capabilities or Capabilities()
    called = _name_of(adapter)

    def drive(system: Loaded) -> Verdict:
        stored = trace_codec.read(Path(file), MANAGER)
        header = stored.header
        bench = bench_for(system.factory, has)
        run = run_case(bench, stored.case)
        return Verdict(
            system=called,
            version=system.version,
            profile="replay",
            seed=header.seed,
            detectors=detectors_of(bench),
            tallies=(Tally(header.model, header.preset, 1, run.operations),),
            found=tuple(evolve(each, finding=None) for each in run.found(header.seed)),
        )

    return _reported(adapter, has, Verdict(called, "unknown", "replay", 0, ()), drive)


def bench_for(factory: Factory, capabilities: Capabilities) -> ConformanceBench:
    """What checks a system with these capabilities."""
    follows = capabilities.order == "any"
    return ConformanceBench(factory, MONITORS if follows else GATE, capabilities=capabilities)


def detectors_of(bench: ConformanceBench) -> tuple[str, ...]:
    """What checks: the reference that follows is another one than the one that leads."""
    return (FOLLOWING, *bench.checkers) if bench.capabilities.order == "any" else bench.checkers


def _reported(
    adapter: Factory | str, capabilities: Capabilities, nothing: Verdict, drive: Callable[[Loaded], Verdict]
) -> Report:
    """The report of what ``drive`` sees, or of why it saw ``nothing``."""
    try:
        system = load_system(adapter) if isinstance(adapter, str) else Loaded(nothing.system, "unknown", adapter)
        return Report(drive(system), capabilities, bench_for(system.factory, capabilities))
    except (UsageError, SystemUnavailableError) as error:
        return Report(nothing, capabilities, error=str(error))
    except Exception as error:
        fault = fault_of(error)
        return Report(nothing, capabilities, error=f"kvgate itself failed: {fault.raised}, {fault.doing}", failed=True)


def _name_of(adapter: Factory | str) -> str:
    return adapter if isinstance(adapter, str) else str(getattr(adapter, "__qualname__", type(adapter).__qualname__))
