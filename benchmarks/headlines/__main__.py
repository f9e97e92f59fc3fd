"""The headline table: published hit rates next to what the reference and vLLM's real scheduler give.

From the repository's root:

    python -m benchmarks.headlines --list
    python -m benchmarks.headlines --row 2 --row 4
    python -m benchmarks.headlines --out benchmarks/headlines   # all of it: writes TABLE.md, TABLE.csv and table.json

Each result is stored at once (``--store``) and reused while the code is the same; ``--keep`` also reuses results of
earlier code, and marks them. README.md of this folder says how long each part takes. Exit 0 if every case is accepted;
1 if one is not (TABLE.md has the rule); 130 if interrupted: what is done is kept and printed. A published
figure outside its bracket is reported, and exits 0. Exit 2 for invalid arguments, 3 where vLLM is not installed.
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness import at_least_one, end_with, options_of
from benchmarks.headlines.figure import OUT_OF_REACH, Figure
from benchmarks.headlines.report import COLUMNS, document, markdown, page, rows
from benchmarks.headlines.store import Store
from benchmarks.headlines.table import jobs_of, lines_of

from kvgate.cli.writable import make_writable
from kvgate.kernel.data_file import csv_text, write_both
from kvgate.kernel.errors import UsageError
from kvgate.kernel.progress import progress_line
from kvgate.simulation.sweep import run_all

PARTS = ("repeat_rate", "long_prompts", "pinning", "traces")
"""The modules that hold figures, in the table's order."""
STORE = Path("reports") / "headlines.jsonl"
"""The default place of results; git ignores the folder."""


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
    parser = options_of("headlines", __doc__)
    parser.add_argument("--row", action="append", metavar="N", help="only this row; may be given several times")
    parser.add_argument("--arm", action="append", metavar="NAME", help="only this arm; the others are 'not run'")
    parser.add_argument("--list", action="store_true", help="say what there is, and simulate nothing")
    parser.add_argument(
        "--store",
        type=Path,
        default=STORE,
        metavar="FILE",
        help=f"keep results in FILE ({STORE}), and do not simulate them again",
    )
    parser.add_argument("--keep", action="store_true", help="take from the store what earlier code computed")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write TABLE.md, TABLE.csv and table.json to DIR")
    parser.add_argument("--processes", type=at_least_one, default=os.cpu_count() or 1, metavar="N")
    parser.add_argument("--json", action="store_true", help="print the table as JSON")
    arguments = parser.parse_args()
    chosen = [figure for figure in figures() if not arguments.row or figure.number in arguments.row]
    if not chosen:
        raise UsageError(f"no such row: there are {', '.join(figure.number for figure in figures())}")
    if arguments.list:
        for figure in chosen:
            print(f"{figure.number}: {figure.what}: {figure.published} ({figure.accepts.value})")
        return 0
    if arguments.out is not None:
        make_writable(arguments.out, "--out")
    arguments.store.parent.mkdir(parents=True, exist_ok=True)
    store = Store(arguments.store, arguments.keep)
    names = arguments.arm or sorted({arm for figure in chosen for case in figure.cases for arm in case.arms})
    completed = run(chosen, store, names, arguments.processes)
    lines = lines_of(chosen, store)
    told = document(lines, OUT_OF_REACH)
    data = json.dumps(told, indent=1)
    if arguments.out is not None:
        write_both(arguments.out / "TABLE.md", page(told), csv_text(COLUMNS, rows(told)))
        (arguments.out / "table.json").write_text(data + "\n")
    print(data if arguments.json else markdown(told))
    if not completed:
        return 130
    return int(any(line.is_wrong for line in lines))


if __name__ == "__main__":
    end_with("headlines", main)
