"""The running scheduler and block manager, over blocks that are only counted.

What is replaced is what no count can say: which block it is, and which token. Everything that decides who gets blocks,
who loses them and how many tokens are computed is the reference's own code: ``Scheduler``, ``Manager``, ``Population``
and the admission gate. So it runs on terms, and on ints in step with the reference itself.

Prefix caching is off; there are no copies, no pins, and no states that are kept at block ends only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import attrs
from attrs import define

from kvreference import population
from kvreference.admission import blocks_to_come
from kvreference.answers import Copy, Hit
from kvreference.holdings import Allocation, Holdings, Span
from kvreference.manager import OWN, Manager
from kvreference.operations import Run, Sample
from kvreference.population import Population, Request
from kvreference.prefix_cache import NoPrefixCache
from kvreference.scheduler.limits import Limits
from kvreference.scheduler.queues import Queues
from kvreference.scheduler.scheduler import Scheduler
from kvreference.settings import Settings
from kvspec.progress.stand_ins import Counted, counted, least, most


def spelled(runs: Sequence[Run]) -> Counted:
    """As many tokens as the runs stand for."""
    return Counted(sum(run.length for run in runs))


@contextmanager
def on_counts() -> Iterator[None]:
    """Tokens may be counted, and operations may hold terms."""
    with ExitStack() as stack:
        stack.enter_context(counted())
        stack.enter_context(patch.object(population, "spell", spelled))
        stack.enter_context(attrs.validators.disabled())
        yield


@define(eq=False)
class CountedTable:
    """How many entries a table has, and how many of them were given up."""

    entries: Any
    dead: Any

    def live(self) -> Counted:
        """The blocks it names."""
        return Counted(self.entries - self.dead)


class CountedPool:
    """How many blocks are free."""

    def __init__(self, free: Any) -> None:
        self.blocks_free = free

    @property
    def free(self) -> Counted:
        """The free blocks."""
        return Counted(self.blocks_free)


class CountedHoldings(Holdings):
    """Tables of which the entries are counted, over a pool of which the free blocks are."""

    def __init__(self, settings: Settings, free: Any) -> None:
        self.settings = settings
        self.groups = settings.geometry.groups
        pool: Any = CountedPool(free)
        self.pool = pool
        self.tables: dict[int, Any] = {}
        self.copies: list[Copy] = []

    def passes_gate(self, request: int, tokens: int, hit: Hit, computed: int) -> bool:
        del hit  # It is of nothing: prefix caching is off.
        live: list[Any] = [table.live().number for table in self.tables.get(request, ())] or [0] * len(self.groups)
        fits: bool = blocks_to_come(self.settings, tokens, computed, live) <= self._pool.blocks_free
        return fits

    def allocate(self, request: int, span: Span, hit: Hit) -> Allocation | None:
        del hit  # As above.
        if request in self.tables:
            self.release_dead(request, span.computed)
        nothing = [CountedTable(dead, dead) for dead in (group.blocks_unread(span.computed) for group in self.groups)]
        tables = self.tables.get(request, nothing)
        after = span.computed + span.tokens
        slots = least(after + span.lookahead, self.settings.tokens_max)
        entries = [
            most(table.entries, group.blocks_occupied(span.provided), group.entries(after, slots))
            for group, table in zip(self.groups, tables, strict=True)
        ]
        new = sum(count - table.entries for count, table in zip(entries, tables, strict=True))
        if new > self._pool.blocks_free:
            return None
        self._pool.blocks_free -= new
        self.tables[request] = [CountedTable(count, table.dead) for count, table in zip(entries, tables, strict=True)]
        return Allocation((), ())

    def dispatch(self) -> tuple[Copy, ...]:
        return ()

    def release_dead(self, request: int, computed: int) -> None:
        for group, table in zip(self.groups, self.tables[request], strict=True):
            dead = most(table.dead, least(group.blocks_dead(computed), table.entries))
            self._pool.blocks_free += dead - table.dead
            table.dead = dead

    def release_all(self, request: int) -> None:
        for table in self.tables.pop(request, []):
            self._pool.blocks_free += table.live().number

    @property
    def _pool(self) -> CountedPool:
        pool: Any = self.pool
        assert isinstance(pool, CountedPool)
        return pool


class CountedPopulation(Population):
    """Requests of which the tokens are counted."""

    def _answer(self, request: Request, operation: Sample) -> None:
        request.tokens_computed -= request.drafts_in_flight - operation.accepted
        tokens: Any = request.tokens
        request.tokens = tokens + Counted(operation.accepted + 1)
        last: Any = request.tokens
        request.tokens_computed = least(request.tokens_computed, last.number - 1)
        request.drafts = [0] * operation.drafts
        request.drafts_in_flight = 0


class CountedManager(Manager):
    """The block manager over counts."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.choices = OWN
        self.geometry = settings.geometry
        self.population = CountedPopulation(settings)
        self.holdings = CountedHoldings(settings, settings.blocks - 1)
        self.cache = NoPrefixCache(settings.geometry)
        interned: Any = SimpleNamespace(extend=lambda *_: None)
        self._interned = interned
        self.prefixes = {}
        self._events = []
        self.performed = 0


def counted_scheduler(settings: Settings, limits: Limits, kind: type[Scheduler] = Scheduler) -> Scheduler:
    """A scheduler of some kind over counts, in its first state."""
    made = object.__new__(kind)
    made.settings, made.limits = settings, limits
    made.manager, made.queues = CountedManager(settings), Queues()
    made._performed = []
    return made
