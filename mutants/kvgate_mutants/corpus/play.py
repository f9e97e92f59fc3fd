"""Playing a scenario on a system that is loaded: what the gate's own detectors say of it, and how soon."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from attrs import frozen

from kvgate.adapters.registry import Loaded
from kvgate.findings import explain, explain_engine, explain_pair, explain_tiers
from kvgate.kernel.difference import Difference, Divergence
from kvgate.kernel.errors import UsageError
from kvgate.kernel.lockstep import Lockstep
from kvgate.kernel.text import contrast, printable
from kvgate.levels.manager import Bench
from kvgate.levels.tiers.level import SYSTEMS
from kvgate_mutants.corpus.scenario import Blocks, Direct, Engines, Pairs, Scenario, Tiers
from kvreference.operations import Operation

SUBJECTS = ("stock", "retention", "native@0.23.0", "native@0.33.0")
"""What can stand under an engine."""


@frozen
class Reported:
    """One thing that was found, and the declared finding that explains it, if there is one."""

    divergence: Divergence
    finding: str | None


@frozen
class Played:
    """What came of a scenario."""

    reported: tuple[Reported, ...]
    operations: int
    """How many operations were performed before something was found, or in all."""
    seconds: float
    """How long it took, once the system was built."""
    acted: tuple[Reported, ...] = ()
    """What known findings did, after which it went on."""

    @property
    def news(self) -> list[Reported]:
        """What no declared finding explains."""
        return [each for each in self.reported if each.finding is None]


def play(scenario: Scenario, loaded: Loaded) -> Played:
    """Build a system, let everything happen to it, end all requests, and check."""
    explains, actions, close, locksteps = _built(scenario, loaded)
    started = time.monotonic()
    divergences: Iterable[Divergence] = ()
    performed = 0
    for perform in actions:
        performed += 1
        found = perform()
        if found is not None:
            divergences = (found,)
            break
    else:
        divergences = close()
    seconds = time.monotonic() - started
    reported = [Reported(each, explains(each)) for each in divergences]
    acted = tuple(each for lockstep in locksteps for each in _acted(lockstep))
    return Played(tuple(reported), performed, seconds, acted)


def _acted(lockstep: Lockstep) -> Iterator[Reported]:
    """What known findings did; the run went on."""
    for acted in lockstep.known.violations():
        yield Reported(acted.divergence(acted.step), acted.finding)


Perform = Callable[[], Divergence | None]
Built = tuple[
    Callable[[Divergence], str | None], Iterable[Perform], Callable[[], Iterable[Divergence]], Sequence[Lockstep]
]
"""What recognises findings, what is to be performed, how it ends, and the block managers."""


def _built(scenario: Scenario, loaded: Loaded) -> Built:
    if isinstance(scenario, Pairs):
        return _pair(scenario, loaded.name)
    if isinstance(scenario, Tiers):
        return _tiers(scenario, loaded.name)
    return _engine(scenario, loaded.name) if isinstance(scenario, Engines) else _blocks(scenario, loaded)


def _blocks(scenario: Blocks, loaded: Loaded) -> Built:
    lockstep = Bench(loaded.factory, scenario.detectors).set_up(scenario.settings)
    if scenario.adapts is not None and lockstep.reference is not None:
        scenario.adapts(lockstep.reference)

    def perform(operation: Operation | Direct) -> Divergence | None:
        return _direct(lockstep, operation) if isinstance(operation, Direct) else lockstep.perform(operation)

    explains = partial(explain, lockstep=lockstep)
    return explains, [partial(perform, operation) for operation in scenario.operations], lockstep.close, [lockstep]


def _direct(lockstep: Lockstep, call: Direct) -> Divergence | None:
    try:
        call.act(lockstep.system)
    except Exception as error:
        reported = f"{type(error).__name__}: {error}"
        return Divergence(
            len(lockstep.performed), None, "check", Difference("KV-SYS-01", call.sentence, "done", reported)
        )
    return None


def _engine(scenario: Engines, name: str) -> Built:
    from kvgate.levels.scheduler.engine import Engine

    _check_subject(name)
    engine = Engine(scenario.settings, scenario.stage, name, scenario.with_reference)
    if scenario.adapts is not None and engine.lockstep.reference is not None:
        scenario.adapts(engine.lockstep.reference)
    explains = partial(explain_engine, engine=engine)
    return explains, [partial(engine.perform, each) for each in scenario.operations], engine.close, [engine.lockstep]


def _pair(scenario: Pairs, name: str) -> Built:
    from kvgate.levels.pair.pair import Pair

    _check_subject(name)
    pair = Pair(scenario.settings, scenario.stage, name, scenario.with_reference)
    explains = partial(explain_pair, pair=pair)
    locksteps = pair.prefill.lockstep, pair.decode.lockstep
    return explains, [partial(pair.perform, each) for each in scenario.operations], pair.close, locksteps


def _tiers(scenario: Tiers, name: str) -> Built:
    from kvgate.levels.tiers.engine import TierEngine

    if name not in SYSTEMS:
        raise UsageError(f"no connector of {name!r} is driven: give one of {', '.join(SYSTEMS)}")
    engine = TierEngine(scenario.settings, scenario.stage, name)
    explains = partial(explain_tiers, engine=engine)
    # No reference follows, so no finding acts in one.
    return explains, [partial(engine.perform, each) for each in scenario.operations], engine.close, ()


def _check_subject(name: str) -> None:
    if name not in SUBJECTS:
        raise UsageError(f"no engine is built around {name!r}: give one of {', '.join(SUBJECTS)}")


def line_of(divergence: Divergence) -> str:
    """A divergence on one line: what is violated, where, what was expected and what was seen."""
    difference = divergence.difference
    expected, got = contrast(difference.expected, difference.got)
    return printable(f"{difference.statement}, {difference.subject}: expected {expected}, got {got}")
