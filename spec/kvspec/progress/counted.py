"""The running scheduler and block manager, over requests and blocks that are only counted.

Only what a count cannot express is replaced: which block it is, and which token. Everything that decides which requests
get blocks, which lose them and how many tokens are computed is the reference's own code: ``Scheduler``, ``Manager``,
``Population`` and the admission gate. So it runs on terms, and on ints in step with the reference itself
(``SideBySide``). Prefix caching is off; there are no copies, no pins, and no states that are kept at block ends only.

The rules ask how long a list is, and nothing else about what is in it. So a list of any length stands here as its
length, a term. Python's own ``len`` gives only ints: within ``counted`` the modules of the reference that ask for
lengths have a ``len`` that returns the term of a ``Counted``. They also have a ``min`` and a ``max`` that give a term
where Python's own would fork the run. Nothing else of their code is touched.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import reduce
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import attrs
from attrs import define, frozen

from kvreference import admission, attention, mamba, manager, pinned_tier, population
from kvreference.admission import blocks_to_come
from kvreference.answers import Answer, Copy, Hit
from kvreference.holdings import Allocation, Holdings, Span
from kvreference.manager import OWN, Manager
from kvreference.operations import Dispatch, Run, Sample, TakeEvents
from kvreference.operations import Operation as BlockOperation
from kvreference.population import Population, Request, Status
from kvreference.prefix_cache import NoPrefixCache
from kvreference.scheduler import progress, room, scheduler
from kvreference.scheduler.limits import Limits
from kvreference.scheduler.observation import Observation
from kvreference.scheduler.operations import Operation
from kvreference.scheduler.queues import Queues, Terms
from kvreference.scheduler.scheduler import Scheduler
from kvreference.settings import Settings
from kvspec.symbolic import either

COUNTING = (admission, attention, mamba, manager, pinned_tier, population, progress, room, scheduler)
"""The modules that ask how long something is, or which of two numbers is smaller."""


@frozen(eq=False)
class Counted:
    """A list of which only the length is known."""

    number: Any

    def __bool__(self) -> bool:
        return bool(self.number > 0)

    def __add__(self, other: Sequence[int]) -> Counted:
        return Counted(self.number + length_of(other))

    def __getitem__(self, which: Any) -> Any:
        """Its first elements, as one that stands for them all."""
        assert which.start is None, "from the first on"
        return [Counted(least(self.number, which.stop))]


class Longest:
    """The most tokens that a request may have.

    What is more is cut from a list of new ones. Here one of its elements may stand for many: so the list is not cut,
    and when it is added to the tokens no more of it is than there is room for.
    """

    def __init__(self, most: Any) -> None:
        self.most = most
        self.room: Any = 0

    def __sub__(self, tokens: Any) -> int:
        self.room = self.most - tokens
        return sys.maxsize


@frozen(eq=False)
class Growing(Counted):
    """The tokens of a request that is answered."""

    longest: Longest

    def __iadd__(self, more: Sequence[Any]) -> Counted:  # type: ignore[misc]  # as a list does
        count: Any = sum(each.number if isinstance(each, Counted) else 1 for each in more)
        return Counted(self.number + least(count, self.longest.room))


def length_of(value: Any) -> Any:
    """How long ``value`` is."""
    return value.number if isinstance(value, Counted) else len(value)


def least(*numbers: Any) -> Any:
    """The smallest, without a fork."""
    return reduce(lambda first, second: either(first <= second, first, second), numbers)


def most(*numbers: Any) -> Any:
    """The largest, without a fork."""
    return reduce(lambda first, second: either(first >= second, first, second), numbers)


BUILT_IN = {"len": length_of, "min": least, "max": most}


@contextmanager
def counted(kind: type[Scheduler] = Scheduler) -> Iterator[None]:
    """Lengths may be terms, and the smaller of two numbers is one; also in the module of a scheduler of some kind."""
    modules = [vars(module) for module in {*COUNTING, sys.modules[kind.__module__]}]
    before = [{name: module[name] for name in BUILT_IN if name in module} for module in modules]
    for module in modules:
        module.update(BUILT_IN)
    try:
        yield
    finally:
        for module, its in zip(modules, before, strict=True):
            for name in BUILT_IN:
                del module[name]
            module.update(its)


def settings_of(blocks: Any = 0, **rest: Any) -> Any:
    """Settings, as far as progress reads them; the ``parts`` are of the geometry."""
    parts = {"state_block_tokens": None, "lookahead_tokens": 0, "fences": False, "keeps_states": False}
    geometry = SimpleNamespace(groups=(), **{name: rest.pop(name, no) for name, no in parts.items()})
    return SimpleNamespace(blocks=blocks, geometry=geometry, drafts_max=1, **rest)


def request_of(
    number: int, tokens: Any, computed: Any = 0, status: Status = Status.WAITING, drafts: Any = 0
) -> Request:
    """A request that has counts in place of lists."""
    lists: Any = Counted(tokens), Counted(drafts)
    keys: Any = None
    return Request(number, lists[0], keys, False, status=status, tokens_computed=computed, drafts=lists[1])


def scheduler_of(
    settings: Any,
    limits: Any,
    requests: Sequence[Request],
    terms: Mapping[int, Terms],
) -> Scheduler:
    """A scheduler over these requests, in the order given: those that run, then those that wait."""
    made = object.__new__(Scheduler)
    made.settings, made.limits, made.queues = settings, limits, Queues()
    made.queues.running = [each.number for each in requests if each.status is Status.RUNNING]
    made.queues.waiting = [each.number for each in requests if each.status is not Status.RUNNING]
    made.queues.terms = dict(terms)
    books = Population(settings)
    books.alive = {each.number: each for each in requests}
    blocks: Any = SimpleNamespace(population=books, tables={})
    made.manager = blocks
    made._performed = []
    return made


def answer_of(population: Population, request: Request, accepted: Any) -> None:
    """Some drafts hold, and one token more is answered, by the reference's own rule; nothing is drafted."""
    longest = Longest(population.settings.tokens_max)
    tokens: Any = Growing(length_of(request.tokens), longest)
    request.tokens = tokens
    sample: Any = SimpleNamespace(accepted=accepted, drafts=0, token=0, beyond=0)
    with patch.object(population, "settings", SimpleNamespace(tokens_max=longest)):
        population._answer(request, sample)


class Held(dict[int, list[Any]]):
    """The tables of the requests that are looked at: others may have some, too."""

    def __bool__(self) -> bool:
        """Not known: code that asks whether there are any tables depends on those of others."""
        raise LookupError("whether any request has tables is not known")


def tables_of(held: Mapping[int, Any]) -> Held:
    """Per request, tables that have so many blocks together: the first has none, so the others count, too."""
    return Held(
        (number, [SimpleNamespace(live=lambda count=count: Counted(count)) for count in (0, blocks)])
        for number, blocks in held.items()
    )


def spelled(runs: Sequence[Run]) -> Counted:
    """As many tokens as the runs stand for."""
    return Counted(sum(run.length for run in runs))


@contextmanager
def on_counts(kind: type[Scheduler] = Scheduler) -> Iterator[None]:
    """Tokens may be counted, and operations may hold terms."""
    with ExitStack() as stack:
        stack.enter_context(counted(kind))
        stack.enter_context(patch.object(population, "spell", spelled))
        stack.enter_context(attrs.validators.disabled())
        yield


@define(eq=False)
class CountedTable:
    """How many entries a table has, and how many of them were released."""

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

    def release_passed(self, request: int, computed: int, unsure: int) -> None:
        self.release_dead(request, computed - unsure)

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


class SideBySide:
    """Two schedulers that are asked the same."""

    def __init__(self, settings: Settings, limits: Limits, kind: type[Scheduler] = Scheduler) -> None:
        if settings.caches or any(g.copies or g.attention.stops_at_block_ends for g in settings.geometry.groups):
            raise ValueError("nothing is counted with caching, copies, or states that are kept at block ends only")
        self.reference = kind(settings, limits)
        with on_counts():
            self.counted = counted_scheduler(settings, limits)

    def apply(self, operation: Operation) -> list[str]:
        """Perform a legal operation on both; how their answers and their states differ."""
        observation = self.reference.apply(operation)
        with on_counts():
            counted = self.counted.apply(operation)
        found = [
            f"{what}: {one} over blocks, {other} over counts" for what, one, other in _answers(observation, counted)
        ]
        return found + list(self.differences())

    def differences(self) -> Iterator[str]:
        """How the states differ: the queues, the requests, the holdings, the free blocks."""
        one, other = _state(self.reference), _state(self.counted)
        for what in one:
            if one[what] != other[what]:
                yield f"{what}: {one[what]} over blocks, {other[what]} over counts"


def _answers(observation: Observation, counted: Observation) -> Iterator[tuple[str, object, object]]:
    pairs = ("asked", _asked(observation), _asked(counted)), ("entered", observation.entered, counted.entered)
    for what, one, other in (*pairs, ("refused", observation.reason, counted.reason)):
        if one != other:
            yield what, one, other


def _asked(observation: Observation) -> list[tuple[BlockOperation, str, Any, Any]]:
    """The operations and answers of the block manager, without the blocks themselves."""
    return [
        (asked, *_answer(answer))
        for asked, answer in observation.performed
        if not isinstance(asked, (Dispatch, TakeEvents))
    ]


def _answer(answer: Answer) -> tuple[str, Any, Any]:
    return type(answer).__name__, getattr(answer, "external_tokens", None), getattr(answer, "loads", None)


def _state(scheduler: Scheduler) -> dict[str, object]:
    alive = scheduler.manager.population.alive
    return {
        "running": list(scheduler.queues.running),
        "waiting": list(scheduler.queues.waiting),
        "terms": dict(scheduler.queues.terms),
        "free blocks": length_of(scheduler.manager.pool.free),
        "requests": {
            n: (r.status.name, length_of(r.tokens), len(r.drafts), r.tokens_computed, r.drafts_in_flight)
            for n, r in alive.items()
        },
        "blocks held": {n: [length_of(t.live()) for t in tables] for n, tables in scheduler.manager.tables.items()},
    }
