"""The record: every known release is checked for a given time, and what was seen is kept, run after run.

    python -m benchmarks.record --seconds 60                          # every release, at both levels
    python -m benchmarks.record --seconds 600 --system native@0.33.0 --level scheduler
    python -m benchmarks.record --page                                # checks nothing, writes the page again

A run has a seed of its own, so each adds cases that no earlier one had. Runs are kept as they end, a line of JSON each,
in benchmarks/record.jsonl; the page is benchmarks/RECORD.md. It can run anywhere, for example every night.

Exit 1 if something new was found, which is printed. Otherwise 2 for invalid arguments, 3 if a release could not be had,
5 if kvgate itself failed or was ended, 130 if interrupted. Finished runs are kept. Else 0.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from pathlib import Path

from attrs import asdict, field, frozen
from attrs.validators import ge, instance_of
from benchmarks.history import Machine, this_machine
from benchmarks.running import ROOT, commit

from kvgate.adapters.release_variants import release_of
from kvgate.adapters.releases import OF_VLLM, RELEASES
from kvgate.adapters.releases.ascend_schedulers import OWN_SCHEDULERS
from kvgate.adapters.releases.description import Release
from kvgate.kernel.errors import UsageError
from kvgate.kernel.output import AGREEMENT, DIVERGENCE, FAULT
from kvgate.kernel.structure import DOCUMENT_ERRORS, explain, json_object, read_bytes, strict_converter
from kvgate.report.document import from_json

FORMAT, VERSION = "kvgate-record", 1
BYTES_MAX = 50_000_000
LEVELS = ("blocks", "scheduler")
HEAD = """# The record

What `kvgate check` saw of each release, over all recorded runs. `python -m benchmarks.record` adds one of each, with
a seed of its own. An alarm is a difference that no finding explains. Open are the findings that the release is
declared to have, at any level; gone are those that an earlier release of vLLM has and this one has not: fixed, or out
of reach of what is driven. Operations a second are those of the last run: they compare within one machine.

| system | level | runs | operations | alarms | findings seen | open | gone | last run | operations a second |
|---|---|--:|--:|--:|--:|--:|--:|---|--:|"""
_count = [instance_of(int), ge(0)]


@frozen
class Run:
    """One run of one release at one level."""

    system: str = field(validator=instance_of(str))
    level: str
    when: str
    """In universal time, to the second."""
    commit: str | None
    """The commit of the checkout, with a plus if it was changed; None without git."""
    machine: Machine
    seed: int
    ended: str
    """Why it ended, in the words of the report."""
    seconds: float
    cases: int = field(validator=_count)
    operations: int = field(validator=_count)
    alarms: tuple[str, ...]
    """What was found that no finding explains, a headline each."""
    findings: tuple[str, ...]
    """The findings that were seen, by id."""


def systems() -> list[tuple[str, str]]:
    """Each release that cases are drawn for, with each level that it is run at."""
    names = ("stock", *(name for name, release in RELEASES.items() if release.scheduler is not None))
    plain = [(name, level) for name in names for level in LEVELS]
    return plain + [(name, "scheduler") for name in OWN_SCHEDULERS]


def line_of(run: Run) -> str:
    """A run as it is kept."""
    return json.dumps({"format": FORMAT, "version": VERSION, **asdict(run)})


def run_of(line: bytes, where: str) -> Run:
    """A run from its line.

    Raises:
        UsageError: it is not a run, or of an unknown version.
    """
    try:
        document = json_object(line)
        kind, version = document.pop("format", None), document.pop("version", None)
        if (kind, version) != (FORMAT, VERSION):
            raise UsageError(f"{where}: format {kind!r}, version {version!r}; this reads {FORMAT}, version {VERSION}")
        run: Run = _CONVERTER.structure(document, Run)
    except DOCUMENT_ERRORS as error:
        raise UsageError(f"{where}: {explain(error)}") from error
    return run


def read(path: Path) -> list[Run]:
    """All kept runs, oldest first; empty if the file does not exist.

    Raises:
        UsageError: a line is damaged, or the file is too large.
    """
    if not path.exists():
        return []
    return [run_of(line, f"{path}, line {n}") for n, line in enumerate(read_bytes(path, BYTES_MAX).splitlines(), 1)]


def check(system: str, level: str, seconds: int, seed: int) -> tuple[Run | None, int]:
    """Check one release for so long. Returns the run, or None if there is none, and the command's exit code."""
    machine, when = this_machine(), datetime.now(timezone.utc).isoformat(timespec="seconds")
    with tempfile.TemporaryDirectory() as folder:
        command = [
            *(sys.executable, "-m", "kvgate.cli", "check", "--sut", system, "--level", level, "--profile", "deep"),
            *("--time-budget", f"{seconds}s", "--seed", str(seed), "--report", folder),
        ]
        ended = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, cwd=ROOT, check=False)
        verdict = Path(folder, "verdict.json")
        if ended.returncode not in (AGREEMENT, DIVERGENCE) or not verdict.exists():
            return None, ended.returncode
        report = from_json(verdict.read_bytes(), f"the report of {system}")
    total = dict(zip((column.name for column in report.tested[0].columns), report.tested[0].total, strict=True))
    run = Run(
        *(system, level, when, commit(), machine, seed, report.ended),
        round(report.circumstances["seconds"], 1),
        total["cases"],
        total["operations"],
        tuple(story.headline for story in report.found),
        tuple(sorted({story.finding for story in report.known if story.finding})),
    )
    return run, ended.returncode


def _gone(release: Release | None) -> str:
    """How many findings of earlier releases of vLLM a release of vLLM does not have."""
    if release not in OF_VLLM:
        return ""
    order = sorted(OF_VLLM, key=lambda each: [int(part) for part in each.version.split(".")])
    earlier = frozenset[str]().union(*(each.findings for each in order[: order.index(release)]))
    return str(len(earlier - release.findings))


def page(runs: Iterable[Run]) -> str:
    """What all runs showed, a row for each release and level."""
    kept: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        kept.setdefault((run.system, run.level), []).append(run)
    lines = [HEAD]
    for (system, level), its in kept.items():
        last, release = its[-1], release_of(system)
        seen = {finding for run in its for finding in run.findings}
        still = "" if release is None else str(len(release.findings))
        lines.append(
            f"| `{system}` | {level} | {len(its)} | {sum(run.operations for run in its):,} "
            f"| {sum(len(run.alarms) for run in its)} | {len(seen)} | {still} | {_gone(release)} "
            f"| {last.when[:10]}, {last.commit or 'no commit'} | {last.operations / max(last.seconds, 0.1):,.0f} |"
        )
    if not kept:
        return "# The record\n\nNo run is recorded: `python -m benchmarks.record`.\n"
    alarms = [(run, alarm) for its in kept.values() for run in its for alarm in run.alarms]
    lines += ["", "Alarms:", ""] if alarms else ["", "No run had an alarm."]
    lines += [f"- `{run.system}`, {run.level}, seed {run.seed}, {run.when[:10]}: {alarm}" for run, alarm in alarms]
    return "\n".join(lines) + "\n"


def parser() -> argparse.ArgumentParser:
    """The options."""
    found = argparse.ArgumentParser(
        prog="python -m benchmarks.record", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    found.add_argument("--seconds", type=int, default=60, metavar="N", help="for each release and level; default: 60")
    found.add_argument("--system", action="append", default=[], metavar="NAME", help="only this; may be repeated")
    found.add_argument("--level", choices=LEVELS, help="only this")
    found.add_argument("--page", action="store_true", help="check nothing, and write the page")
    found.add_argument("--out", type=Path, default=ROOT / "benchmarks", metavar="DIR", help="default: benchmarks/")
    return found


def chosen(names: Sequence[str], level: str | None) -> list[tuple[str, str]]:
    """What is to be run.

    Raises:
        UsageError: there is nothing of that name, or not at that level.
    """
    found = [each for each in systems() if (not names or each[0] in names) and level in (None, each[1])]
    missing = [name for name in names if name not in dict(found)]
    if missing:
        at = f" at the level {level}" if level else ""
        raise UsageError(f"no system {', '.join(missing)}{at}: there are {', '.join(dict(systems()))}")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Check, keep and write; the exit code."""
    options = parser().parse_args(arguments)
    path, codes = options.out / "record.jsonl", {AGREEMENT}
    try:
        options.out.mkdir(parents=True, exist_ok=True)
        if options.seconds < 1:
            raise UsageError(f"--seconds must be at least 1, got {options.seconds}")
        runs, jobs = read(path), [] if options.page else chosen(options.system, options.level)
        for place, (system, level) in enumerate(jobs, 1):
            seed = sum((run.system, run.level) == (system, level) for run in runs)
            print(f"{place} of {len(jobs)}: {system}, {level}, seed {seed}, {options.seconds} s", file=sys.stderr)
            run, code = check(system, level, options.seconds, seed)
            codes.add(code if code >= 0 else FAULT)
            if run is None:
                print(f"{system}, {level}: kvgate check ended with {code}, nothing is recorded", file=sys.stderr)
                continue
            runs.append(run)
            with path.open("a", encoding="utf-8") as file:
                file.write(line_of(run) + "\n")
            for alarm in run.alarms:
                print(f"{system}, {level}, seed {seed}: {alarm}")
        (options.out / "RECORD.md").write_text(page(runs), encoding="utf-8")
    except (UsageError, OSError) as error:
        print(f"record: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("record: interrupted; what has ended is kept, and --page writes the page", file=sys.stderr)
        return 130
    return DIVERGENCE if DIVERGENCE in codes else max(codes)


_CONVERTER = strict_converter()

if __name__ == "__main__":
    sys.exit(main())
