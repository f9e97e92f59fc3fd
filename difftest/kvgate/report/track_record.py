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

from kvgate.adapters.registry import Loaded, load_system
from kvgate.findings.register import id_of
from kvgate.gate.case_runner import run_case
from kvgate.gate.trace_codec import Trace, Violated
from kvgate.gate.verdict import Found
from kvgate.kernel.child_process import run as run_process
from kvgate.kernel.errors import SystemUnavailableError, UsageError
from kvgate.levels.manager import MANAGER
from kvgate.levels.registry import read
from kvreference.settings import Settings

SHOWN, NOT_SHOWN, REFUSED = "shown", "not shown", "cannot be run"
_APART = "--apart"


def outcome(system: Loaded, trace: Trace, finding: str) -> str:
    """What a system does with a trace: ``SHOWN``, ``NOT_SHOWN``, ``REFUSED``, or what else it violates."""
    try:
        bench = trace.level.bench(system, trace.level.gate)
    except UsageError as error:
        return f"{REFUSED}: {error}"
    refused = ""
    for settings in _variants(trace.header.settings):
        try:
            run = run_case(bench, evolve(trace.case, settings=settings))
        except UsageError as error:
            refused = refused or str(error)
            continue
        if finding in [each.finding for each in run.known()]:
            return SHOWN
        found = next(iter(run.found()), None)
        return NOT_SHOWN if found is None else _named(found, trace, finding)
    return f"{REFUSED}: {refused.partition(': ')[2]}"


def _named(found: Found, trace: Trace, finding: str) -> str:
    """What was found, against what a trace is said to show: a release may have a finding that its description lacks."""
    shown = found.finding == finding or (
        found.finding is None and trace.header.violates == Violated.by(found.divergence)
    )
    return SHOWN if shown else found.finding or f"violates {found.divergence.difference.statement}"


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


def _all(folder: Path, name: str) -> dict[str, str]:
    """What a system does with every trace: first those of a block manager, then those of a scheduler."""
    system = load_system(name)
    traces = [(path, read(path)) for path in sorted(folder.glob("*/*.jsonl"))]
    traces.sort(key=lambda each: each[1].level is not MANAGER)
    return {
        f"{id_of(path.parent.name)[:3]} {path.stem}": outcome(system, trace, id_of(path.parent.name))
        for path, trace in traces
    }


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
