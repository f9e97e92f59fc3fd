"""Playing a scenario on a system that is loaded: what the gate's own detectors say of it, and how soon."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

from attrs import frozen

from kvgate.corpus.scenario import Blocks, Direct, Engines, Scenario
from kvgate.declared import explain
from kvgate.difference import Difference, Divergence
from kvgate.errors import UsageError
from kvgate.lockstep import Lockstep
from kvgate.runner import Bench
from kvgate.systems import Loaded


@frozen
class Told:
    """One thing that was found, and the declared finding that explains it, if there is one."""

    divergence: Divergence
    finding: str | None


@frozen
class Played:
    """What came of a scenario."""

    told: tuple[Told, ...]
    operations: int
    """How many operations were performed before something was found, or in all."""
    seconds: float
    """How long it took, once the system was loaded."""

    @property
    def news(self) -> list[Told]:
        """What no declared finding explains."""
        return [each for each in self.told if each.finding is None]


def play(scenario: Scenario, loaded: Loaded) -> Played:
    """Build a system, let everything happen to it, end all requests, and judge."""
    started = time.monotonic()
    if isinstance(scenario, Engines):
        lockstep, divergences, operations = _play_engine(scenario, loaded.name)
    else:
        lockstep, divergences = _play_blocks(scenario, loaded)
        operations = len(lockstep.performed)
    told = tuple(Told(divergence, explain(divergence, lockstep)) for divergence in divergences)
    return Played(told, operations, time.monotonic() - started)


def _play_blocks(scenario: Blocks, loaded: Loaded) -> tuple[Lockstep, list[Divergence]]:
    lockstep = Bench(loaded.factory, scenario.detectors).set_up(scenario.settings)
    for divergence in _performed(lockstep, scenario):
        if divergence is not None:
            return lockstep, [divergence]
    return lockstep, lockstep.close()


def _performed(lockstep: Lockstep, scenario: Blocks) -> Iterable[Divergence | None]:
    for operation in scenario.operations:
        yield _direct(lockstep, operation) if isinstance(operation, Direct) else lockstep.perform(operation)


def _direct(lockstep: Lockstep, call: Direct) -> Divergence | None:
    try:
        call.act(lockstep.system)
    except Exception as error:
        told = f"{type(error).__name__}: {error}"
        return Divergence(len(lockstep.performed), None, "check", Difference("KV-SYS-01", call.told, "done", told))
    return None


SUBJECTS = ("stock", "retention")
"""What can stand under an engine."""


def _play_engine(scenario: Engines, name: str) -> tuple[Lockstep, list[Divergence], int]:
    from kvgate.scheduling.engine import Engine

    if name not in SUBJECTS:
        raise UsageError(f"no engine is built around {name!r}: give one of {', '.join(SUBJECTS)}")
    engine = Engine(scenario.settings, scenario.stage, name, scenario.with_reference)
    operations = 0
    for operation in scenario.operations:
        operations += 1
        found = engine.perform(operation)
        if found is not None:
            return engine.lockstep, [found], operations
    return engine.lockstep, engine.close(), operations


def first_news(played: Played) -> Iterator[str]:
    """What was found that nothing explains, a line each."""
    for each in played.news:
        yield line_of(each.divergence)


def line_of(divergence: Divergence) -> str:
    """A divergence on one line: what is violated, where, what was expected and what was seen."""
    from kvgate.reports.contrast import contrast
    from kvgate.reports.wording import printable

    difference = divergence.difference
    expected, got = contrast(difference.expected, difference.got)
    return printable(f"{difference.statement}, {difference.subject}: expected {expected}, got {got}")
