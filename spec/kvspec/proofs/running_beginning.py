"""Chapter 01: how a manager begins, with a pool of any size, of each kind.

The reference's own makers are run. A list of one value for each block is a number of times that value, and the range of
all blocks is the one that is looked at, with those before and after it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch
from weakref import WeakValueDictionary

from attrs import validators

from kvreference import block_pool
from kvreference.ahead import PopulationAhead
from kvreference.answers import Copy, Statistics
from kvreference.block_pool import NULL, BlockPool
from kvreference.free_queue import FreeQueue, ScratchFirstQueue
from kvreference.holdings import Holdings
from kvreference.manager import Manager
from kvreference.pinned_tier import PinnedPool
from kvreference.population import Population
from kvreference.prefix_cache import PrefixCache
from kvreference.scheduler.queues import Queues
from kvreference.scheduler.scheduler import Scheduler
from kvreference.settings import Settings
from kvspec.obligation import Count, Obligation, only
from kvspec.pool.induction import ANY_STATE, anywhere, before
from kvspec.pool.invariants import STRUCTURAL
from kvspec.pool.state import FREE, WAITING, initial
from kvspec.proofs.running_pool import CACHED, FIRST_QUEUE, PARTIAL, PINNED, POOL
from kvspec.proofs.running_tables import HOLDINGS
from kvspec.running import key
from kvspec.sequences import Parts, numbered, ranges_around, times
from kvspec.symbolic import implies

AHEAD = 2
"""How many steps may be in flight, if more than one may."""


def _made(u: Any) -> Any:
    """A manager, with its scheduler if no step is ahead. Of which groups the model has, nothing is asked."""
    geometry: Any = SimpleNamespace(groups=object(), grain_tokens=object(), hashed_ahead_tokens=object())
    with validators.disabled():
        settings = Settings(
            geometry,
            times(u.blocks),  # type: ignore[arg-type]  # a number of any size
            caches=bool(u.caches == 1),
            scratch_first=bool(u.scratch_first == 1),
            pin_drop_blocks_min=1 if u.tier == 1 else None,
            steps_in_flight_max=AHEAD if u.ahead == 1 else 1,
        )
    limits: Any = object()
    if u.ahead == 1:
        return SimpleNamespace(manager=Manager(settings), queues=Queues(), _performed=[])
    return Scheduler(settings, limits)


def _is_free(u: Any, pool: BlockPool, block: Any) -> Any:
    """All that a pool has, as it is in the initial state of the transition system."""
    state, content = initial(before(u)), u.any_content
    is_in_pool = (block >= 0) & (block < u.blocks)
    lists: list[tuple[Any, Any, Any]] = [
        (pool.references, state.refs[block], 0),
        (pool.cached._content, state.content[block], None),
    ]
    waiting: list[Any] = []
    if isinstance(pool, PinnedPool):
        lists.append((pool.is_pinned, state.pinned[block], False))
        waiting = list(pool.pinned)
    same: Any = state.where.count(WAITING) == len(waiting)
    for values, known, nothing in lists:
        (part,) = values
        same = same & (part.count == u.blocks) & (part.value is nothing) & implies(is_in_pool, known == 0)
    queued = [place for place, part in numbered(pool.free) if part is block]
    # Block 1 stands first, and the null block nowhere.
    same = same & ((state.where[block] == FREE) == (len(queued) == 1)) & all(place == block - 1 for place in queued)
    same = same & (Parts(pool.free).length == state.where.count(FREE))
    same = same & (state.listed[content, block] == 0) & (state.begins[content, block] == 0) & (state.begun[block] == 0)
    maps: tuple[Any, ...] = (pool.cached._blocks, pool.partial._blocks, pool.partial._contents)
    return same & (maps == ({}, {}, {}))


def _begins(u: Any) -> Any:
    block = key(u.any_block)
    with patch.object(block_pool, "range", ranges_around(block), create=True):
        made = _made(u)
    manager, pool = made.manager, made.manager.pool
    kinds = [type(pool), type(pool.free), type(manager.population)]
    wanted: list[type] = [
        PinnedPool if u.tier == 1 else BlockPool,
        ScratchFirstQueue if u.scratch_first == 1 else FreeQueue,
        PopulationAhead if u.ahead == 1 else Population,
    ]
    held, queues = manager.holdings, made.queues
    tables: Any = (manager.tables, manager.copies, held.deferred, manager._events, made._performed)
    requests: Any = (manager.prefixes, manager.population.alive, queues.running, queues.waiting, queues.terms)
    nothing = tables == ({}, [], [], [], []) and requests == ({}, {}, [], [], {})
    counts = [manager.performed, manager.population.arrived, manager.population.dispatched, manager.population.over]
    nothing = nothing and counts == [0] * len(counts) and manager.cache.statistics == Statistics()
    interned = manager._interned._children
    # It keeps no prefix that a request leaves.
    nothing = nothing and (type(interned), len(interned)) == (WeakValueDictionary, 0) and pool.partial.offers == 0
    fenced = manager.cache.fenced if isinstance(manager.cache, PrefixCache) else set()
    sound: Any = True
    for invariant in STRUCTURAL:
        sound = invariant(initial(before(u)), anywhere(u)) & sound
    return _is_free(u, pool, block) & sound & (kinds == wanted and nothing and not fenced)


POOL_BEGINS: Callable[..., None] = BlockPool.__init__
TIER_BEGINS: Callable[..., None] = PinnedPool.__init__
HOLDINGS_BEGIN: Callable[..., None] = Holdings.__init__
MANAGER_BEGINS: Callable[..., None] = Manager.__init__
POPULATION_BEGINS: Callable[..., None] = Population.__init__
"""The makers, where nothing is broken."""


def _but(make: Callable[..., None], its: Any, given: Sequence[Any], **others: Any) -> None:
    """What is made, with ``others`` in place of its own."""
    make(its, *given)
    for name, value in others.items():
        setattr(its, name, value)


def _nothing(_its: Any) -> None:
    pass


BEGINS = Obligation(
    id="blocks-and-references.running-beginning",
    statements=(*(f"KV-INV-{number:02}" for number in range(1, 10)), "KV-LEAK-01"),
    title="As it is made, a pool of any size, with or without a pinned tier, whichever queue it has, keeps the "
    "invariants of holders, queues and maps: each block but the null block is in the free queue, once, in order; none "
    "is held, pinned or cached. No request has tables, no copy is pending, and nothing waits for steps; the manager, "
    "its scheduler and its cache remember and count no request. Of prefixes it has a weak map.",
    unknowns={
        **ANY_STATE,
        **{name: Count(0, 1) for name in ("tier", "scratch_first", "ahead", "caches")},
    },
    claim=_begins,
    witnesses={
        "a block of many": lambda u: (u.blocks == 70) & (u.any_block == 69) & (u.tier == 1) & (u.scratch_first == 1),
        "only the null block": lambda u: (u.blocks == 1) & (u.any_block == NULL),
    },
    mutants=(
        only(
            "null-is-free",
            "The null block is in the free queue.",
            f"{FIRST_QUEUE}.__init__",
            lambda self, blocks=(): _but(_nothing, self, (), _order=OrderedDict.fromkeys([NULL, *blocks])),
        ),
        only(
            "last-are-lost",
            "The last blocks are in no queue.",
            f"{FIRST_QUEUE}.__init__",
            lambda self, blocks=(): _but(_nothing, self, (), _order=OrderedDict.fromkeys(list(blocks)[:-1])),
        ),
        only(
            "begins-held",
            "Every block has a holder.",
            f"{POOL}.__init__",
            lambda self, blocks, *others: _but(POOL_BEGINS, self, (blocks, *others), references=[1] * blocks),
        ),
        only(
            "begins-pinned",
            "Every block is pinned.",
            f"{PINNED}.__init__",
            lambda self, blocks, *others: _but(TIER_BEGINS, self, (blocks, *others), is_pinned=[True] * blocks),
        ),
        only(
            "begins-cached",
            "Every block is known to hold something.",
            f"{CACHED}.__init__",
            lambda self, blocks: _but(_nothing, self, (), _blocks={}, _content=[(0, None)] * blocks),
        ),
        only(
            "begins-with-an-entry",
            "A boundary is an entry.",
            f"{PARTIAL}.__init__",
            lambda self: _but(_nothing, self, (), _blocks={(0, None): (1,)}, _contents={1: ((0, None),)}),
        ),
        only(
            "begins-with-a-copy",
            "A copy is pending.",
            f"{HOLDINGS}.__init__",
            lambda self, *given: _but(HOLDINGS_BEGIN, self, given, copies=[Copy(0, 1, NULL, 1)]),
        ),
        only(
            "begins-with-a-request",
            "A request is remembered.",
            "kvreference.manager:Manager.__init__",
            lambda self, *given: _but(MANAGER_BEGINS, self, given, prefixes={0: []}),
        ),
        only(
            "prefixes-stay",
            "A prefix is kept when its request is over and nothing of it is cached.",
            "kvreference.content:WeakValueDictionary",
            dict,
        ),
        only(
            "begins-with-a-step",
            "A step counts as dispatched.",
            "kvreference.population:Population.__init__",
            lambda self, *given: _but(POPULATION_BEGINS, self, given, dispatched=1),
        ),
    ),
)

OBLIGATIONS = (BEGINS,)
