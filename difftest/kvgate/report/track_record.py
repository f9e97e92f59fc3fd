"""Which releases show which findings: every stored trace on every release that is fetched, each in its own process.

``python -m kvgate.report.track_record FOLDER SYSTEM…`` prints a table. A trace is run with the settings it was found
with; where a release does not have them, with those it always has instead: scratch first, masked caching.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from attrs import evolve

from kvgate.adapters.registry import load_system
from kvgate.findings import explain
from kvgate.findings.register import id_of
from kvgate.gate.case_runner import Bench, run
from kvgate.gate.trace_codec import Trace, Violated, read
from kvgate.gate.verdict import Found
from kvgate.kernel.child_process import run as run_process
from kvgate.kernel.errors import SystemUnavailableError, UsageError
from kvgate.kernel.protocol import Factory
from kvgate.levels.scheduler.trace_codec import EngineTrace, is_engine_trace, read_engine
from kvreference.settings import Settings

SHOWN, NOT_SHOWN, REFUSED = "shown", "not shown", "cannot be run"
_APART = "--apart"


def outcome(factory: Factory, trace: Trace, finding: str) -> str:
    """What a system does with a trace: ``SHOWN``, ``NOT_SHOWN``, ``REFUSED``, or what else it violates."""
    refused = ""
    for settings in _variants(trace.header.settings):
        try:
            lockstep, divergences = run(Bench(factory, trace.header.detectors), settings, trace.operations)
        except UsageError as error:
            refused = refused or str(error)
            continue
        if not divergences:
            return NOT_SHOWN
        known = explain(divergences[0], lockstep)
        return SHOWN if known == finding else known or f"violates {divergences[0].difference.statement}"
    return f"{REFUSED}: {refused.partition(': ')[2]}"


def _variants(settings: Settings) -> Iterator[Settings]:
    """The settings, and what comes nearest to them where a release does not have them."""
    yield settings
    slides = any(group.slides for group in settings.geometry.groups)
    masked = settings.geometry.alignment_tokens if slides and settings.caches else None
    for interval in dict.fromkeys((settings.retention_interval_tokens, masked, None)):
        for first in (True, False):
            for gated in dict.fromkeys((settings.full_sequence_must_fit, False)):
                yield evolve(
                    settings,
                    retention_interval_tokens=interval,
                    scratch_first=first,
                    full_sequence_must_fit=gated,
                )


def _label(path: Path) -> str:
    return f"{id_of(path.parent.name)[:3]} {path.stem}"


def _all(folder: Path, system: str) -> dict[str, str]:
    factory = load_system(system).factory
    return {
        _label(path): outcome(factory, read(path), id_of(path.parent.name))
        for path in sorted(folder.glob("*/*.jsonl"))
        if not is_engine_trace(path)
    } | _of_engines(folder, system)


def _of_engines(folder: Path, system: str) -> dict[str, str]:
    """The same of traces of a scheduler, where one comes with the system."""
    return {
        _label(path): _of_engine(system, read_engine(path), id_of(path.parent.name))
        for path in sorted(folder.glob("*/*.jsonl"))
        if is_engine_trace(path)
    }


def _of_engine(system: str, trace: EngineTrace, finding: str) -> str:
    """What a scheduler does with a trace, as ``outcome``."""
    from kvgate.levels.registry import engine_bench
    from kvgate.levels.scheduler.case_runner import found_in, run_case

    try:
        bench = engine_bench(system, trace.header.detectors)
    except UsageError as error:
        return f"{REFUSED}: {error}"
    refused = ""
    for settings in _variants(trace.header.settings):
        case = evolve(trace.case, settings=settings)
        try:
            run = run_case(bench, case)
        except UsageError as error:
            refused = refused or str(error)
            continue
        found = next(iter(found_in(run, case, 0)), None)
        return NOT_SHOWN if found is None else _named(found, trace.header.violates, finding)
    return f"{REFUSED}: {refused.partition(': ')[2]}"


def _named(found: Found, violated: Violated | None, finding: str) -> str:
    """What was found, against what a trace of a scheduler is said to show. Some are declared by nothing."""
    seen = Violated.by(found.divergence)
    same = violated == seen
    return SHOWN if found.finding in (None, finding) and same else found.finding or f"violates {seen.statement}"


def main(folder: Path, systems: list[str]) -> None:
    """Print what each system does with each trace."""
    for system in systems:
        command = [sys.executable, "-m", "kvgate.report.track_record", _APART, str(folder), system]
        ended = run_process(command, stderr=None)
        if ended.code:
            print(f"{system}: could not be run")
            continue
        for trace, what in json.loads(ended.output.splitlines()[-1]).items():
            print(f"{system:<16} {trace:<28} {what}", flush=True)


if __name__ == "__main__":
    if sys.argv[1] == _APART:
        try:
            print(json.dumps(_all(Path(sys.argv[2]), sys.argv[3])))
        except (SystemUnavailableError, UsageError) as error:
            sys.exit(f"{sys.argv[3]}: {error}")
    else:
        main(Path(sys.argv[1]), sys.argv[2:])
