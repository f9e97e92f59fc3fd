"""The headline table: published hit rates next to what the reference and vLLM's real scheduler give.

From the repository's root:

    python -m benchmarks.headlines --list
    python -m benchmarks.headlines --row 2 --row 4
    python -m benchmarks.headlines --store headlines.jsonl --out benchmarks/headlines   # writes TABLE.md and table.json

With ``--store``, what is simulated is kept as it comes, and not simulated again while the code is the same; ``--keep``
takes what earlier code computed, and marks it. The whole table takes some minutes per row. Exit 0 if every exact figure
is within a percentage point, every block read was sound, and the arms agree on every request; 1 if not; 130 if
interrupted. A published figure outside its bracket is told, and exits 0.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.headlines.figure import Figure
from benchmarks.headlines.out_of_reach import FIGURES as OUT_OF_REACH
from benchmarks.headlines.store import Store
from benchmarks.headlines.table import document, jobs_of, lines_of, markdown

from kvgate.command.progress import progress_line
from kvgate.errors import SystemUnavailableError, UsageError
from kvgate.simulation.sweep import run_all

PARTS = ("repeat_rate", "long_prompts", "pinning", "traces")
"""The modules that hold figures, in the table's order."""


def figures() -> list[Figure]:
    """All of them."""
    modules = (importlib.import_module(f"benchmarks.headlines.{part}") for part in PARTS)
    return [figure for module in modules for figure in module.FIGURES]


def run(chosen: Sequence[Figure], store: Store, arms: Sequence[str], processes: int) -> bool:
    """Simulate what is not in the store; whether all of it was."""
    jobs = [job for job in jobs_of(chosen) if job.arm in arms and store.get(job) is None]
    with progress_line() as line:
        try:
            run_all(jobs, processes, lambda place, result: store.put(jobs[place], result), line.say)
        except KeyboardInterrupt:
            return False
    return True


def main() -> int:
    """Simulate and print; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--row", action="append", metavar="N", help="only this row; may be given several times")
    parser.add_argument("--arm", action="append", metavar="NAME", help="only this arm; the others are 'not run'")
    parser.add_argument("--list", action="store_true", help="say what there is, and simulate nothing")
    parser.add_argument(
        "--store", type=Path, metavar="FILE", help="keep results in FILE, and do not simulate them again"
    )
    parser.add_argument("--keep", action="store_true", help="take from the store what earlier code computed")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write TABLE.md and table.json to DIR")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, metavar="N")
    parser.add_argument("--json", action="store_true", help="print the table as JSON")
    arguments = parser.parse_args()
    chosen = [figure for figure in figures() if not arguments.row or figure.number in arguments.row]
    if not chosen:
        raise UsageError(f"no such row: there are {', '.join(figure.number for figure in figures())}")
    if arguments.list:
        for figure in chosen:
            print(f"{figure.number}: {figure.what}: {figure.published} ({figure.accepts.value})")
        return 0
    store = Store(arguments.store, arguments.keep)
    names = arguments.arm or sorted({arm for figure in chosen for case in figure.cases for arm in case.arms})
    completed = run(chosen, store, names, arguments.processes)
    lines = lines_of(chosen, store)
    text, data = markdown(lines, OUT_OF_REACH), json.dumps(document(lines, OUT_OF_REACH), indent=1)
    if arguments.out is not None:
        (arguments.out / "TABLE.md").write_text(text)
        (arguments.out / "table.json").write_text(data + "\n")
    print(data if arguments.json else text)
    if not completed:
        return 130
    return int(any(line.is_wrong for line in lines))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (UsageError, SystemUnavailableError) as error:
        sys.exit(f"headlines: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
