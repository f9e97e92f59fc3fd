"""The running pool does what the transitions say: each of its steps is one of those that are proved, for every size.

The pool may be of any size, with or without a pinned tier, scratch first or not: see ``kvspec.running``. The
precondition of the caller is assumed: the guard of the transition on holders.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from attrs import evolve, fields

from kvreference import block_pool, caching, pinned_tier
from kvreference.answers import Copy, Hit, Partial, Statistics
from kvreference.block_pool import NULL, BlockPool
from kvreference.cached_map import CachedMap
from kvreference.events import Cleared
from kvreference.free_queue import FreeQueue
from kvreference.holdings import Holdings
from kvreference.manager import OWN, Manager
from kvreference.operations import Reset as ResetOperation
from kvreference.partial_map import PartialMap
from kvreference.population import Population
from kvreference.rules import OWN_RULES
from kvspec.obligation import AMap, Count, Mutant, Obligation, Unknown, only
from kvspec.pool.induction import ANY_STATE, ANY_STEP, anywhere, before, is_sound, operands, sound
from kvspec.pool.state import FREE, HELD, WAITING, Operands, Transition, is_found
from kvspec.pool.transitions import (
    Begin,
    Demote,
    Drop,
    Forget,
    Pin,
    Read,
    ReadDone,
    Register,
    Reset,
)
from kvspec.running import Running, key
from kvspec.symbolic import either, implies, negated

OF_POOL: Mapping[str, Unknown] = {
    **ANY_STATE,
    **{name: unknown for name, unknown in ANY_STEP.items() if name.startswith("at_")},
    "tier": Count(0, 1),
}
"""A pool, a step of it, and an arbitrary point."""
ANY_QUEUE: Mapping[str, Unknown] = {"scratch_first": Count(0, 1)}
"""Where it matters which of both free queues there is."""
NO_OTHERS: Mapping[str, Unknown] = {}


def running(u: Any, let_go: Any = None) -> Running:
    """The pool. Where only one of the queues matters, it is the only one."""
    tier, scratch_first = bool(u.tier == 1), hasattr(u, "scratch_first") and bool(u.scratch_first == 1)
    return Running(before(u), operands(u), anywhere(u), tier, scratch_first, let_go)


def is_pool(u: Any) -> Any:
    """The invariants hold, and without a pinned tier nothing is pinned."""
    nothing = u.where.count(WAITING) == 0
    for block in (u.at_block, u.any_block):
        nothing = nothing & (u.pinned[block] == 0) & (u.where[block] != WAITING)
    return is_sound(u) & implies(u.tier == 0, nothing)


def holdings_over(its: Any, geometry: Any = None) -> Any:
    """Holdings over the running pool, or what stands for one."""
    made: Any = object.__new__(Holdings)
    made.rules, made.pool, made.tables, made.copies, made.deferred = OWN_RULES, its.pool, {}, [], []
    made.settings = SimpleNamespace(geometry=geometry)
    made.groups = () if geometry is None else geometry.groups
    return made


def manager_over(holdings: Any) -> Any:
    """A manager over such holdings, without requests."""
    made: Any = object.__new__(Manager)
    made.holdings, made.choices, made._events = holdings, OWN, []
    made.cache = SimpleNamespace(statistics=Statistics())
    return made


def counts_of_any() -> Any:
    """Statistics in which each count is some number, and no two are the same."""
    counts: Any = {each.name: object() for each in fields(Statistics) if each.name != "reset"}
    return Statistics(**counts)


def books(kind: type[Population], **settings: Any) -> Any:
    """Books of no request under such settings."""
    made: Any = object.__new__(kind)
    made.settings, made.rules, made.alive = SimpleNamespace(**settings), OWN_RULES, {}
    made.dispatched = made.over = 0
    return made


def of_pool(
    name: str,
    statements: tuple[str, ...],
    title: str,
    transition: type[Transition],
    does: Callable[[Any, Running], Any],
    witnesses: Mapping[str, Callable[[Any], Any]],
    mutants: tuple[Mutant, ...],
    others: Mapping[str, Unknown] = NO_OTHERS,
    tier: int | None = None,
    also: Callable[[Any], Any] = lambda u: True,
    rejects: tuple[type[Exception], ...] = (),
) -> Obligation:
    """That the pool ``does`` exactly ``transition``, where this can happen.

    With exceptions that it ``rejects`` with, it is asked everywhere: then it raises if and only if the transition
    cannot happen, and changes nothing.
    """

    def claim(u: Any) -> Any:
        its = running(u)
        try:
            fine = does(u, its)
        except rejects:
            return its.agrees() & negated(transition.precondition(before(u), operands(u)))
        its.follow(transition)
        return its.agrees() & fine

    def is_asked(u: Any) -> Any:
        return True if rejects else transition.precondition(before(u), operands(u))

    return Obligation(
        id=name,
        statements=statements,
        title=title,
        unknowns={**OF_POOL, **others, **({} if tier is None else {"tier": Count(tier, tier)})},
        assumes=lambda u: is_pool(u) & is_asked(u) & also(u),
        claim=claim,
        witnesses=witnesses,
        mutants=mutants,
    )


INSIDE_TOKENS = 2
"""How many tokens of a block are copied where a hit ends inside one."""
POOL, PINNED = "kvreference.block_pool:BlockPool", "kvreference.pinned_tier:PinnedPool"
CACHED, PARTIAL = "kvreference.cached_map:CachedMap", "kvreference.partial_map:PartialMap"
FIRST_QUEUE = "kvreference.free_queue:FreeQueue"


def is_reported(u: Any, lost: list[Any]) -> Any:
    """That the content that was lost is reported, once."""
    if not lost:
        return u.content[u.at_block] == 0
    return len(lost) == 1 and lost[0] == u.content[u.at_block]


def _reads(its: Running) -> bool:
    held = holdings_over(its)
    others = [Copy(0, 5, 6, 1)]
    held.copies = [*others]
    hit = Hit(INSIDE_TOKENS, ((),), (Partial(0, its.own.block, INSIDE_TOKENS),))
    with its.runs():
        held._read(hit)
    pending: Any = [*others, Copy(0, its.own.block, NULL, INSIDE_TOKENS)]
    return bool(held.copies == pending)


TOUCH_MUTANTS = (
    only(
        "touch-leaves-it-queued",
        "A block stays in its queue when it gets a holder.",
        f"{POOL}.touch",
        lambda self, blocks: [self.references.__setitem__(block, self.references[block] + 1) for block in blocks],
    ),
    only("free-queue-alone", "A pinned block is sought in the free queue.", f"{PINNED}._unqueue", BlockPool._unqueue),
)

READ = of_pool(
    "partial-hits.running-touch-of-a-source",
    ("KV-INV-01", "KV-INV-09", "KV-OP-19"),
    "The source of a copy is held, wherever it waited, together with the copy that becomes pending, which has no "
    "destination yet; a number that is not a block's is rejected, and then nothing changes.",
    Read,
    lambda _u, its: _reads(its),
    {"a free block that begins so": lambda u: (u.where[u.at_block] == FREE) & (u.content[u.at_block] == 0)},
    TOUCH_MUTANTS,
    also=lambda u: (u.reads[u.at_copy] == 0) & (u.writes[u.at_copy] == 0),
    rejects=(LookupError,),
)


def _counts(u: Any) -> Any:
    """One turn, from what was counted of the blocks before."""
    its = running(u)
    with its.runs() as pool, patch.object(block_pool, "sum", lambda free: sum(free, u.before), create=True):
        free = pool.count_free([its.own.block])
    return its.agrees() & (free == u.before + either(u.where[u.at_block] == FREE, 1, 0))


COUNTS_FREE = Obligation(
    id="blocks-and-references.running-count-of-free",
    statements=("KV-OP-04", "KV-OP-03"),
    title="Of the blocks that a request is about to hold, the running pool counts those that are in the free queue, "
    "and none that waits as pinned.",
    unknowns={**OF_POOL, "before": Count(0)},
    assumes=lambda u: is_pool(u) & (u.at_block >= 1) & (u.at_block < u.blocks),
    claim=_counts,
    witnesses={
        "it waits as pinned": lambda u: (u.tier == 1) & (u.where[u.at_block] == WAITING),
        "it is free": lambda u: u.where[u.at_block] == FREE,
    },
    mutants=(
        only("pinned-are-free", "What waits as pinned counts as free.", f"{PINNED}.count_free", BlockPool.count_free),
    ),
)


def _release(_u: Any, its: Running) -> bool:
    with its.runs() as pool:
        pool.release([NULL, its.own.block])
    return True


_RELEASE_MUTANTS = (
    only(
        "freed-at-once",
        "A block is free though another holds it.",
        f"{POOL}._let_go",
        lambda self, blocks: _free(self, blocks),
    ),
    only("freed-while-pinned", "A pinned block goes to the free queue.", f"{PINNED}._queue", BlockPool._queue),
    only(
        "freed-into-no-queue",
        "What is scratch is put into no queue.",
        "kvreference.free_queue:ScratchFirstQueue.put",
        lambda self, blocks, scratch: FreeQueue.put(self, [block for block in blocks if block not in scratch], ()),
    ),
)


def _free(self: BlockPool, blocks: Any) -> list[Any]:
    freed = [block for block in blocks if block != NULL]
    for block in freed:
        self.references[block] -= 1
    return freed


_RELEASED = {
    "the last holder of a pinned block": lambda u: (
        (u.tier == 1) & (u.pinned[u.at_block] != 0) & (u.refs[u.at_block] == 1)
    ),
    "the last holder of scratch": lambda u: (
        (u.refs[u.at_block] == 1) & (u.content[u.at_block] == 0) & (u.begun[u.at_block] == 0)
    ),
    "one of two holders": lambda u: u.refs[u.at_block] == 2,
}

DROP = of_pool(
    "blocks-and-references.running-release",
    ("KV-INV-01", "KV-INV-02", "KV-INV-03", "KV-INV-06", "KV-INV-07", "KV-LEAK-01"),
    "A block that the running pool releases has one holder fewer; without any it waits in the queue that its pin says, "
    "with what it holds. The null block is passed over.",
    Drop,
    _release,
    _RELEASED,
    _RELEASE_MUTANTS,
    ANY_QUEUE,
)

READ_DONE = of_pool(
    "partial-hits.running-release-of-a-source",
    ("KV-INV-01", "KV-INV-09", "KV-OP-19"),
    "The source of a copy that the running pool releases waits from then on in the queue that its pin says, or is "
    "held by others.",
    ReadDone,
    _release,
    _RELEASED,
    _RELEASE_MUTANTS,
    ANY_QUEUE,
)


def _end(u: Any, its: Running) -> bool:
    with its.runs() as pool:
        pool.end([its.own.block])
    if u.tier == 1:
        its.follow(Pin)
    return True


END = of_pool(
    "pinned-tier.running-end-pins",
    ("KV-OP-21", "KV-INV-07", "KV-OP-07"),
    "A block of a table that a request frees is pinned if it is cached and there is a pinned tier, and released.",
    Drop,
    _end,
    _RELEASED,
    (
        only("end-pins-nothing", "The end of a request pins nothing.", f"{PINNED}.give_up", BlockPool.give_up),
        only(
            "end-keeps-it",
            "The blocks are pinned, and not released.",
            f"{POOL}.end",
            lambda self, blocks: self.give_up(blocks),
        ),
    ),
    ANY_QUEUE,
)


def _evict(u: Any, its: Running) -> Any:
    manager = manager_over(holdings_over(its))
    with its.runs():
        manager._evict(SimpleNamespace(block=its.own.block))
    return is_reported(u, [event.content for event in manager._events])


EVICT = of_pool(
    "content-and-cached-map.running-evict",
    ("KV-OP-10", "KV-INV-05", "KV-INV-07", "KV-OP-12"),
    "A block that the running pool evicts is forgotten by both maps and by the tier, keeps its holders, and waits in "
    "the free queue if it has none; what it held is reported.",
    Forget,
    _evict,
    {
        "a block that waits as pinned": lambda u: u.where[u.at_block] == WAITING,
        "a held block with an entry": lambda u: (u.refs[u.at_block] >= 1) & (u.begun[u.at_block] >= 1),
    },
    (
        only("eviction-keeps-the-pin", "An evicted block stays pinned.", f"{PINNED}._forget", BlockPool._forget),
        only(
            "eviction-reports-nothing",
            "What was lost is not reported.",
            "kvreference.block_pool:contents_lost",
            lambda full, begun: [],
        ),
        only(
            "entries-stay", "The boundaries inside a block stay entries.", f"{PARTIAL}.forget", lambda self, block: None
        ),
    ),
    ANY_QUEUE,
    # Either queue and either tier; what is forgotten inside a block is the same in both.
    also=lambda u: (
        (u.scratch_first + u.tier == 1) & implies(u.tier == 0, u.begun[u.at_block] == 0) & (u.at_block != NULL)
    ),
    rejects=(LookupError,),
)


def _pin(_u: Any, its: Running) -> bool:
    with its.runs() as pool:
        pool._pin([its.own.block])
    return True


UNHELD_IS_PINNED = only(
    "unheld-is-pinned", "Whether a block is held is not asked.", f"{POOL}._check_held", lambda self, block: None
)

PIN = of_pool(
    "pinned-tier.running-pin",
    ("KV-OP-21", "KV-INV-07"),
    "Each held block that the running tier pins gets a pin if a hit could use it, and else none; nothing else changes. "
    "One without a holder is rejected.",
    Pin,
    _pin,
    {
        "an entry inside is cached": lambda u: (u.content[u.at_block] == 0) & (u.begun[u.at_block] >= 1),
        "scratch": lambda u: (u.content[u.at_block] == 0) & (u.begun[u.at_block] == 0),
    },
    (
        only(
            "scratch-is-pinned",
            "Every released block is pinned.",
            f"{PINNED}._pin",
            lambda self, blocks: [self.is_pinned.__setitem__(block, True) for block in blocks],
        ),
        only(
            "entries-do-not-count",
            "A block is cached only if it is full.",
            f"{POOL}.is_cached",
            lambda self, block: self.cached.content_of(block) is not None,
        ),
        UNHELD_IS_PINNED,
    ),
    tier=1,
    also=lambda u: (u.at_block >= 1) & (u.at_block < u.blocks),
    rejects=(ValueError,),
)


def _demote(_u: Any, its: Running) -> bool:
    with its.runs() as pool:
        pool._unpin(its.own.block)
    return not its.free.moved_to_front


UNPIN = pinned_tier.PinnedPool._unpin
"""A demotion, where nothing is broken."""

DEMOTE = of_pool(
    "pinned-tier.running-demotion",
    ("KV-OP-22", "KV-OP-23", "KV-INV-07"),
    "A block that the running tier demotes leaves the pinned queue for the back of the free one, without its pin and "
    "with its content; one that does not wait there is rejected, and then nothing changes.",
    Demote,
    _demote,
    {"another block waits as pinned": lambda u: (u.where[u.any_block] == WAITING) & (u.any_block != u.at_block)},
    (
        only(
            "demotion-leaves-it-pinned",
            "A demoted block stays pinned.",
            f"{PINNED}._unpin",
            lambda self, block: (self.pinned.remove(block), self._queue([block])),
        ),
        only(
            "demotion-frees-nothing",
            "A demoted block is in no queue.",
            f"{PINNED}._unpin",
            lambda self, block: (self.is_pinned.__setitem__(block, False), self.pinned.remove(block)),
        ),
        only(
            "unpinned-first",
            "A block loses its pin before it is known to wait.",
            f"{PINNED}._unpin",
            lambda self, block: (self.is_pinned.__setitem__(block, False), UNPIN(self, block)),
        ),
    ),
    ANY_QUEUE,
    tier=1,
    rejects=(LookupError,),
)


UNHELD = only(
    "unheld-is-known", "Whether a block is held is not asked.", f"{POOL}._check_held", lambda self, block: None
)


def _register(_u: Any, its: Running) -> bool:
    with its.runs() as pool:
        pool.register(its.own.content, its.own.block)
    return True


REGISTER = of_pool(
    "content-and-cached-map.running-register",
    ("KV-INV-05", "KV-INV-08", "KV-OP-08"),
    "A held block that is registered is listed for its content next to those that were, and holds it. A block without "
    "a holder, one that is registered already, and the null block are rejected, and then nothing changes.",
    Register,
    _register,
    {
        "another block holds the same": lambda u: (
            (u.content[u.any_block] == u.at_content) & (u.any_content == u.at_content) & (u.any_block != u.at_block)
        )
    },
    (
        only(
            "replaces-the-others",
            "Other blocks with the same content are not listed any more.",
            f"{CACHED}.register",
            lambda self, content, block: _replaces(self, content, block),
        ),
        only(
            "only-listed",
            "It is listed, and its content is not recorded.",
            f"{CACHED}.register",
            lambda self, content, block: self._blocks.__setitem__(content, (*self._blocks.get(content, ()), block)),
        ),
        UNHELD,
    ),
    also=lambda u: u.at_content != 0,
    rejects=(ValueError, LookupError),
)


def _replaces(self: CachedMap, content: Any, block: int) -> None:
    self._content[block] = content
    self._blocks[content] = (block,)


def _begin(_u: Any, its: Running) -> bool:
    table: Any = SimpleNamespace(blocks=[its.own.block])
    with its.runs() as pool:
        is_new = caching._begins(pool, its.own.content, table, 0)
        # To offer it again changes nothing.
        is_new_again = caching._begins(pool, its.own.content, table, 0)
    return is_new and not is_new_again


BEGIN = of_pool(
    "partial-hits.running-begin",
    ("KV-INV-05", "KV-INV-08", "KV-OP-18"),
    "A boundary inside a held block that is registered is an entry of its block next to those that were; to offer it "
    "again changes nothing. In a block without a holder, such as the null block, none is, and then nothing changes.",
    Begin,
    _begin,
    {
        "the block has another entry": lambda u: (
            (u.begun[u.at_block] >= 1) & (u.any_block == u.at_block) & (u.begins[u.any_content, u.any_block] != 0)
        )
    },
    (
        only(
            "one-side-alone",
            "A block does not know its boundaries.",
            f"{PARTIAL}.register",
            lambda self, content, block: self._blocks.__setitem__(content, (*self._blocks.get(content, ()), block)),
        ),
        only(
            "one-entry-a-block",
            "A block has only the newest of its boundaries.",
            f"{PARTIAL}.register",
            lambda self, content, block: _newest(self, content, block),
        ),
        UNHELD,
    ),
    also=lambda u: (u.at_content != 0) & (u.begins[u.at_content, u.at_block] == 0),
    rejects=(ValueError, LookupError),
)


def _newest(self: PartialMap, content: Any, block: int) -> None:
    self._blocks[content] = (*self._blocks.get(content, ()), block)
    self._contents[block] = (content,)


def _found(u: Any) -> Any:
    """The block that the look-up of a content finds, among full blocks or among beginnings."""
    its = running(u)
    with its.runs() as pool:
        found = (pool.cached if u.full == 1 else pool.partial).find(its.own.content)
    lists = u.listed if u.full == 1 else u.begins
    if found is None:
        return lists[u.at_content, u.any_block] == 0
    listed = sound(before(u), [Operands(found, content=u.at_content)])
    return implies(listed, is_found(lists, u.at_content, found))


FIND = Obligation(
    id="content-and-cached-map.running-find",
    statements=("KV-OP-19", "KV-INV-05", "KV-MEM-01"),
    title="The running maps find for a content a block that they list for it, and none only if no block is listed.",
    unknowns={**OF_POOL, "full": Count(0, 1)},
    assumes=lambda u: is_pool(u) & (u.at_content != 0),
    claim=_found,
    witnesses={
        "two blocks hold it": lambda u: (
            (u.full == 1)
            & (u.content[u.at_block] == u.at_content)
            & (u.content[u.any_block] == u.at_content)
            & (u.at_block != u.any_block)
        )
    },
    mutants=(
        only("finds-nothing", "A hit is not found.", f"{CACHED}.find", lambda self, content: None),
        only("finds-any", "Any block serves.", f"{PARTIAL}.find", lambda self, content: 1),
    ),
)


def _resets(u: Any) -> Any:
    its = running(u)
    manager = manager_over(holdings_over(its))
    manager.cache.statistics = counted = counts_of_any()
    with its.runs():
        done = manager._reset(ResetOperation()).succeeded
    if done and manager._events == [Cleared()] and manager.cache.statistics == evolve(counted, reset=True):
        its.follow(Reset)
        # How many wait is not known once they were walked through; each is where it must be.
        return its.agrees(sizes=False)
    same = not done and manager._events == [] and manager.cache.statistics == counted
    return its.agrees() & negated(Reset.precondition(before(u), operands(u))) & same


def _cached_alone(self: BlockPool) -> bool:
    if not self.rules.ask(block_pool.is_unused, self.references):
        return False
    self.cached = vars(block_pool)["CachedMap"](self.references.__len__())
    return True


RESETS = BlockPool.reset
"""A reset, where nothing is broken."""


def _too_few(self: BlockPool) -> bool:
    make = vars(block_pool)["CachedMap"]
    with patch.object(block_pool, "CachedMap", lambda blocks: make(blocks - 1)):
        return RESETS(self)


RESET = Obligation(
    id="content-and-cached-map.running-reset",
    statements=("KV-OP-11", "KV-OP-13", "KV-INV-05", "KV-INV-07", "KV-INV-08"),
    title="The running pool resets if and only if no block is held; both maps are empty then, nothing is pinned, and "
    "every block is free. What was counted of look-ups stays.",
    unknowns={**OF_POOL, **ANY_QUEUE},
    assumes=is_pool,
    claim=_resets,
    witnesses={
        "a block waits as pinned": lambda u: (u.where[u.any_block] == WAITING) & (u.where.count(HELD) == 0),
        "a block is held": lambda u: u.where[u.any_block] == HELD,
    },
    mutants=(
        only(
            "resets-under-holders",
            "A reset happens while blocks are held.",
            "kvreference.block_pool:is_unused",
            lambda references: True,
        ),
        only("reset-leaves-the-pinned", "The pinned blocks stay pinned.", f"{PINNED}.reset", BlockPool.reset),
        only(
            "entries-outlive-a-reset",
            "The boundaries inside blocks stay entries.",
            f"{POOL}.reset",
            lambda self: _cached_alone(self),
        ),
        only(
            "resets-too-few",
            "The new map has a block less than the pool.",
            f"{POOL}.reset",
            lambda self: _too_few(self),
        ),
        only(
            "reset-forgets-counts",
            "A reset forgets the look-ups that were counted.",
            "kvreference.manager:evolve",
            lambda its, **changes: type(its)(**changes),
        ),
        only("resets-never", "Nothing is ever reset.", "kvreference.block_pool:is_unused", lambda references: False),
    ),
)

LETTING_GO: Mapping[str, Unknown] = {**OF_POOL, **ANY_QUEUE, "let_go": AMap()}
"""A release of any length, on the way: these blocks have lost their last holder, and are in no queue yet."""


def _is_letting_go(u: Any) -> Any:
    fine = is_pool(u)
    for block in (u.at_block, u.any_block):
        waits = (u.where[block] == FREE) | (u.where[block] == WAITING)
        fine = fine & ((u.let_go[block] == 0) | ((u.let_go[block] == 1) & waits))
    return fine


def _lets_go(u: Any) -> Any:
    its = running(u, u.let_go)
    with its.runs() as pool:
        freed = pool._let_go([its.own.block])
    its.follow(Drop)
    # Exactly the blocks without a holder are among those that are released.
    among = (its.state.where[u.at_block] != HELD) if freed else (its.state.where[u.at_block] == HELD)
    its.let_go = u.let_go.put(u.at_block, len(freed))
    return its.agrees(sizes=False) & among & all(block == u.at_block for block in freed)


LET_GO = Obligation(
    id="blocks-and-references.running-release-lets-go",
    statements=("KV-INV-01", "KV-INV-02", "KV-LEAK-01"),
    title="In a release of any length, each block that loses its last holder is among those that are queued "
    "afterwards, once, and no other block is.",
    unknowns=LETTING_GO,
    assumes=lambda u: _is_letting_go(u) & Drop.precondition(before(u), operands(u)),
    claim=_lets_go,
    witnesses={"another was released before": lambda u: (u.let_go[u.any_block] == 1) & (u.refs[u.at_block] == 1)},
    mutants=(
        _RELEASE_MUTANTS[0],
        only(
            "lets-nothing-go",
            "A block that loses its last holder is forgotten.",
            f"{POOL}._let_go",
            lambda self, blocks: _loses(self, blocks),
        ),
    ),
)


def _loses(self: BlockPool, blocks: Any) -> list[Any]:
    for block in blocks:
        self.references[block] -= 1
    return []


def _queues(u: Any) -> Any:
    its = running(u, u.let_go)
    blocks = [key(each) for each in (u.first, u.at_block, u.last)]
    with its.runs() as pool:
        pool._queue(blocks)
    left = u.let_go
    for block in blocks:
        left = left.put(block, 0)
    its.let_go = left
    return its.agrees(sizes=False)


def _apart(u: Any) -> Any:
    blocks = (u.first, u.at_block, u.last)
    different = (u.first != u.at_block) & (u.first != u.last) & (u.last != u.at_block)
    for block in blocks:
        waits = either(u.pinned[block] != 0, WAITING, FREE)
        different = different & (u.let_go[block] == 1) & (u.where[block] == waits) & (block >= 1)
        different = different & implies(u.tier == 0, u.pinned[block] == 0)
    return different


QUEUED = Obligation(
    id="blocks-and-references.running-release-queues",
    statements=("KV-INV-02", "KV-INV-03", "KV-INV-07", "KV-LEAK-01"),
    title="Each block that a release leaves without a holder is put into the queue that its pin says, with any others "
    "released with it, and no other block is moved.",
    unknowns={**LETTING_GO, "first": Count(1), "last": Count(1)},
    assumes=lambda u: _is_letting_go(u) & _apart(u),
    claim=_queues,
    witnesses={
        "one of them is pinned": lambda u: (u.pinned[u.at_block] != 0) & (u.pinned[u.first] == 0),
        "one is scratch, one is not": lambda u: (u.content[u.at_block] != 0) & (u.content[u.last] == 0),
    },
    mutants=_RELEASE_MUTANTS[1:],
)

OBLIGATIONS = (
    COUNTS_FREE,
    READ,
    DROP,
    READ_DONE,
    LET_GO,
    QUEUED,
    END,
    EVICT,
    PIN,
    DEMOTE,
    REGISTER,
    BEGIN,
    FIND,
    RESET,
)
