"""Running the corpus: each system in a process of its own, one after another."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from kvgate.kernel.child_process import describe_end, started
from kvgate_mutants.corpus.bug import Bug
from kvgate_mutants.corpus.passing import read
from kvgate_mutants.corpus.probe import Result, State

Say = Callable[[str], None]
ERROR_CHARACTERS_MAX = 500


def places(bugs: Sequence[Bug], only: Sequence[str] = ()) -> Mapping[str, list[tuple[Bug, int]]]:
    """The trials of ``bugs`` by system; those of some systems ``only``, if any are given."""
    found: dict[str, list[tuple[Bug, int]]] = {}
    for bug in bugs:
        for index, trial in enumerate(bug.trials):
            if only and trial.system not in only:
                continue
            found.setdefault(trial.system, []).append((bug, index))
    return found


def run(
    bugs: Sequence[Bug], say: Say = lambda _text: None, only: Sequence[str] = (), draw_seconds: float = 0.0
) -> Iterator[Result]:
    """Every trial of ``bugs``, system by system, as it is there; those of some systems ``only``, if any are given.

    Cases are drawn for so many seconds a trial, too.
    """
    by_system = places(bugs, only)
    for number, (system, trials) in enumerate(by_system.items()):
        say(f"system {number + 1} of {len(by_system)}: {system} …")
        for done, result in enumerate(_run_apart(system, trials, draw_seconds), start=1):
            say(f"system {number + 1} of {len(by_system)}: {system}, {done} of {len(trials)} trials")
            yield result


def _run_apart(system: str, trials: Sequence[tuple[Bug, int]], draw_seconds: float) -> Iterator[Result]:
    """The results of one process; what it does not answer was not run."""
    asked = {f"{bug.id}:{index}": (bug, index) for bug, index in trials}
    with tempfile.TemporaryDirectory() as scratch:
        errors = Path(scratch, "errors")
        with errors.open("wb") as said:
            command = [sys.executable, "-m", "kvgate_mutants.corpus", system, str(draw_seconds), *asked]
            with started(command, stdout=subprocess.PIPE, stderr=said) as child:
                for line in child.process.stdout or ():
                    result = read(line.decode().rstrip("\n"))
                    if result is not None and f"{result.bug}:{result.trial}" in asked:
                        del asked[f"{result.bug}:{result.trial}"]
                        yield result
                code = child.process.wait()
        why = " ".join(errors.read_text(encoding="utf-8", errors="replace").split())[-ERROR_CHARACTERS_MAX:]
    for bug, index in asked.values():
        trial = bug.trials[index].code
        yield Result(bug.id, index, State.NOT_RUN, trial, says=why or f"its process ended: {describe_end(code)}")


def state_of(bug: Bug, results: Sequence[Result]) -> State:
    """What became of a defect: one trial that is not caught, or was not run, is enough not to count as caught."""
    states = {result.trial: result.state for result in results if result.bug == bug.id}
    if State.NOT_CAUGHT in states.values() or not bug.trials:
        return State.NOT_CAUGHT
    if State.CAUGHT not in states.values():
        return State.NOT_RUN
    caught = [index for index, state in states.items() if state is State.CAUGHT]
    return State.CAUGHT if len(caught) == len(bug.trials) else State.PARTLY_RUN
