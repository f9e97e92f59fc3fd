"""Faulty systems that need no vLLM, a case for each, and what is recorded of them."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import evolve
from tests.difftest.having import Having

from kvgate.adapters.reference import Reference
from kvgate.adapters.releases import INSTALLED
from kvgate.gate.level import Case
from kvgate.gate.verdict import Found
from kvgate.kernel.protocol import Factory
from kvgate.levels.manager import MANAGER, Bench
from kvgate.report.page.pages import About
from kvgate.report.page.recording import Recording, record
from kvreference.answers import Answer, Hit
from kvreference.attention import Kind
from kvreference.content import Keys
from kvreference.geometry import Geometry, Group
from kvreference.operations import Admit, Arrive, Finish, LookUp, Operation, Run, TakeEvents, TakeStatistics
from kvreference.population import Request
from kvreference.prefix_cache import no_hit
from kvreference.settings import Settings

HOSTILE = "</script><img src=x onerror=alert(1)>\"'&{{ 7 * 7 }}\u2028"


class HitsNothing(Reference):
    """A cache that is never hit."""

    def _hit(self, request: Request) -> Hit:
        super()._hit(request)
        return no_hit(self.geometry)


class ServesOthers(Having):
    """A salt that is called like an adapter is served what the adapter computed."""

    description = evolve(INSTALLED, findings=frozenset())


class ForgetsTheWindow(Reference):
    """Forgets at once a cached block of the second group: the third block of the first request admitted."""

    def apply(self, operation: Operation) -> Answer:
        answer = super().apply(operation)
        if isinstance(operation, Admit):
            self.pool.evict(self.tables[operation.request][1].blocks[-1])
        return answer


class KeepsABlock(Reference):
    """A finished request leaves a block held."""

    def apply(self, operation: Operation) -> Answer:
        if isinstance(operation, Finish):
            self.pool.touch(self.tables[operation.request][0].blocks[:1])
        return super().apply(operation)


class Raises(Reference):
    """No look-up succeeds."""

    def apply(self, operation: Operation) -> Answer:
        if isinstance(operation, LookUp):
            raise ZeroDivisionError(HOSTILE)
        return super().apply(operation)


SETTINGS = Settings(Geometry((Group(Kind.FULL, 4), Group(Kind.SLIDING_WINDOW, 4, window_tokens=6))), blocks=24)
FULL = Settings(Geometry((Group(Kind.FULL, 4),)), blocks=12)
PROMPT = (Run(0, 12),)
TWICE: tuple[Operation, ...] = (Arrive(0, PROMPT), Admit(0, 64), Arrive(1, PROMPT), LookUp(1))
"""A request, and another with the same tokens that asks for its hit: 8 of 12 tokens."""
ENDED: tuple[Operation, ...] = (Arrive(0, PROMPT), Admit(0, 64), Finish(0), TakeEvents(), TakeStatistics())
BY_ANOTHER: tuple[Operation, ...] = (
    Arrive(0, PROMPT, Keys(lora="tenant")),
    Admit(0, 64),
    Arrive(1, PROMPT, Keys(salt="tenant")),
    Admit(1, 64),
)
ABOUT = About("stock", "0.20.2", "full", "tiny", "7", "kvgate replay divergence-1.jsonl")


def case_of(operations: Sequence[Operation], settings: Settings = SETTINGS) -> Case:
    """A case of these operations."""
    return MANAGER.case(settings, tuple(operations), model="full", preset="tiny", seed=7)


def recorded(
    factory: Factory,
    operations: Sequence[Operation],
    settings: Settings = SETTINGS,
    detectors: tuple[str, ...] = ("lockstep",),
) -> tuple[Recording, Found]:
    """A run that diverges, written down, and what was found."""
    case = case_of(operations, settings)
    recording = record(Bench(factory, detectors), case)
    divergence = recording.divergences[0]
    return recording, Found(divergence, evolve(case, operations=recording.operations[: divergence.step + 1]))
