"""The stage of these tests: a system that is watched by one monitor while it performs what must be legal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvgate.adapters.reference import Reference
from kvgate.kernel.difference import Difference
from kvgate.kernel.monitor import Monitor, Step
from kvgate.kernel.protocol import System
from kvreference.answers import Hit
from kvreference.attention import Kind
from kvreference.content import Prefix
from kvreference.geometry import Geometry, Group
from kvreference.holdings import Holdings
from kvreference.operations import Arrive, Operation, Run
from kvreference.prefix_cache import PrefixCache, new_cache
from kvreference.settings import Settings

FULL = Group(Kind.FULL, 4)
WINDOW = Group(Kind.SLIDING_WINDOW, 4, window_tokens=6)
DRAFTING = Group(Kind.FULL, 4, lookahead=True)


def settings_of(*groups: Group, **limits: Any) -> Settings:
    """Settings with room for all requests, unless ``limits`` say otherwise."""
    return Settings(Geometry(groups), **{"blocks": 64, "chunk_tokens": 1024, **limits})


def watch(monitor: Monitor, system: System, *operations: Operation) -> Difference | None:
    """The first difference that ``monitor`` sees; every operation before it must be legal."""
    for operation in operations:
        assert operation == system.population.resolve(operation)
        answer = system.apply(operation)
        found = monitor.observe(Step(operation, answer, system.snapshot(), system.population))
        if found is not None:
            return found
    return None


def arrive(number: int, tokens: int, first: int = 0) -> Arrive:
    """A request with a prompt of one run."""
    return Arrive(number, (Run(first, tokens),))


class WithHoldings(Reference):
    """The reference over other holdings."""

    holdings_kind: type[Holdings]

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.holdings = self.holdings_kind(settings)


class Hasty(Reference):
    """Known tokens may be copied and resumed from, computed or not."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        cache = new_cache(settings)
        assert isinstance(cache, PrefixCache)
        self.cache = _HastyCache(cache.geometry, cache.retention)


class _HastyCache(PrefixCache):
    def is_ready(self, hit: Hit, prefixes: Sequence[Prefix]) -> bool:
        del hit, prefixes
        return True


NEVER = "nothing was ever written there"
GIVEN_UP = "the block was freed: null block"


def wrong(request: int, expected: str, got: str, group: int = 0) -> Difference:
    """A slot that does not hold what is read from it."""
    return Difference("KV-MEM-01", f"request {request}, group {group}", expected, got)


def state(number: int, token: int, position: int) -> str:
    """A printed state; states are numbered as they come up, from 1 on."""
    return f"state {number}: token {token} at position {position}, salt and adapter (None, None)"
