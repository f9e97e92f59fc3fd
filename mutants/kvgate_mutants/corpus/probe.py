"""Trying a defect: the trial must be caught by one of its statements, and its control must be silent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from enum import Enum

from attrs import evolve, frozen

from kvgate.adapters.registry import Loaded
from kvgate.findings.modelled import without
from kvgate_mutants.corpus.bug import Bug, Trial
from kvgate_mutants.corpus.generator import draw_until_found, model_of
from kvgate_mutants.corpus.play import Played, Reported, line_of, play
from kvgate_mutants.corpus.scenario import Scenario
from kvgate_mutants.mutants.mutant import Mutant

Load = Callable[[str], Loaded]
"""Loads a system by its name."""


class State(str, Enum):
    """What became of a defect."""

    CAUGHT = "caught"
    NOT_CAUGHT = "not caught"
    NOT_RUN = "not run"
    FAULT = "kvgate failed"
    """Of a trial: the gate itself raised."""
    PARTLY_RUN = "partly run"
    """Of a defect: a trial of it was not run, and those that were are caught."""


@frozen
class Result:
    """What the gate says of one trial of one defect. Plain values, for it may come from another process."""

    bug: str
    trial: int
    state: State
    code: str
    """Whose code was run: a system, and what was injected into it."""
    version: str = ""
    detector: str = ""
    statement: str = ""
    finding: str = ""
    """The declared finding that it is, where the published code has it and it is declared."""
    says: str = ""
    """The gate's own words; or why it is not caught, or was not run."""
    control: str = ""
    """What is different in the control, and that nothing was found there."""
    operations: int = 0
    seconds: float = 0.0
    drawn: str = ""
    """Whether cases drawn from seeds find it too: ``found``, ``not found``, or nothing where none were drawn."""
    drawn_operations: int = 0
    drawn_seconds: float = 0.0


def attempt(bug: Bug, index: int, load: Load, draw_seconds: float = 0.0) -> Result:
    """Run one trial and its control; and cases drawn from seeds, for so many seconds at most."""
    trial = bug.trials[index]
    result = tried(bug.id, index, trial, load)
    if draw_seconds <= 0 or result.state is not State.CAUGHT or model_of(trial) is None:
        return result
    with _injected(trial.mutants):
        drawn = draw_until_found(trial, load(trial.system), result.finding, draw_seconds)
    if drawn is None:
        return evolve(result, drawn="not found", drawn_seconds=draw_seconds)
    return evolve(result, drawn="found", drawn_operations=drawn.operations, drawn_seconds=drawn.seconds)


def tried(bug: str, index: int, trial: Trial, load: Load) -> Result:
    """Run a trial and its control, and check both."""
    loaded = load(trial.system)
    played = _played(trial.scenario, loaded, trial.mutants)
    result = Result(
        bug,
        index,
        State.NOT_CAUGHT,
        trial.code,
        loaded.version,
        operations=played.operations,
        seconds=played.seconds,
    )
    caught = _caught(trial, played)
    if isinstance(caught, str):
        return evolve(result, says=caught)
    result = evolve(
        result,
        detector=caught.divergence.detector,
        statement=caught.divergence.difference.statement,
        finding=caught.finding or "",
        says=line_of(caught.divergence),
    )
    control = trial.control
    controlled = _played(control.scenario, as_repaired(load(control.system), control.fixes), control.mutants)
    alarms = [*controlled.news, *_wanted(trial, controlled)]
    if alarms:
        says = f"found without the defect too ({control.what}): {line_of(alarms[0].divergence)}"
        return evolve(result, says=says)
    return evolve(result, state=State.CAUGHT, control=f"{control.what}: nothing found")


def _played(scenario: Scenario, loaded: Loaded, mutants: Sequence[Mutant]) -> Played:
    with _injected(mutants):
        return play(scenario, loaded)


@contextmanager
def _injected(mutants: Sequence[Mutant]) -> Iterator[None]:
    with ExitStack() as stack:
        for mutant in mutants:
            stack.enter_context(mutant.applied())
        yield


def _caught(trial: Trial, played: Played) -> Reported | str:
    """What caught the defect; or why nothing did.

    An injected fault is caught by what nothing else explains. Published code may show a declared finding: that is it.
    """
    wanted = _wanted(trial, played)
    if wanted:
        return wanted[0]
    reported = _reported(trial, played)
    expected = " or ".join(trial.statements) + (f" ({trial.words})" if trial.words else "")
    if reported:
        return f"{expected} was expected to be violated, and something else was: {line_of(reported[0].divergence)}"
    return f"{expected} was expected to be violated, and nothing was found"


def as_repaired(loaded: Loaded, findings: frozenset[str]) -> Loaded:
    """``loaded``, compared with the reference without the findings that are fixed in it."""
    return evolve(loaded, factory=without(loaded.factory, findings)) if findings else loaded


def _wanted(trial: Trial, played: Played) -> list[Reported]:
    """What shows the defect."""
    acted = () if trial.mutants else played.acted
    return [each for each in (*_reported(trial, played), *acted) if trial.expects(each.divergence.difference)]


def _reported(trial: Trial, played: Played) -> list[Reported]:
    return played.news if trial.mutants else [*played.news, *played.reported]
