"""The reference that follows a system's eviction order: the same specification for every order; an impossible choice is
a divergence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random

import pytest
from attrs import evolve

import kvgate.conformance
from kvgate.adapters.reference import Reference
from kvgate.conformance import Capabilities, Report
from kvreference.answers import Answer, Happened, Hit
from kvreference.block_pool import BlockPool
from kvreference.cached_map import CachedMap, Content
from kvreference.events import Event
from kvreference.free_queue import FreeQueue
from kvreference.operations import Operation
from kvreference.population import Request
from kvreference.settings import Settings
from kvreference.snapshot import Snapshot

MODELS = (
    "full",
    "gemma-hybrid+eagle",
    "mixed-blocks+mtp+retention=64+transfers",
    "mamba-align+eagle",
    "local",
)
ANY = Capabilities(order="any")


class _AnyQueue(FreeQueue):
    """Hands out any of its blocks."""

    def __init__(self, blocks: Iterable[int] = ()) -> None:
        super().__init__(blocks)
        self.random = Random(1)

    def pop(self) -> int:
        block = self.random.choice(list(self))
        self.remove(block)
        return block


class _LastServes(CachedMap):
    """Serves a hit with the block that was registered last."""

    def find(self, content: Content) -> int | None:
        blocks = self._blocks.get(content)
        return None if blocks is None else blocks[-1]


class _AnyPool(BlockPool):
    def __init__(self, blocks: int) -> None:
        super().__init__(blocks)
        self.free = _AnyQueue(range(1, blocks))
        self.cached = _LastServes(blocks)

    def reset(self) -> bool:
        done = super().reset()
        if done:
            self.cached = _LastServes(len(self.references))
        return done


class _OfAnyOrder(Reference):
    """The reference with another order of everything that order is about, events among them."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.holdings.pool = _AnyPool(settings.blocks)

    def apply(self, operation: Operation) -> Answer:
        answer = super().apply(operation)
        return Happened(_mixed(answer.events)) if isinstance(answer, Happened) else answer


def _mixed(events: tuple[Event, ...]) -> tuple[Event, ...]:
    """The same events, those of one group together."""

    def group(event: Event) -> int:
        content = getattr(event, "content", None) or (getattr(event, "contents", None) or [(0, None)])[0]
        return int(content[0])

    cleared = [index for index, event in enumerate(events) if type(event).__name__ == "Cleared"]
    if cleared:
        first = cleared[0]
        return (*_mixed(events[:first]), events[first], *_mixed(events[first + 1 :]))
    return tuple(sorted(events, key=lambda event: -group(event)))


def _checked(build: Callable[[Settings], Reference], models: Iterable[str] = MODELS, operations: int = 2_500) -> Report:
    return kvgate.conformance.run(build, models=list(models), operations=operations, capabilities=ANY)


@pytest.mark.ci
def test_any_order_conforms() -> None:
    """Goal: no false alarm. Method: the specification with a random order, which serves what was registered last."""
    report = _checked(_OfAnyOrder)
    assert report.passed, report.text()
    assert not kvgate.conformance.run(_OfAnyOrder, models=["full"], operations=300).passed


class _HoldsTwice(_OfAnyOrder):
    def apply(self, operation: Operation) -> Answer:
        answer = super().apply(operation)
        held = [block for block, count in enumerate(self.pool.references) if count == 1 and block]
        if len(held) > 3:
            self.pool.references[held[0]] += 1
        return answer


class _HitsLess(_OfAnyOrder):
    def _hit(self, request: Request) -> Hit:
        hit = super()._hit(request)
        return Hit(0, ((),) * len(hit.blocks)) if hit.tokens else hit


class _EvictsAnother(_OfAnyOrder):
    """Loses the content of a free block in addition to those it allocates."""

    def apply(self, operation: Operation) -> Answer:
        answer = super().apply(operation)
        cached = [block for block in self.pool.free if self.pool.cached.content_of(block) is not None]
        if len(cached) > 2:
            self.pool.evict(cached[-1])
        return answer


class _LosesAnEvent(_OfAnyOrder):
    def apply(self, operation: Operation) -> Answer:
        answer = super().apply(operation)
        return Happened(answer.events[1:]) if isinstance(answer, Happened) else answer


class _TurnsEventsRound(_OfAnyOrder):
    def apply(self, operation: Operation) -> Answer:
        answer = super().apply(operation)
        return Happened(answer.events[::-1]) if isinstance(answer, Happened) else answer


class _ListsWhatIsHeld(_OfAnyOrder):
    """Says that a held block is free, in the place of one that is."""

    def snapshot(self) -> Snapshot:
        seen = super().snapshot()
        held = [block for block, count in enumerate(seen.references) if count and block]
        return evolve(seen, free=[*list(seen.free)[1:], held[0]]) if held and seen.free else seen


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("broken", "statement"),
    [
        (_HoldsTwice, "KV-INV-01"),
        (_ListsWhatIsHeld, "KV-OP-05"),
        (_HitsLess, "KV-OP-01"),
        (_EvictsAnother, "KV-OP-08"),
        (_LosesAnEvent, "KV-OP-12"),
        (_TurnsEventsRound, "KV-OP-12"),
    ],
)
def test_what_order_does_not_explain_is_found(broken: type[_OfAnyOrder], statement: str) -> None:
    """Goal: only order is followed. Method: one fault each in a system of random order."""
    report = _checked(broken, ("gpt-oss-hybrid",), 1_500)
    assert statement in {found.divergence.difference.statement for found in report.verdict.found}, report.text()
