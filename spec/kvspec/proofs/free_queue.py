"""Chapter 02: which of two blocks is allocated first, however many others are released with them.

Two blocks are looked at in a release of any length; what is so of any two is so of all. A block's place in the queue is
a number: of two, the block with the lower one is allocated first. The reference's own queues, pool and holdings run
over these numbers, which stand for the ordered dictionary in a queue. Between the blocks that are looked at stand
``Others``, as many as a release may have.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from attrs import frozen

from kvreference.block_pool import BlockPool
from kvreference.free_queue import FreeQueue, ScratchFirstQueue
from kvreference.holdings import Holdings
from kvreference.pinned_tier import PinnedPool
from kvreference.rules import OWN_RULES
from kvspec.obligation import AMap, Count, Obligation, Unknown, only
from kvspec.running import Key, fresh, key
from kvspec.symbolic import Condition, Number, current_path, formula_of, implies, negated


@frozen(eq=False)
class Others:
    """Blocks that are not observed."""

    blocks: Number
    scratch: bool


@frozen(eq=False)
class Scratch:
    """The blocks that are not cached, as a collection."""

    cached: Any
    """Block to whether it is cached, 0 or 1."""

    def __contains__(self, block: Any) -> bool:
        return block.scratch if isinstance(block, Others) else bool(self.cached[block] == 0)


class Places:
    """Stands for the ordered dictionary in a queue: each block has a place, the lower ones before the others."""

    def __init__(self, place: Any, queued: Any, front: Number, back: Number) -> None:
        self.place = place
        self.queued = queued
        """Block to whether it is there, 0 or 1."""
        self.front = front
        """No place is lower."""
        self.back = back
        """Every place is lower."""

    def __bool__(self) -> bool:
        return bool(self.front < self.back)

    def __contains__(self, block: Any) -> bool:
        return not isinstance(block, Others) and bool(self.queued[block] == 1)

    def __setitem__(self, block: Any, _nothing: None) -> None:
        if isinstance(block, Others):
            self.back = self.back + block.blocks
            return
        self._put(block, self.back)
        self.back = self.back + 1

    def __delitem__(self, block: Any) -> None:
        self.queued = self.queued.put(block, 0)

    def move_to_end(self, block: Any, last: bool = True) -> None:
        """What is there goes to the front."""
        assert not last, "to the front"
        if isinstance(block, Others):
            self.front = self.front - block.blocks
            return
        self.front = self.front - 1
        self._put(block, self.front)

    def popitem(self, last: bool = True) -> tuple[Key, None]:
        """The block that is before all others."""
        assert not last, "from the front"
        block = fresh("front")
        current_path().assume(formula_of(self.queued[block] == 1))
        del self[block]
        return block, None

    def _put(self, block: Any, place: Number) -> None:
        self.place = self.place.put(block, place)
        self.queued = self.queued.put(block, 1)


class _References:
    """Reference counts that are written in place. Of others, each has one holder."""

    def __init__(self, counts: Any) -> None:
        self.counts = counts

    def __getitem__(self, block: Any) -> Any:
        return 1 if isinstance(block, Others) else self.counts[block]

    def __setitem__(self, block: Any, count: Any) -> None:
        if not isinstance(block, Others):
            self.counts = self.counts.put(block, count)


def _content_of(cached: Any, block: Any) -> object:
    return None if block in Scratch(cached) else "something"


@frozen(eq=False)
class _Pinned:
    """Which blocks are pinned. Others are not: those that are stand in another queue."""

    pinned: Any
    """Block to whether it is pinned, 0 or 1."""

    def __getitem__(self, block: Any) -> bool:
        return not isinstance(block, Others) and bool(self.pinned[block] == 1)


QUEUED = BlockPool._queue
"""How blocks are queued, where nothing is broken."""


def pool_over(references: Any, cached: Any, free: FreeQueue, pinned: Any = None) -> BlockPool:
    """A block pool over such a queue, in which no block only begins with something; with a tier if some are pinned."""
    pool: Any = object.__new__(BlockPool if pinned is None else PinnedPool)
    pool.is_pinned, pool.pinned = _Pinned(pinned), list[Any]()
    pool.references, pool.free = _References(references), free
    pool.cached = SimpleNamespace(content_of=lambda block: _content_of(cached, block))
    pool.partial = SimpleNamespace(contents_of=lambda _block: ())
    made: BlockPool = pool
    return made


def queue_over(places: Places, kind: type[FreeQueue] = ScratchFirstQueue) -> Any:
    """The reference's own queue over such places."""
    queue: Any = object.__new__(kind)
    queue._order = places
    return queue


QUEUE = "kvreference.free_queue:ScratchFirstQueue"
NUMBERED: dict[str, Unknown] = {
    "place": AMap(),
    "queued": AMap(),
    "cached": AMap(),
    "prepended": Count(0),
    "appended": Count(0),
}
"""Places are counted from that of the first block ever queued: so many were taken before it, and from it on."""
BETWEEN: dict[str, Unknown] = {f"{kind}_{where}": Count(0) for where in range(3) for kind in ("scratch", "kept")}
"""How many others stand before, between and after the blocks that are looked at."""


def _places(u: Any) -> Places:
    return Places(u.place, u.queued, -u.prepended, u.appended)


def _among_others(u: Any, *blocks: Number) -> list[Any]:
    """``blocks``, in order, with others before, between and after them."""
    mixed: list[Any] = []
    for where in range(3):
        mixed += [Others(getattr(u, f"scratch_{where}"), True), Others(getattr(u, f"kept_{where}"), False)]
        mixed += blocks[where : where + 1]
    return mixed


def _in_order(queue: Any, cached: Any, kept: Number, scratch: Number) -> Condition:
    """If one is cached and the other is scratch, and both are queued, scratch stands before; and both have a place."""
    here, there = queue.queued[kept] == 1, queue.queued[scratch] == 1
    apart = (cached[kept] != 0) & (cached[scratch] == 0)
    return (
        implies(here & there & apart, queue.place[scratch] < queue.place[kept])
        & implies(here, (queue.place[kept] >= queue.front) & (queue.place[kept] < queue.back))
        & implies(there, (queue.place[scratch] >= queue.front) & (queue.place[scratch] < queue.back))
    )


def _before_release(u: Any) -> Any:
    """The two that are released are held, and stand nowhere yet; any other two are in order."""
    fine = (u.first != u.second) & _in_order(_places(u), u.cached, u.one, u.other)
    for block in (u.first, u.second):
        fine = fine & (u.queued[block] == 0) & (u.references[block] >= 1)
        fine = fine & implies(u.pinned[block] == 1, u.cached[block] != 0)
    return fine


def _released(u: Any) -> Places:
    places = _places(u)
    pool = pool_over(u.references, u.cached, queue_over(places), u.pinned if u.tier == 1 else None)
    pool.release(_among_others(u, key(u.first), key(u.second)))
    return places


def _appended(self: Any, blocks: Any, _scratch: Any) -> None:
    FreeQueue.put(self, blocks, ())


def _scratch_reversed(self: Any, blocks: Any, scratch: Any) -> None:
    FreeQueue.put(self, [block for block in blocks if block not in scratch], ())
    for block in blocks:
        if block in scratch:
            self.prepend(block)


RELEASE: dict[str, Unknown] = {
    **NUMBERED,
    **BETWEEN,
    "references": AMap(),
    "pinned": AMap(),
    "tier": Count(0, 1),
    "first": Count(1),
    "second": Count(1),
    "one": Count(1),
    "other": Count(1),
}

SCRATCH_FIRST = Obligation(
    id="free-queue.scratch-stands-first",
    statements=("KV-INV-08",),
    title="With scratch first, no release of any length, with or without a pinned tier, puts a cached block before a "
    "scratch one.",
    unknowns=RELEASE,
    assumes=_before_release,
    claim=lambda u: _in_order(_released(u), u.cached, u.one, u.other),
    witnesses={
        "a queued one and a new one": lambda u: (
            (u.cached[u.one] != 0)
            & (u.cached[u.other] == 0)
            & (u.queued[u.one] == 1)
            & (u.other == u.first)
            & (u.references[u.first] == 1)
        ),
        "a pinned one and a scratch one": lambda u: (
            (u.tier == 1)
            & (u.pinned[u.first] == 1)
            & (u.references[u.first] == 1)
            & (u.cached[u.second] == 0)
            & (u.references[u.second] == 1)
        ),
    },
    mutants=(only("scratch-appended", "Scratch goes to the back like the rest.", f"{QUEUE}.put", _appended),),
)


def _keeps_its_order(u: Any) -> Any:
    """Of two of a kind in one release, the first is allocated first; cached goes last, scratch before all else."""
    queue = _released(u)
    same = (u.cached[u.first] == 0) & (u.cached[u.second] == 0) | (u.cached[u.first] != 0) & (u.cached[u.second] != 0)
    is_free = queue.queued[u.first] == 1
    there = is_free & (u.queued[u.one] == 1) & (queue.queued[u.one] == 1)
    is_pinned = (u.tier == 1) & (u.pinned[u.first] == 1)
    return (
        (is_free == ((u.references[u.first] == 1) & negated(is_pinned)))
        & implies(same & is_free & (queue.queued[u.second] == 1), queue.place[u.first] < queue.place[u.second])
        & implies(there & (u.cached[u.first] == 0), queue.place[u.first] < queue.place[u.one])
        & implies(there & (u.cached[u.first] != 0), queue.place[u.one] < queue.place[u.first])
    )


RELEASE_ORDER = Obligation(
    id="free-queue.release-keeps-its-order",
    statements=("KV-OP-17",),
    title="With scratch first, in a release of any length, with or without a pinned tier, scratch that gets free goes "
    "before all in the free queue, cached blocks after all, each in its own order.",
    unknowns=RELEASE,
    assumes=_before_release,
    claim=_keeps_its_order,
    witnesses={
        "two scratch ones before a queued one": lambda u: (
            (u.cached[u.first] == 0)
            & (u.cached[u.second] == 0)
            & (u.queued[u.one] == 1)
            & (u.references[u.first] == 1)
            & (u.references[u.second] == 1)
        )
    },
    mutants=(
        only("scratch-reversed", "Scratch of one release is turned around.", f"{QUEUE}.put", _scratch_reversed),
        only("scratch-appended", "Scratch goes to the back like the rest.", f"{QUEUE}.put", _appended),
        only(
            "queued-backwards",
            "The blocks that no request holds any more are queued backwards.",
            "kvreference.block_pool:BlockPool._queue",
            lambda self, blocks, in_order=False: QUEUED(self, blocks[::-1], in_order),
        ),
    ),
)


def _after_eviction(u: Any) -> Any:
    """One that is queued was cached, and is so no longer."""
    places = _places(u)
    queue_over(places).turned_scratch(u.first)
    return _in_order(places, u.cached.put(u.first, 0), u.one, u.other)


EVICTION = Obligation(
    id="free-queue.forgotten-moves-to-the-front",
    statements=("KV-INV-08",),
    title="With scratch first, a free block whose content is forgotten never stands after a cached one.",
    unknowns={**NUMBERED, "first": Count(1), "one": Count(1), "other": Count(1)},
    assumes=lambda u: (
        (u.queued[u.first] == 1) & (u.cached[u.first] != 0) & _in_order(_places(u), u.cached, u.one, u.other)
    ),
    claim=_after_eviction,
    witnesses={
        "another cached one stood before it": lambda u: (
            (u.queued[u.one] == 1) & (u.cached[u.one] != 0) & (u.place[u.one] < u.place[u.first])
        )
    },
    mutants=(only("stays", "It stays where it is.", f"{QUEUE}.turned_scratch", lambda self, block: None),),
)


def _freed(u: Any) -> Any:
    """The queue after a request freed two tables, or steps are over that they waited for: two blocks of one, the
    earlier first, and one of the other."""
    places = _places(u)
    queue = queue_over(places, ScratchFirstQueue if u.scratch_first == 1 else FreeQueue)
    tables: Any = [
        SimpleNamespace(blocks=_among_others(u, key(u.earlier), key(u.later))),
        SimpleNamespace(blocks=_among_others(u, key(u.elsewhere))),
    ]
    holdings: Any = object.__new__(Holdings)
    holdings.pool, holdings.rules, holdings.copies = pool_over(u.references, u.cached, queue), OWN_RULES, []
    holdings.deferred = [(1, tables)]
    if u.late == 1:
        holdings._release_first()
    else:
        holdings.free(tables)
    return places


def _tail_first(u: Any) -> Any:
    queue = _freed(u)
    both = (queue.queued[u.earlier] == 1) & (queue.queued[u.later] == 1)
    same = (u.cached[u.earlier] == 0) & (u.cached[u.later] == 0) | (u.cached[u.earlier] != 0) & (u.cached[u.later] != 0)
    third = (queue.queued[u.earlier] == 1) & (queue.queued[u.elsewhere] == 1)
    return implies(both & ((u.scratch_first == 0) | same), queue.place[u.later] < queue.place[u.earlier]) & implies(
        third & (u.scratch_first == 0), queue.place[u.earlier] < queue.place[u.elsewhere]
    )


def _held(u: Any) -> Any:
    """Three blocks that are held, and so not queued."""
    blocks = (u.earlier, u.later, u.elsewhere)
    different = (u.earlier != u.later) & (u.earlier != u.elsewhere) & (u.later != u.elsewhere)
    for block in blocks:
        different = different & (u.references[block] >= 1) & (u.queued[block] == 0)
    return different


def _head_first(self: Any, tables: Any) -> None:
    for table in tables:
        self.pool.end(table.blocks)


def _groups_backwards(self: Any, tables: Any) -> None:
    for table in reversed(tables):
        self.pool.end(table.blocks[::-1])


TAIL_FIRST = Obligation(
    id="free-queue.tail-goes-first",
    statements=("KV-OP-07",),
    title="Of two blocks that a request frees together, at once or when steps are over, the one with the later tokens "
    "is allocated first; where scratch goes first, of two that are both cached or both scratch.",
    unknowns={
        **NUMBERED,
        **BETWEEN,
        "references": AMap(),
        "scratch_first": Count(0, 1),
        "late": Count(0, 1),
        "earlier": Count(1),
        "later": Count(1),
        "elsewhere": Count(1),
    },
    assumes=_held,
    claim=_tail_first,
    witnesses={
        "all three are freed": lambda u: (
            (u.references[u.earlier] == 1) & (u.references[u.later] == 1) & (u.references[u.elsewhere] == 1)
        ),
        "one is held by another too": lambda u: (u.references[u.earlier] == 2) & (u.references[u.later] == 1),
    },
    mutants=(
        only("head-first", "A table is freed from its head.", "kvreference.holdings:Holdings.free", _head_first),
        only(
            "groups-backwards",
            "The last group's table is freed first.",
            "kvreference.holdings:Holdings.free",
            _groups_backwards,
        ),
    ),
)


def _leaves(u: Any) -> Any:
    """A block is taken from the front, or out of the middle; two others are looked at."""
    places = _places(u)
    queue = queue_over(places, ScratchFirstQueue if u.scratch_first == 1 else FreeQueue)
    if u.hit == 1:
        queue.remove(key(u.first))
        gone: Any = u.first
    else:
        gone = queue.pop()
    kept: Any = places.queued[gone] == 0
    for block in (u.one, u.other):
        kept = kept & implies(block != gone, places.queued[block] == u.queued[block])
        kept = kept & (places.place[block] == u.place[block])
    return kept & implies(u.scratch_first == 1, _in_order(places, u.cached, u.one, u.other))


LEAVES = Obligation(
    id="free-queue.taken-leaves-the-order",
    statements=("KV-INV-08", "KV-INV-03", "KV-OP-05"),
    title="A block that is taken from the front, or a hit out of the middle, is in the queue no longer; all others "
    "stay, in their order, and with scratch first no cached block stands before a scratch one then.",
    unknowns={
        **NUMBERED,
        "scratch_first": Count(0, 1),
        "hit": Count(0, 1),
        "first": Count(1),
        "one": Count(1),
        "other": Count(1),
    },
    assumes=lambda u: (
        (u.queued[u.first] == 1)
        & ((u.queued[u.one] == 0) | (u.queued[u.one] == 1))
        & ((u.queued[u.other] == 0) | (u.queued[u.other] == 1))
        & (u.place[u.first] < u.appended)
        & (u.place[u.first] >= -u.prepended)
        & implies(u.scratch_first == 1, _in_order(_places(u), u.cached, u.one, u.other))
    ),
    claim=_leaves,
    witnesses={
        "a hit between two others": lambda u: (
            (u.hit == 1)
            & (u.queued[u.one] == 1)
            & (u.queued[u.other] == 1)
            & (u.place[u.one] < u.place[u.first])
            & (u.place[u.first] < u.place[u.other])
        )
    },
    mutants=(
        only(
            "a-hit-takes-the-front",
            "With a hit out of the middle the block at the front goes.",
            "kvreference.free_queue:FreeQueue.remove",
            lambda self, block: self.pop(),
        ),
        only(
            "a-hit-moves-first",
            "A hit stays in the queue, at the front.",
            "kvreference.free_queue:FreeQueue.remove",
            lambda self, block: self._order.move_to_end(block, last=False),
        ),
    ),
)

OBLIGATIONS = (SCRATCH_FIRST, RELEASE_ORDER, EVICTION, TAIL_FIRST, LEAVES)
