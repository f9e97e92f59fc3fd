"""Ten million operations of stock vLLM, each run in two processes: no undeclared alarm, and the same digest in both.

All models that a long run has, at the levels of a block manager, of a scheduler and of a pair. The two processes have
different hash seeds, so nothing may depend on the order of a set. Takes an hour on two idle cores.

    python -m benchmarks.twice [--profile quick] [--runs N]

Exit 1 if a run found something, or the two of a run differ.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from attrs import frozen

from kvgate.adapters.registry import DEFAULT_MODELS, FURTHER

KVGATE = Path(sys.executable).with_name("kvgate")
HASH_SEEDS = ("1", "2")
SLOW = "dsv4"
"""A model with so large blocks that it has a run of its own."""


@frozen
class Run:
    """One campaign."""

    level: str
    seed: int
    models: tuple[str, ...] = ()
    profile: str | None = None
    """None: the one that is asked for."""


def runs() -> Iterator[Run]:
    """All of them."""
    for level in ("scheduler", "pair"):
        yield from (Run(level, seed) for seed in range(80, 84))
    every = (*DEFAULT_MODELS["stock"], *FURTHER)
    yield Run("blocks", 21, tuple(name for name in every if name.startswith(SLOW)), "quick")
    quick = tuple(name for name in every if not name.startswith(SLOW))
    yield from (Run("blocks", seed, quick) for seed in range(21, 27))


def started(run: Run, profile: str, hash_seed: str) -> subprocess.Popen[str]:
    """A process that performs a run."""
    options = ["--level", run.level, "--seed", str(run.seed), "--profile", run.profile or profile]
    options += [part for name in run.models for part in ("--model", name)]
    return subprocess.Popen(
        [str(KVGATE), "check", "--jobs", "1", "--format", "json", *options],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def seen(process: subprocess.Popen[str]) -> tuple[int, int, str]:
    """Its exit code, how many operations it performed, and their digest."""
    report = json.loads(process.communicate()[0])
    operations = sum(
        row["operations"] for section in report["tested"] for row in section["rows"] if "operations" in row
    )
    return process.returncode, operations, report["circumstances"]["digest"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Perform the runs one after the other, each in two processes at once."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.twice", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--profile", default="ci", choices=("quick", "ci", "deep"), help="how much is run")
    parser.add_argument("--runs", type=int, metavar="N", help="only the first N")
    given = parser.parse_args(arguments)
    total, bad = 0, 0
    for run in [*runs()][: given.runs]:
        both = [seen(each) for each in [started(run, given.profile, seed) for seed in HASH_SEEDS]]
        code, operations, digest = both[0]
        total += operations
        bad += both != [(0, operations, digest)] * len(HASH_SEEDS)
        same = "the same" if both[0] == both[1] else f"not the same: {both[1]}"
        print(f"{run.level}, seed {run.seed}: exit {code}, {operations:,} operations, {digest}, {same}", flush=True)
    print(f"{total:,} operations, each in two processes; {bad} runs differ or found something")
    return int(bad > 0)


if __name__ == "__main__":
    raise SystemExit(main())
