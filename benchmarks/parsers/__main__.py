"""Hostile inputs for every parser of what comes from outside: each must be accepted, or refused in words.

From the repository's root:

    python -m benchmarks.parsers --list
    python -m benchmarks.parsers --inputs 2000 --only trace --only config
    python -m benchmarks.parsers --inputs 40000 --folder tried --jobs 2 --table benchmarks/parsers/TABLE.md

Every input follows from the seed, the parser's name and its number. An interrupt costs the batches under way; the same
command with the same folder goes on. Inputs that show a defect are in FOLDER/defects. Exit 0 if there are none, 1 if
there are, 2 for bad usage, 130 if interrupted.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.parsers.entrances import ENTRANCES
from benchmarks.parsers.kept import Kept, Plan
from benchmarks.parsers.running import run
from benchmarks.parsers.table import markdown
from benchmarks.program import end_with, options_of

from kvgate.cli.writable import see_writable
from kvgate.kernel.errors import UsageError
from kvgate.kernel.progress import progress_line


def main(arguments: Sequence[str] | None = None) -> int:
    """Try, and print the table; the exit code."""
    parser = options_of("parsers", __doc__)
    parser.add_argument("--inputs", type=int, default=2000, metavar="N", help="how many for each parser")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", action="append", metavar="NAME", help="only this parser; may be given several times")
    parser.add_argument("--folder", type=Path, help="keep there what was tried, and go on with it")
    parser.add_argument("--table", type=Path, metavar="FILE", help="write the table, too")
    parser.add_argument("--list", action="store_true", help="say what there is, and try nothing")
    given = parser.parse_args(arguments)
    if given.list:
        for entrance in ENTRANCES.values():
            print(f"{entrance.name}: {entrance.what} ({entrance.form.value})")
        return 0
    return _run(given)


def _run(given: argparse.Namespace) -> int:
    names = list(dict.fromkeys(given.only or ENTRANCES))
    unknown = set(names) - set(ENTRANCES)
    if unknown or given.inputs < 1 or given.seed < 0 or given.jobs < 1:
        wrong = f"no parser {min(unknown)!r}: there are {', '.join(ENTRANCES)}" if unknown else "numbers begin at 1"
        raise UsageError(wrong)
    if given.table is not None:
        see_writable(given.table, "--table")
    plan = Plan(given.seed, given.inputs)
    with tempfile.TemporaryDirectory(prefix="kvgate-parsers-") as scratch:
        kept = Kept(given.folder or Path(scratch), plan)
        with progress_line() as line:
            line.say("loading all parsers …")
            is_done = run(kept, names, given.jobs, line.say)
        defects = kept.defects()
        table = markdown(plan, names, kept.batches(), defects)
        print(table, end="")
        if given.table is not None and is_done:
            given.table.write_text(table, encoding="utf-8")
        if not is_done:
            print("parsers: interrupted; the same command with --folder goes on", file=sys.stderr)
            return 130
        return 1 if defects else 0


if __name__ == "__main__":
    end_with("parsers", main)
