"""All benchmarks in one go, one table of what they showed, and a history of all runs.

Each benchmark runs in a process of its own, one at a time. Each row is kept as soon as it is measured, so an interrupt
loses none of them. The history is a line of JSON for every run (benchmarks/history.jsonl). The page
(benchmarks/TABLE.md) and its rows (benchmarks/benchmarks.csv) show the newest run of each benchmark, and prefer one
that was complete and not quick.

    python -m benchmarks                               # all of them; the headlines alone take minutes a row
    python -m benchmarks --quick                       # briefly, and of long lists a part
    python -m benchmarks --only lockstep,long_request
    python -m benchmarks --list
    python -m benchmarks --table                       # measures nothing, writes the table again

Exit 0 if all were complete; 1 if one failed, which is printed; 2 for invalid arguments; 130 if interrupted.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

from benchmarks.harness import Row, figure
from benchmarks.history import Entry, State, append, latest, line_of, read
from benchmarks.registry import chosen
from benchmarks.running import ROOT, Job, run
from benchmarks.table import data, markdown, page

from kvgate.cli.writable import make_writable, see_writable
from kvgate.kernel.errors import UsageError
from kvgate.kernel.progress import progress_line

HISTORY, TABLE, DATA = "history.jsonl", "TABLE.md", "benchmarks.csv"


def parser() -> argparse.ArgumentParser:
    """The options."""
    found = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    found.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        help="only these, with commas between them; may be repeated",
    )
    found.add_argument("--quick", action="store_true", help="few rounds, small loads, and of long lists a part")
    found.add_argument("--list", action="store_true", help="say which benchmarks there are, and run none")
    found.add_argument("--table", action="store_true", help="run none, and write the table from the history")
    found.add_argument("--out", type=Path, default=ROOT / "benchmarks", metavar="DIR", help="default: benchmarks/")
    found.add_argument("--json", action="store_true", help="print the runs as JSON, a line each, and not the table")
    return found


def measure(jobs: Sequence[Job], history: Path, say: Callable[[str], None]) -> list[Entry]:
    """Run them, keep each in the history, and stop at an interrupt."""
    entries: list[Entry] = []
    for place, job in enumerate(jobs, 1):
        where = f"{job.name} ({place} of {len(jobs)})"
        say(f"{where}: starting")

        def seen(row: Row, where: str = where) -> None:
            say(f"{where}: {row.what}: {figure(row.value)} {row.unit}")

        entries.append(run(job, seen))
        append(history, entries[-1])
        if entries[-1].state is State.INTERRUPTED:
            break
    return entries


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write and print; the exit code."""
    options = parser().parse_args(arguments)
    picked = chosen([name for names in options.only for name in names.split(",")])
    if options.list:
        print("\n".join(f"{each.name:<14} {each.what}" for each in picked))
        return 0
    if not options.out.is_dir():
        raise UsageError(f"{options.out}: no such folder")
    make_writable(options.out, "--out")
    for name in (TABLE, DATA) if options.table else (HISTORY, TABLE, DATA):
        see_writable(options.out / name, "--out")
    history = options.out / HISTORY
    before = read(history)
    entries: list[Entry] = []
    if not options.table:
        with progress_line() as line:
            entries = measure([Job(each.name, options.quick) for each in picked], history, line.say)
    newest = latest([*before, *entries]).values()
    reported = markdown(newest)
    (options.out / TABLE).write_text(page(newest), encoding="utf-8")
    (options.out / DATA).write_text(data(newest), encoding="utf-8")
    print("\n".join(map(line_of, entries)) if options.json else reported)
    for entry in entries:
        if entry.state is State.FAILED:
            print(f"{entry.name} failed: {entry.why}", file=sys.stderr)
    states = {entry.state for entry in entries}
    return 130 if State.INTERRUPTED in states else int(State.FAILED in states)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    # Any other end keeps the finished rows, too.
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        sys.exit(main())
    except UsageError as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
