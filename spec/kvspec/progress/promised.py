"""The block manager that runs, over holdings and a cache of which no more is known than what is proved of them.

The scheduler needs little of the holdings: whether a request gets its blocks, and how many blocks a request holds
then. ``Promised`` answers with numbers that are not known. Each of its methods is proved to do what the running one
does, and what is assumed of the numbers are a few predicates, which are proved of the running holdings and cache:
``PROMISES`` names the proofs. The scheduler itself asks of groups only how many blocks are needed or held in all of
them: that it leaves none out is read from the source of these sums (``kvspec.turns``). So a proof over ``Promised``
holds for any number of groups of any kind, with caching, pins and copies, and for any pool.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType, SimpleNamespace
from typing import Any

from attrs import evolve

from kvreference.answers import Answer, Hit
from kvreference.holdings import Allocation, Span
from kvreference.manager import OWN, Manager
from kvreference.operations import Operation
from kvreference.population import Population
from kvspec.progress.counted import tables_of

ASKED: Mapping[str, str] = MappingProxyType(
    {
        "gate": "for how many blocks it asks the gate",
        "takes": "how many of those that can be had it takes",
        "gets": "how many blocks its tables name more then",
        "left": "how many blocks it holds when it has released some first",
        "freed": "how many more can be had when it has",
        "ended": "how many more can be had when it frees all that it holds",
        "copied": "how many more can be had when copies are dispatched",
    }
)
"""What is not known of the request that asks."""


def asked_of(u: Any, suffix: str = "") -> dict[str, Any]:
    """What is not known of a request: the unknowns of these names, with a ``suffix``."""
    return {name: getattr(u, f"{name}{suffix}") for name in ASKED}


class Promised:
    """Stands for the holdings: how many blocks the tables of each request name, and how many can be had.

    A request that is admitted also takes the blocks of its hit, and the sources of its copies, that no request holds.
    Of these, those that wait pinned count as taken here, and as blocks that can be had: the pool counts them on neither
    side. Its tables name the blocks of its hit that others hold, too.
    """

    pool = None

    def __init__(self, held: Mapping[int, Any], free: Any = 0, **asked: Any) -> None:
        self.tables: Any = tables_of(held)
        self.free = free
        """How many blocks are free or can be demoted."""
        self.asked = SimpleNamespace(**asked)
        """Of the request that asks: see ``ASKED``."""

    def passes_gate(self, *_arguments: Any) -> bool:
        """Whether a request that waits passes the gate."""
        return bool(self.asked.gate <= self.free)

    def allocate(self, request: int, _span: Span, _hit: Hit) -> Allocation | None:
        """Give a request its slots, or only release what it does not read any more."""
        self.release_passed(request, 0, 0)
        if not self.asked.takes <= self.free:
            return None
        self.free = self.free - self.asked.takes
        left = self.asked.left if request in self.tables else 0
        self.tables.update(tables_of({request: left + self.asked.gets}))
        return Allocation((), ())

    def release_passed(self, request: int, _computed: Any, _unsure: Any) -> None:
        """Release what a request does not read any more."""
        if request in self.tables:
            self.free = self.free + self.asked.freed
            self.tables.update(tables_of({request: self.asked.left}))

    def dispatch(self) -> tuple[Any, ...]:
        """Pass the copies to the worker."""
        self.free = self.free + self.asked.copied
        return ()

    def release_all(self, request: int) -> None:
        """Release all that a request holds."""
        if self.tables.pop(request, None) is not None:
            self.free = self.free + self.asked.ended


class AnyHit:
    """Stands for a cache: a request hits so many tokens, and the hit is ready, which is 1, or not."""

    def __init__(self, tokens: Any, ready: Any) -> None:
        self.tokens, self.ready = tokens, ready

    def dispatched(self) -> None:
        """What the step computes may serve hits from now on."""
        self.ready = 1

    def look_up(self, *_arguments: Any) -> Hit:
        """The hit."""
        return Hit(self.tokens, ())

    def is_ready(self, *_arguments: Any) -> bool:
        """Whether the step that computes it was dispatched."""
        return bool(self.ready == 1)

    def register(self, *_arguments: Any) -> list[Any]:
        """Something is cached: no table changes."""
        return []


# What is assumed of these numbers where the scheduler is run, and proved of the running holdings and cache


def adds_up(usable: Any, free: Any, *held: Any) -> Any:
    """What no table names can be had, of so many ``usable`` blocks: where no copy is pending."""
    return free + sum(held) >= usable


def releases_some(asked: Any, held: Any) -> Any:
    """A request that releases some of the blocks that it ``held`` holds no more then."""
    return asked.left <= held


def passes_within(asked: Any, held: Any, needed: Any) -> Any:
    """With what a request asks the gate for, it holds no more than it was said to need."""
    return held + asked.gate <= needed


def stays_within(asked: Any, needed: Any) -> Any:
    """With what a request takes, and with what its tables name then, it holds no more than it was said to need."""
    return (asked.left + asked.takes <= needed) & (asked.left + asked.gets <= needed)


def leaves_a_token(hit: Any, tokens: Any) -> Any:
    """Of a request of so many ``tokens`` one at least is not part of its hit."""
    return hit < tokens


def serves_at_once(ready: Any) -> Any:
    """A hit is ready: no step has computed anything since the last was dispatched."""
    return ready == 1


PREDICATES = (adds_up, releases_some, passes_within, stays_within, leaves_a_token, serves_at_once)
"""All that is assumed."""

_CHAPTER = "scheduler-progress.promise"
PROMISES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "Promised.passes_gate": (f"{_CHAPTER}-gate",),
        "Promised.allocate": (f"{_CHAPTER}-first-blocks", f"{_CHAPTER}-next-blocks"),
        "Promised.release_passed": (f"{_CHAPTER}-releases", f"{_CHAPTER}-next-blocks"),
        "Promised.release_all": (f"{_CHAPTER}-releases",),
        "Promised.dispatch": (f"{_CHAPTER}-dispatch",),
        "AnyHit.look_up": (f"{_CHAPTER}-hit",),
        "AnyHit.is_ready": (f"{_CHAPTER}-hit-is-ready",),
        "AnyHit.dispatched": (f"{_CHAPTER}-hit-is-ready",),
        "AnyHit.register": (f"{_CHAPTER}-caching",),
        "adds_up": (f"{_CHAPTER}-what-is-not-named-can-be-had",),
        "releases_some": (f"{_CHAPTER}-next-blocks", f"{_CHAPTER}-releases"),
        "passes_within": (f"{_CHAPTER}-gate",),
        "stays_within": (
            f"{_CHAPTER}-first-blocks",
            f"{_CHAPTER}-next-blocks",
            f"{_CHAPTER}-first-blocks-in-a-group",
            f"{_CHAPTER}-next-blocks-in-a-group",
            f"{_CHAPTER}-next-states-in-a-group",
        ),
        "leaves_a_token": (f"{_CHAPTER}-hit",),
        "serves_at_once": (f"{_CHAPTER}-hit-is-ready",),
    }
)
"""Each method of ``Promised`` and ``AnyHit``, and each predicate, with the obligations that prove it of the running
code."""


def promised(
    settings: Any,
    population: Population,
    holdings: Promised,
    hit_tokens: Any = 0,
    perform: Callable[[Any, Operation], Answer] = OWN.perform,
    ready: Any = 1,
) -> Manager:
    """The running manager over such holdings and such a cache; it may do more when it performs an operation."""
    made: Any = object.__new__(Manager)
    made.settings, made.geometry, made.population = settings, settings.geometry, population
    made.choices = evolve(OWN, perform=perform)
    made.holdings, made.cache = holdings, AnyHit(hit_tokens, ready)
    made._interned = SimpleNamespace(extend=lambda *_: None)
    made.prefixes = {number: [] for number in population.alive}
    made._events, made.performed = [], 0
    manager: Manager = made
    return manager


def held_by(manager: Any, number: int) -> Any:
    """How many blocks a request holds."""
    return sum(table.live().number for table in manager.tables.get(number, ()))
