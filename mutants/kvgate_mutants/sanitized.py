"""Which mutants of vLLM's block manager the sanitizer reports: ``python -m kvgate_mutants.sanitized [NAME ...]``.

Each mutant runs in a process of its own, under ``kvgate_mutants.random_driver``, which checks nothing. A mutant is
reported if the sanitizer reports a misuse; that the driver crashes is not enough. Equivalent mutants are left out. The
exit code is 1 if fewer than ``--least`` are reported, or if vLLM without a mutant is.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import os
import signal
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext

from attrs import asdict, frozen

from kvgate.sanitizer.adapter.hooks import Sanitizer
from kvgate.sanitizer.ledger import RAISED
from kvgate.sanitizer.misuse import Misuse, MisuseError
from kvgate_mutants.mutants.mutant import Mutant
from kvgate_mutants.mutants.registry import BLOCK_MANAGER_MUTANTS, mutants_named
from kvgate_mutants.random_driver import SHAPES, drive

SEEDS, STEPS = 8, 150
SECONDS_MAX = 30
"""How long one mutant may run: some make the block manager loop."""


class LateError(BaseException):
    """A mutant runs too long. No ``except Exception`` of the driver's caller takes it for a crash."""


@frozen
class Outcome:
    """What became of one mutant."""

    kind: str | None
    """Of the first misuse that was reported; None if none was."""
    text: str = ""
    run: str = ""
    """The shape and the seed that showed it."""
    crashed: str = ""
    """What the driver raised before anything was reported, the first time it did."""
    failures: tuple[str, ...] = ()
    """Checks of the sanitizer that failed themselves."""


def outcome_of(mutant: Mutant | None, seeds: int = SEEDS, steps: int = STEPS) -> Outcome:
    """Run the driver on all shapes until something is reported."""
    found: list[Misuse] = []

    def note(misuse: Misuse) -> None:
        found.append(misuse)
        raise MisuseError(misuse)

    crashed = ""
    with mutant.applied() if mutant is not None else nullcontext():
        sanitizer = Sanitizer(note)
        sanitizer.install()
        try:
            for seed in range(seeds):
                for shape in SHAPES:
                    try:
                        drive(shape, seed, steps)
                    except Exception as error:
                        crashed = crashed or f"{type(error).__name__}: {error}"
                    if found:
                        run, failures = f"{shape}, seed {seed}", tuple(sanitizer.failures)
                        return Outcome(found[0].kind, str(found[0]), run, crashed, failures)
        finally:
            sanitizer.remove()
    return Outcome(None, crashed=crashed, failures=tuple(sanitizer.failures))


def _child(name: str, seeds: int, steps: int) -> str:
    """In a process of its own: the outcome as JSON."""
    mutant = mutants_named([name])[0] if name else None

    def late(*_signal: object) -> None:
        raise LateError(f"longer than {SECONDS_MAX} s")

    signal.signal(signal.SIGALRM, late)
    # Again each second: an exception that is raised in a callback of the garbage collector is lost.
    signal.setitimer(signal.ITIMER_REAL, SECONDS_MAX, 1)
    try:
        return json.dumps(asdict(outcome_of(mutant, seeds, steps)))
    except LateError as error:
        signal.setitimer(signal.ITIMER_REAL, 0)
        return json.dumps(asdict(Outcome(None, crashed=str(error))))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def outcomes(names: Sequence[str], seeds: int = SEEDS, steps: int = STEPS) -> dict[str, Outcome]:
    """The outcome of each mutant, and of vLLM without one, whose name is empty."""
    context = multiprocessing.get_context("fork")
    with context.Pool(max(1, len(os.sched_getaffinity(0))), maxtasksperchild=1) as pool:
        results = pool.starmap(_child, [(name, seeds, steps) for name in ("", *names)], chunksize=1)
    return {name: Outcome(**json.loads(result)) for name, result in zip(("", *names), results, strict=True)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table of kinds, then the survivors by name."""
    parser = argparse.ArgumentParser(prog="python -m kvgate_mutants.sanitized", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="mutants; all if none is named")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="runs of each shape of model (default %(default)s)")
    parser.add_argument("--steps", type=int, default=STEPS, help="steps of a run (default %(default)s)")
    parser.add_argument("--least", type=int, default=0, help="fail if fewer mutants are reported")
    parser.add_argument("--verbose", action="store_true", help="print the first report of each mutant")
    options = parser.parse_args(arguments)
    # vLLM logs each reset of the cache, and each that fails.
    logging.getLogger("vllm").setLevel(logging.ERROR)
    chosen = mutants_named(options.names) if options.names else list(BLOCK_MANAGER_MUTANTS)
    sentences = {each.name: each.sentence for each in chosen if each.equivalent is None}
    found = outcomes(list(sentences), options.seeds, options.steps)
    unbroken = found.pop("")
    reported = {name: each for name, each in found.items() if each.kind is not None}
    for name, each in reported.items() if options.verbose else ():
        print(f"{name}, in {each.run}: {each.text}\n")
    for kind, count in Counter(each.kind for each in reported.values()).most_common():
        print(f"{count:4}  {kind}")
    misuses = sum(each.kind != RAISED for each in reported.values())
    print(f"{len(reported)} of {len(found)} mutants are reported, {misuses} without those of the kind '{RAISED}'")
    for name, each in found.items():
        for failure in each.failures:
            print(f"a check of the sanitizer failed: {name}: {failure}")
    for name, each in found.items():
        if each.kind is None:
            print(f"not reported: {name}: {sentences[name]}" + (f" [{each.crashed}]" if each.crashed else ""))
    alarm = unbroken.text or unbroken.crashed or ", ".join(unbroken.failures)
    print(f"without a mutant: {alarm or 'nothing is reported'}")
    return 1 if alarm or len(reported) < options.least else 0


if __name__ == "__main__":
    sys.exit(main())
