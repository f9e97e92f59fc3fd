"""What happens to a system in a trial: operations on a block manager, on an engine around one, or on two engines.

Everything is spelled out, so a trial is the same everywhere and always; nothing is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

from attrs import field, frozen
from attrs.validators import min_len

from kvgate.levels.manager import GATE
from kvgate.levels.pair.operations import Operation as PairOperation
from kvgate.levels.pair.operations import PairStage
from kvgate.levels.registry import read
from kvgate.levels.scheduler.operations import Operation as EngineOperation
from kvgate.levels.scheduler.operations import Stage
from kvgate.levels.tiers.operations import Operation as TierOperation
from kvgate.levels.tiers.operations import TierStage
from kvreference.attention import Kind
from kvreference.content import Keys
from kvreference.geometry import Geometry, Group
from kvreference.mamba import StateMode
from kvreference.manager import Manager
from kvreference.operations import Admit, Arrive, Dispatch, Finish, Operation, Run, Schedule
from kvreference.settings import Settings

CASES = Path(__file__).parent / "cases"
"""The stored cases, one for each thread."""


@frozen
class Direct:
    """A direct call of a part of the system, past its block manager; the next operation shows its effect."""

    sentence: str
    act: Callable[[Any], None] = field(repr=False)
    """Gets the system."""


@frozen
class Blocks:
    """Operations on a block manager."""

    settings: Settings
    operations: tuple[Operation | Direct, ...] = field(repr=False, validator=min_len(1))
    detectors: tuple[str, ...] = GATE
    adapts: Callable[[Manager], None] | None = field(default=None, repr=False)
    """Teaches the reference what it does not know, and must to check this."""


@frozen
class Engines:
    """Operations on an engine: a scheduler with its block manager, and a worker with scripted answers."""

    settings: Settings
    stage: Stage
    operations: tuple[EngineOperation, ...] = field(repr=False, validator=min_len(1))
    with_reference: bool = True
    adapts: Callable[[Manager], None] | None = field(default=None, repr=False)
    """As for operations on a block manager."""


@frozen
class Pairs:
    """Operations on two nodes: a prefill node and a decode node, each an engine."""

    settings: Settings
    stage: PairStage
    operations: tuple[PairOperation, ...] = field(repr=False, validator=min_len(1))
    with_reference: bool = True


@frozen
class Tiers:
    """Operations on an engine with a KV connector and its tier on the host."""

    settings: Settings
    stage: TierStage
    operations: tuple[TierOperation, ...] = field(repr=False, validator=min_len(1))


def stored(name: str) -> Tiers:
    """A stored case of two tiers."""
    case = read(CASES / name).case
    return Tiers(case.settings, case.stage, case.operations)


Scenario: TypeAlias = Blocks | Engines | Pairs | Tiers


# What most scenarios consist of: groups, requests, and their operations


def full(size: int = 16, *, eagle: bool = False, ratio: int = 1, whole_slots: bool = False) -> Group:
    """Full attention, or latent attention of which ``ratio`` tokens share a slot; ``size`` in tokens."""
    return Group(Kind.FULL, size, lookahead=eagle, compress_ratio=ratio, whole_slots=whole_slots)


def window(tokens: int, size: int = 16, *, eagle: bool = False) -> Group:
    """A sliding window."""
    return Group(Kind.SLIDING_WINDOW, size, tokens, eagle)


def states(size: int = 16, mode: StateMode = StateMode.ALIGN, drafts: int = 0) -> Group:
    """A group of a state-space layer."""
    return Group(Kind.MAMBA, size, states=mode, draft_states=drafts)


def of(*groups: Group) -> Geometry:
    """A geometry."""
    return Geometry(groups)


def tokens(first: int, count: int) -> tuple[Run, ...]:
    """A prompt of consecutive token ids."""
    return (Run(first, count),)


def prefilled(
    request: int, prompt: tuple[Run, ...], chunk: int, keys: Keys | None = None, *, cached: int = 0
) -> Iterator[Operation]:
    """A request arrives and computes its prompt in chunks, of which ``cached`` tokens are expected to be hit."""
    yield Arrive(request, prompt, keys or Keys())
    yield Admit(request, chunk)
    left = sum(run.length for run in prompt) - cached - chunk
    while left > 0:
        yield Schedule(request, chunk)
        left -= chunk


def ended(request: int, prompt: tuple[Run, ...], chunk: int, keys: Keys | None = None) -> Iterator[Operation]:
    """The same, of which nothing is expected to be hit, and the request ends."""
    yield from prefilled(request, prompt, chunk, keys)
    yield Finish(request)


def dispatched(operations: Iterable[Operation]) -> Iterator[Operation]:
    """The same, with each step sent to the worker before the next: where steps matter."""
    for operation in operations:
        yield operation
        if isinstance(operation, (Admit, Schedule)):
            yield Dispatch()
