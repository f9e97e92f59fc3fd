"""What the stories of the mutants say: is the broken function a suspect, and is a wrong answer called one?

Every mutant of vLLM that is not equivalent is run as ``kvgate check`` runs a patch, for a short time, and its stories
are looked at. ``python -m kvgate_mutants.diagnoses [--level blocks|scheduler] [--seconds 20] [--every N]`` prints a
line for each, and the summary.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from statistics import median

from attrs import evolve, frozen

from kvgate.adapters.registry import Loaded, load_system
from kvgate.gate.campaign import Campaign
from kvgate.gate.case_runner import Trials
from kvgate.gate.diagnosis import Anomaly
from kvgate.gate.profiles import models_named, plan
from kvgate.gate.verdict import Found
from kvgate.kernel.models import MODELS
from kvgate.levels.manager import MANAGER
from kvgate.levels.registry import LEVELS
from kvgate_mutants.cli.mutants import SETS, MutantSet
from kvgate_mutants.mutants.mutant import Mutant
from kvgate_mutants.mutation_run import Mutated, models_that_show

OPERATIONS = 10**9
"""More than there is time for."""
GHOST_SECONDS = 10.0
"""How long ghost memory alone is given to see a mutant."""


@frozen
class Diagnosed:
    """What the stories of one mutant say."""

    mutant: str
    stories: int
    place: int | None
    """At which place the broken function is among the suspects of the first story, from 1; None: it is not a
    suspect."""
    anomaly: Anomaly | None
    seen_by_ghost: bool
    """Whether ghost memory alone sees the mutant."""
    seconds: float
    """From the first case to the first story."""
    operations: int
    """How long the case of the first story is."""


def diagnose(mutant: Mutant, of: MutantSet, system: Loaded, seconds: float) -> Diagnosed:
    """Run a mutant, and look at its stories."""
    level = LEVELS[of.level.value]
    trials = Mutated(Trials(level.bench(system, level.gate), mutant.needs), mutant)
    models = [*of.models, *models_named(tuple(name for name in mutant.models or () if name in MODELS))]
    whole = plan("quick", models_that_show(mutant, models), seconds=seconds)
    whole = evolve(whole, operations=OPERATIONS, level=level.name, shrink_seconds=seconds)
    started, first = time.monotonic(), [0.0]

    def note(_found: Found) -> None:
        first[0] = time.monotonic() - started

    found = Campaign(trials, whole, trials.diagnosed).run(first=note).found
    ghost = Mutated(Trials(level.bench(system, ("ghost",)), mutant.needs), mutant)
    alone = evolve(whole, seconds=GHOST_SECONDS, shrinks=False, kinds_max=1)
    # A system that raises ends a run, with any monitor.
    seen = Campaign(ghost, alone).run().found if level is MANAGER else ()
    is_seen = any(each.divergence.detector == "ghost" for each in seen)
    if not found or found[0].diagnosis is None:
        return Diagnosed(mutant.name, len(found), None, None, is_seen, first[0], 0)
    names = [each.function for each in found[0].diagnosis.suspects]
    place = next((index for index, name in enumerate(names, 1) if name in mutant.targets), None)
    length = len(found[0].replayable.operations)
    return Diagnosed(mutant.name, len(found), place, found[0].anomaly, is_seen, first[0], length)


def summary(results: Sequence[Diagnosed]) -> Iterator[str]:
    """What all of them say together."""
    shown = [each for each in results if each.stories]
    yield f"{len(shown)} of {len(results)} mutants have a story"
    if not shown:
        return
    named = sum(each.place is not None and each.place <= 2 for each in shown)
    yield f"the broken function is among the first two suspects of {named} of {len(shown)}"
    ghostly = [each for each in shown if each.seen_by_ghost]
    wrong = sum(each.anomaly is Anomaly.WRONG_ANSWER for each in ghostly)
    yield f"of {len(ghostly)} that ghost memory alone sees, {wrong} are called {Anomaly.WRONG_ANSWER.value}"
    yield f"stories of a mutant: median {median(each.stories for each in shown)}"
    yield f"seconds from the first case to the first story: median {median(each.seconds for each in shown):.1f}"
    yield f"operations of the first story: median {median(each.operations for each in shown)}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each mutant, and the summary."""
    parser = argparse.ArgumentParser(
        prog="python -m kvgate_mutants.diagnoses", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--level", choices=("blocks", "scheduler"), default="blocks")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long each mutant is run")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="every N-th mutant only")
    given = parser.parse_args(arguments)
    of = next(each for each in SETS if each.level.value == given.level)
    system = load_system("stock")
    results = []
    for mutant in [each for each in of.mutants if each.equivalent is None and each.shown_by is None][:: given.every]:
        results.append(diagnose(mutant, of, system, given.seconds))
        print(results[-1], flush=True)
    print("\n".join(summary(results)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
