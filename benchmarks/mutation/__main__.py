"""Mutation testing of the reference: mutmut changes `kvreference`, and its tests must notice.

    python -m benchmarks.mutation run                    # go on where it ended; half an hour, and it may be interrupted
    python -m benchmarks.mutation run 'kvreference.mamba.*'   # these, anew
    python -m benchmarks.mutation report                 # the score, and every survivor that nobody has argued about

mutmut works in a folder of its own, `.mutmut/`. What it does not change: functions with a decorator (properties,
validators), what is run once when a module is imported, and `kvreference/refuted/`, which nobody believes. The tests
that search are left out, as too slow to be run for every mutant: examples must notice it. A survivor is killed by a
test that was missing, or argued in `reference/mutmut-survivors.toml`.

Exit 0 if nothing that was tried survived unargued and no argument is stale; 1 otherwise; 2 for a request that makes no
sense; 130 if interrupted.
"""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Sequence
from pathlib import Path

from benchmarks.mutation import argued
from benchmarks.mutation.score import lines, score
from benchmarks.mutation.tree import ROOT, Tree
from benchmarks.program import at_least_one, end_with, options_of

from kvgate.kernel.errors import UsageError


def parser() -> argparse.ArgumentParser:
    """The options."""
    found = options_of("mutation", __doc__)
    found.add_argument("action", choices=("run", "report"))
    found.add_argument("mutants", nargs="*", metavar="NAME", help="run: only these, anew; may hold wildcards")
    found.add_argument("--dir", type=Path, default=ROOT / ".mutmut", metavar="DIR", help="default: .mutmut/")
    found.add_argument("--processes", type=at_least_one, default=1, metavar="N")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run or report; the exit code."""
    options = parser().parse_args(arguments)
    tree = Tree(options.dir.resolve())
    if options.action == "run":
        tree.lay_out()
        try:
            done = subprocess.run(tree.command(tuple(options.mutants), options.processes), cwd=tree.folder, check=False)
        except KeyboardInterrupt:
            return 130
        if done.returncode:
            return 1
    if not tree.mutants.is_dir():
        raise UsageError(f"{tree.folder}: nothing was run there yet: python -m benchmarks.mutation run")
    found = score(tree, argued.read())
    print("\n".join(lines(found)))
    return int(bool(found.unexplained or found.stale))


if __name__ == "__main__":
    end_with("mutation", main)
