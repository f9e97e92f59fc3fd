"""The running tables: what a request gives up, what a copy gives up, and what becomes known to the cache.

The pool may be of any size, a table and a list of copies of any length: see ``kvspec.running``. One place of a table is
run, which stands for all: what is done to it depends on no other.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from kvreference import admission, caching, holdings
from kvreference.answers import Copy, Hit, Partial
from kvreference.attention import Kind
from kvreference.block_pool import NULL
from kvreference.geometry import Geometry, Group
from kvreference.holdings import Holdings, Span
from kvreference.operations import Dispatch
from kvreference.prefix_cache import PrefixCache
from kvreference.rules import Delta, Rules
from kvreference.tables import Table
from kvspec.obligation import Count, Obligation, Unknown, only
from kvspec.pool.induction import ANY_STATE, before, operands, sound
from kvspec.pool.invariants import Point
from kvspec.pool.state import FREE, WAITING, Operands
from kvspec.pool.transitions import Aim, Drop, Hold, Pin, Read, ReadDone, Take
from kvspec.progress.counted import least
from kvspec.proofs.running_pool import ANY_QUEUE, OF_POOL, POOL, holdings_over, is_pool, manager_over, running
from kvspec.running import Running, key
from kvspec.stand_in import group
from kvspec.symbolic import current_path, either, formula_of, negated

HOLDINGS = "kvreference.holdings:Holdings"
OWNER, OTHER = 1, 2
"""Two requests."""


def table_of(*blocks: Any) -> Table:
    """A table that names these blocks."""
    return Table(list(blocks), registered=0, boundary_tokens=0)


def _ended(its: Running, u: Any) -> None:
    """An entry was given up at the end of its request: with a pinned tier it was pinned before."""
    if u.tier == 1:
        its.follow(Pin)
    its.follow(Drop)


def _frees_all(u: Any) -> Any:
    its = running(u)
    held = holdings_over(its)
    other = [table_of(5)]
    held.tables = {OWNER: [table_of(NULL), table_of(NULL, its.own.block)], OTHER: other}
    with its.runs():
        held.release_all(OWNER)
    _ended(its, u)
    return its.agrees() & (held.tables == {OTHER: other})


_RELEASED = {
    "a pinned block": lambda u: (u.tier == 1) & (u.refs[u.at_block] == 1) & (u.content[u.at_block] != 0),
    "another table names it": lambda u: u.refs[u.at_block] == 2,
}
ENTRY: Mapping[str, Unknown] = {**OF_POOL, **ANY_QUEUE}

FREES_ALL = Obligation(
    id="blocks-and-references.running-end-of-a-request",
    statements=("KV-OP-07", "KV-INV-01", "KV-INV-03", "KV-LEAK-01"),
    bound="tables of one and of two entries, over a pool of any size",
    title="A request that gives up all it holds drops every block that its tables name, whatever the group, and has no "
    "tables any more; those of other requests stay.",
    unknowns=ENTRY,
    assumes=lambda u: is_pool(u) & Drop.guard(before(u), operands(u)),
    claim=_frees_all,
    witnesses=_RELEASED,
    mutants=(
        only(
            "first-group-alone",
            "Only what the first group holds is given up.",
            f"{HOLDINGS}.free",
            lambda self, tables: self.pool.end(tables[0].blocks[::-1]),
        ),
        only(
            "tables-stay",
            "The tables name blocks that were given up.",
            f"{HOLDINGS}.release_all",
            lambda self, request: self.free(self.tables.get(request, [])),
        ),
        only(
            "released-without-a-pin",
            "What ends is released, and not pinned.",
            f"{HOLDINGS}.free",
            lambda self, tables: [self.pool.release(table.blocks[::-1]) for table in tables],
        ),
    ),
)


def _waits(u: Any) -> Any:
    """Given up while steps are in flight: nothing is free before so many are over, and everything then."""
    its = running(u)
    held = holdings_over(its)
    held.tables = {OWNER: [table_of(NULL, its.own.block)]}
    with its.runs():
        held.defer(OWNER, u.steps)
        if u.tier == 1:
            its.follow(Pin)
        kept = its.agrees() & (held.tables == {}) & (len(held.deferred) == 1)
        held.steps_over(u.over)
    if u.over < u.steps:
        return kept & its.agrees() & (len(held.deferred) == 1)
    its.follow(Drop)
    return kept & its.agrees() & (len(held.deferred) == 0)


WAITS = Obligation(
    id="blocks-and-references.running-wait-for-steps",
    statements=("KV-MEM-04", "KV-OP-07", "KV-LEAK-01"),
    bound="one request that waits, with a block in its table, over a pool of any size and for any number of steps",
    title="What a request gives up while steps in flight use it keeps its holder until so many steps are over, and is "
    "released then, once.",
    unknowns={**ENTRY, "steps": Count(0), "over": Count(0)},
    assumes=lambda u: is_pool(u) & Drop.guard(before(u), operands(u)),
    claim=_waits,
    witnesses={
        "it waits": lambda u: (u.over < u.steps) & (u.refs[u.at_block] == 1),
        "it is released": lambda u: (u.over == u.steps) & (u.refs[u.at_block] == 1),
    },
    mutants=(
        only(
            "freed-at-once",
            "What steps in flight use is free at once (finding 022).",
            f"{HOLDINGS}.defer",
            lambda self, request, steps: self.release_all(request),
        ),
        only(
            "never-over",
            "What waits for steps is never released.",
            f"{HOLDINGS}.steps_over",
            lambda self, steps: None,
        ),
        only(
            "a-step-too-early",
            "It is released while the last of these steps is in flight.",
            f"{HOLDINGS}.steps_over",
            lambda self, steps: _released_early(self, steps),
        ),
    ),
)


def _released_early(self: Holdings, steps: int) -> None:
    while self.deferred and self.deferred[0][0] <= steps + 1:
        for table in self.deferred.pop(0)[1]:
            self.pool.release(table.blocks[::-1])


def _dispatched(u: Any) -> Any:
    its = running(u)
    held = holdings_over(its)
    copy = Copy(0, its.own.block, u.at_other, 1)
    held.copies = [copy]
    manager = manager_over(held)
    manager.cache = object.__new__(PrefixCache)
    manager.cache.fenced = {(0, NULL)}
    with its.runs():
        copies = manager._dispatch(Dispatch()).copies
    its.follow(ReadDone)
    serves = not manager.cache.fenced
    return its.agrees() & (serves and held.copies == [] and len(copies) == 1 and copies[0] is copy)


DISPATCHED = Obligation(
    id="partial-hits.running-dispatch",
    statements=("KV-OP-19", "KV-INV-09", "KV-INV-01"),
    bound="one copy that is pending, over a pool of any size",
    title="When a step is dispatched, each copy that is pending is handed to the worker once and gives up its source, "
    "and none is pending any more; what the step computes may serve hits from then on.",
    unknowns=ENTRY,
    assumes=lambda u: is_pool(u) & ReadDone.guard(before(u), operands(u)),
    claim=_dispatched,
    witnesses={
        "the source is freed": lambda u: u.refs[u.at_block] == 1,
        "it is shared": lambda u: u.refs[u.at_block] == 3,
    },
    mutants=(
        only(
            "copies-stay",
            "The copies are pending for the next step, too.",
            f"{HOLDINGS}.dispatch",
            lambda self: _again(self),
        ),
        only(
            "never-serves",
            "What a step computes never serves a hit.",
            "kvreference.prefix_cache:PrefixCache.dispatched",
            lambda self: None,
        ),
        only("sources-stay", "The sources are never given up.", f"{HOLDINGS}.dispatch", lambda self: _kept(self)),
    ),
)


def _again(self: Holdings) -> tuple[Copy, ...]:
    self.pool.release(copy.source for copy in self.copies)
    return tuple(self.copies)


def _kept(self: Holdings) -> tuple[Copy, ...]:
    copies, self.copies = self.copies, []
    return tuple(copies)


class Entries:
    """The entries of a table of any length, of which two are known: one that is looked at, and another one."""

    def __init__(self, length: Any, known: Mapping[str, tuple[Any, Any]]) -> None:
        self.length, self.known = length, dict(known)

    def __len__(self) -> Any:
        return self.length

    def _name(self, place: Any) -> str:
        return next(name for name, (at, _) in self.known.items() if place is at)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            if place.start is None:
                return self
            first = self.known["looked"]
            inside = (first[0] >= place.start) & (first[0] < place.stop)
            return [first[1]] if inside else []
        return self.known[self._name(place)][1]

    def __setitem__(self, place: Any, block: Any) -> None:
        self.known[self._name(place)] = place, block


@contextmanager
def at_place(module: Any, place: Any, asked: list[tuple[Any, Any]]) -> Iterator[None]:
    """Code of ``module`` that goes over a range of places is run at ``place`` alone, if that is among them."""

    def over(first: Any, end: Any) -> list[Any]:
        asked.append((first, end))
        return [place] if (place >= first) & (place < end) else []

    with patch.object(module, "range", over, create=True), on_lengths(module):
        yield


@contextmanager
def on_lengths(module: Any) -> Iterator[None]:
    """Lengths may be terms."""
    with patch.object(module, "len", lambda value: value.__len__(), create=True):
        yield


OF_WINDOW: Mapping[str, Unknown] = {
    **OF_POOL,
    "tier": Count(1, 1),
    "size": Count(1),
    "window": Count(2),
    "anchor": Count(0),
    "anchor_end": Count(0),
    "computed": Count(0),
    "unsure": Count(0),
    "length": Count(1),
    "dead": Count(0),
    "place": Count(0),
    "drop_min": Count(0),
}


def _window_of(u: Any) -> Group:
    return group(Kind.SLIDING_WINDOW, u.size, u.window)


def _dead_end(u: Any) -> Any:
    """Before which place no entry is read any more."""
    return least(_window_of(u).blocks_dead(u.computed), u.length)


def _may_leave(u: Any) -> Any:
    """The place is one of the table, and what is pinned is released (chapter 10)."""
    named = is_pool(u) & Drop.guard(before(u), operands(u))
    return named & (u.place < u.length) & (u.dead <= u.length) & (u.anchor_end <= _dead_end(u))


def _leaves(u: Any) -> Any:
    """One place of a table, in a release of what no token after the first ``computed`` reads."""
    its = running(u)
    # Without a pinned tier it is the same as with one in which no drop is long enough.
    its.pool.drop_blocks_min = u.drop_min
    its_group = _window_of(u)
    # What a hit reads at the last boundary in a drop is proved by itself (chapter 10): here it is any range.
    geometry = SimpleNamespace(groups=(its_group,), anchor=lambda _group, _end: (u.anchor, u.anchor_end))
    held = holdings_over(its, geometry)
    place, asked = key(u.place), list[tuple[Any, Any]]()
    table: Any = table_of()
    table.blocks, table.dead = Entries(u.length, {"looked": (place, its.own.block)}), u.dead
    held.tables = {OWNER: [table]}
    with its.runs(), at_place(holdings, place, asked):
        held.release_passed(OWNER, u.computed + u.unsure, u.unsure)
    end = _dead_end(u)
    inside = (u.place >= u.dead) & (u.place < end)
    if not inside:
        return its.agrees() & (table.blocks[place] is its.own.block) & (table.dead == either(end > u.dead, end, u.dead))
    if (u.drop_min <= 1) and (u.place >= u.anchor) & (u.place < u.anchor_end):
        its.follow(Pin)
    its.follow(Drop)
    return its.agrees() & (table.blocks[place] == NULL) & (table.dead == end)


LEAVES = Obligation(
    id="blocks-and-references.running-release-of-what-is-dead",
    statements=("KV-OP-06", "KV-INV-01", "KV-INV-03"),
    title="A request releases exactly the entries of a table, of any length, that no later token reads and that it has "
    "not released before; each is a null block then.",
    unknowns=OF_WINDOW,
    assumes=_may_leave,
    claim=_leaves,
    witnesses={
        "a block in the middle of a drop": lambda u: (
            (u.dead >= 1) & (u.place > u.dead) & (u.computed > u.window + u.size * (u.place + 2)) & (u.size >= 2)
        ),
        "a block that stays": lambda u: (u.dead < u.place) & (u.computed == u.size * u.place) & (u.place >= 2),
    },
    mutants=(
        only(
            "one-too-many",
            "A block is released that the next token still reads.",
            f"{HOLDINGS}.blocks_dead",
            lambda self, group, computed: group.blocks_dead(computed) + 1,
        ),
        only(
            "released-again",
            "What was released is released again.",
            f"{HOLDINGS}.release_dead",
            lambda self, request, computed: _released_again(self, request, computed),
        ),
        only(
            "released-and-named",
            "A table names what was released.",
            f"{HOLDINGS}.release_dead",
            lambda self, request, computed: _released_and_named(self, request, computed),
        ),
    ),
)


def _released_again(self: Holdings, request: int, computed: int) -> None:
    for group_, table in zip(self.groups, self.tables[request], strict=True):
        dead = least(self.blocks_dead(group_, computed), table.blocks.__len__())
        for place in holdings.range(0, dead):  # type: ignore[attr-defined]  # patched
            self.pool.slide([table.blocks[place]], [])
            table.blocks[place] = NULL
        table.dead = dead


def _released_and_named(self: Holdings, request: int, computed: int) -> None:
    for group_, table in zip(self.groups, self.tables[request], strict=True):
        dead = least(self.blocks_dead(group_, computed), table.blocks.__len__())
        if dead > table.dead:
            for place in holdings.range(table.dead, dead):  # type: ignore[attr-defined]  # patched
                self.pool.slide([table.blocks[place]], [])
            table.dead = dead


class Prefixes:
    """The prefixes of a request, of which only the places are known."""

    def __init__(self, count: Any) -> None:
        self.count = count

    def __len__(self) -> Any:
        return self.count

    def __getitem__(self, place: Any) -> Any:
        return place


OF_CACHING: Mapping[str, Unknown] = {
    "size": Count(1),
    "grain": Count(1),
    "known": Count(0),
    "length": Count(1),
    "place": Count(0),
    "block": Count(0),
    "registered": Count(0),
    "tokens": Count(0),
    "prompt": Count(1),
    "due": Count(0),
    "is_due": Count(0, 1),
}
"""A table of any length, and how far its request is; a block is due once so many tokens are computed, or never."""


def _registered(u: Any) -> tuple[list[Any], Any]:
    """What becomes known of one place, and how many blocks were looked at by then."""
    geometry: Any = SimpleNamespace(groups=(group(Kind.FULL, u.size),), grain_tokens=u.grain)
    known: list[Any] = []
    pool: Any = SimpleNamespace(
        cached=SimpleNamespace(register=lambda content, block: known.append((content, block))),
        is_cached=lambda _block: False,
    )
    retention: Any = SimpleNamespace(due_tokens=lambda *_: u.due if u.is_due == 1 else None, boundaries=lambda *_: ())
    request: Any = SimpleNamespace(prompt_tokens=u.prompt)
    place, table = key(u.place), Table([], u.registered, 0)
    entries: Any = Entries(u.length, {"looked": (place, key(u.block))})
    table.blocks = entries
    prefixes: Any = Prefixes(u.known)
    without_events = Rules((Delta("stored_events", lambda *_: []),))
    with at_place(caching, place, []):
        caching.register(pool, geometry, retention, request, prefixes, [table], u.tokens, None, without_events)
    return known, table.registered


def _registers_what_is_due(u: Any) -> Any:
    known, looked_at = _registered(u)
    end = (u.place + 1) * u.size
    whole = u.place < least(u.tokens, u.known * u.grain) // u.size
    # A block that is due later keeps the place from which the next step goes on.
    later = (u.is_due == 1) & (u.due > u.tokens)
    reached = (u.place >= u.registered) & whole
    moved = looked_at == either(reached & negated(later), u.place + 1, u.registered)
    if not known:
        return moved & negated(reached & (u.is_due == 1) & (u.due <= u.tokens) & (u.block != NULL))
    ((_, prefix), block) = known[0]
    due = reached & (u.is_due == 1) & (u.due <= u.tokens) & (u.block != NULL)
    own = (prefix == end // u.grain - 1) & (block == u.block) & (end <= u.tokens) & (end <= u.known * u.grain)
    return moved & due & own & (len(known) == 1)


def _drafts_too(group_: Any, retention: Any, request: Any, table: Any, _tokens: Any, known: Any, *others: Any) -> Any:
    del others
    end = (known + group_.block_size_tokens) // group_.block_size_tokens
    for position in caching.range(table.registered, end):  # type: ignore[attr-defined]  # patched
        table.registered = position + 1
        if retention.due_tokens(group_, position, request.prompt_tokens) is not None and table.blocks[position] != NULL:
            yield position


REGISTERS = Obligation(
    id="content-and-cached-map.running-caching",
    statements=("KV-OP-08", "KV-OP-15", "KV-MEM-01"),
    title="When a request's computed tokens are registered, a block of its table, however long that is, is cached if "
    "and only if it is full, worth keeping, not released, and was not looked at in an earlier step. It is cached for "
    "the prefix that ends with its last token.",
    unknowns=OF_CACHING,
    assumes=lambda u: (u.place < u.length) & ((u.is_due == 1) | (u.due == 0)),
    claim=_registers_what_is_due,
    witnesses={
        "a block that is due": lambda u: (
            (u.is_due == 1)
            & (u.place == u.registered + 1)
            & (u.tokens == u.due)
            & (u.tokens == (u.place + 1) * u.size)
            & (u.known * u.grain >= u.tokens)
            & (u.size >= 2)
            & (u.block >= 1)
        ),
        "one that is due later": lambda u: (
            (u.is_due == 1) & (u.place == u.registered) & (u.due == u.tokens + 1) & (u.tokens == (u.place + 1) * u.size)
        ),
    },
    mutants=(
        only(
            "null-is-registered",
            "A place that was given up becomes known.",
            "kvreference.caching:NULL",
            -1,
        ),
        only(
            "before-it-is-full",
            "A block becomes known before its tokens are scheduled.",
            "kvreference.caching:_take_due",
            _drafts_too,
        ),
        only(
            "prefix-of-the-block-before",
            "A block becomes known with the content of the one before it.",
            "kvreference.caching:content_up_to",
            lambda geometry, group_, prefixes, tokens: (group_, prefixes[tokens // geometry.grain_tokens - 2]),
        ),
    ),
)


BLOCK_TOKENS, INSIDE_TOKENS, NEW_MOST = 4, 2, 2
"""The block and the unit of the group where the running code allocates, and how many blocks it takes at most."""
OF_ADMISSION: Mapping[str, Unknown] = {
    **ANY_STATE,
    **{name: unknown for name, unknown in OF_POOL.items() if name.startswith("at_")},
    "tier": Count(0, 0),
    "hits": Count(0, 1),
    "copied": Count(0, 1),
    "new": Count(1, NEW_MOST),
    "source": Count(1),
    "source_content": Count(1),
    "entry_1": Count(1),
    "entry_2": Count(1),
}


def _asks(u: Any) -> Any:
    """A waiting request hits a block, or none, and a part of another one: both are listed for what it asks for."""
    state, hit = before(u), operands(u)
    copy = Operands(u.source, copy=u.at_copy, content=u.source_content)
    fine = is_pool(u) & Hold.guard(state, hit) & Read.guard(state, copy) & (u.source != u.at_block)
    for one, other in ((u.at_entry, u.entry_1), (u.at_entry, u.entry_2), (u.entry_1, u.entry_2)):
        fine = fine & (one != other)
    fine = fine & (u.where[u.source] != WAITING) & (u.pinned[u.source] == 0)
    return fine & (u.named[u.entry_1] == 0) & (u.named[u.entry_2] == 0)


def _admits(u: Any) -> Any:
    its = running(u)
    its.takes_scratch = True
    hits, copied, new = (operator.index(each) for each in (u.hits, u.copied, u.new))
    one = Group(Kind.FULL, BLOCK_TOKENS, unit_tokens=INSIDE_TOKENS)
    held = holdings_over(its, Geometry((one,)))
    held.settings = SimpleNamespace(geometry=Geometry((one,)), tokens_max=100)
    hit_tokens = hits * BLOCK_TOKENS + copied * INSIDE_TOKENS
    source: Any = key(u.source)
    hit = Hit(
        hit_tokens,
        ((its.own.block,) * hits,),
        (Partial(0, source, INSIDE_TOKENS),) * copied,
    )
    span = Span(hit_tokens, (hits + new) * BLOCK_TOKENS - hit_tokens)
    state = its.state
    for block, content in ((source, u.source_content), (its.own.block, u.at_content)):
        current_path().fact(formula_of(sound(state, [Point(block, content=content)])))
        state.where.sees(block, FREE)
    used = hits * either(u.where[u.at_block] == FREE, 1, 0) + copied * either(u.where[u.source] == FREE, 1, 0)
    wanted = new + used
    enough = state.where.count(FREE) >= wanted
    with its.runs(), on_lengths(holdings), on_lengths(admission):
        allocation = held.allocate(OWNER, span, hit)
    if allocation is None:
        return its.agrees() & negated(enough) & (held.tables == {} and held.copies == [])
    if copied:
        its.follow(Read, Operands(source, copy=u.at_copy, content=u.source_content))
    if hits:
        its.follow(Hold)
    entries = [Operands(block, entry) for block, entry in zip(its.popped, (u.entry_1, u.entry_2), strict=False)]
    for entry in entries:
        its.follow(Take, entry)
    if copied:
        its.follow(Aim, Operands(its.popped[0], u.entry_1, copy=u.at_copy))
    ((table,),) = held.tables.values()
    named = [*([its.own.block] if hits else []), *its.popped]
    right = len(named) == len(table.blocks) and all(
        one is other for one, other in zip(table.blocks, named, strict=True)
    )
    first: Any = its.popped[0]
    copies = [Copy(0, source, first, INSIDE_TOKENS)] if copied else []
    as_ordered = len(copies) == len(held.copies) and all(
        each.source is one.source and each.destination is one.destination and each.tokens == one.tokens
        for each, one in zip(copies, held.copies, strict=True)
    )
    return its.agrees() & enough & (len(its.popped) == new and right and as_ordered)


def _takes_first(self: Holdings, tables: Any, hit: Hit, layouts: Any, provided: int) -> Any:
    del provided
    blocks, lost = self.pool.take(0)
    self.pool.touch(block for table in tables for block in table.live())
    del blocks, hit, layouts
    return lost


ADMITS = Obligation(
    id="blocks-and-references.running-admission",
    statements=("KV-OP-04", "KV-OP-19", "KV-OP-24", "KV-INV-01", "KV-INV-09"),
    title="A waiting request is granted its slots if and only if its hit and its new blocks can be had from the free "
    "queue: then it holds the block that it hits, a copy holds its source and aims at the first new block, and nothing "
    "else changes; else nothing changes at all.",
    unknowns=OF_ADMISSION,
    assumes=_asks,
    claim=_admits,
    witnesses={
        "hit and source are free": lambda u: (
            (u.hits == 1)
            & (u.copied == 1)
            & (u.where[u.at_block] == FREE)
            & (u.where[u.source] == FREE)
            & (u.where.count(FREE) == 4)
            & (u.new == 2)
        ),
        "one block is missing": lambda u: (u.new == 2) & (u.where.count(FREE) == 1) & (u.hits == 0) & (u.copied == 0),
    },
    mutants=(
        only(
            "source-is-not-held",
            "Nobody holds the source of a copy (finding of the design `unheld copy`).",
            f"{HOLDINGS}._begin",
            _takes_first,
        ),
        only(
            "hit-is-not-counted",
            "The free blocks of the hit are not counted among those that are needed.",
            f"{POOL}.count_free",
            lambda self, blocks: 0,
        ),
        only(
            "refuses-the-last-block",
            "The last free block is never given.",
            f"{POOL}.make_room",
            lambda self, count, kept: bool(count < self.free._order.size),
        ),
    ),
    bound=f"a hit of one block at most, and of a part of one, and up to {NEW_MOST} new blocks, in a pool of any size "
    "without a pinned tier: tables are lists. What a new block holds is forgotten, as is proved of each",
)

OBLIGATIONS = (FREES_ALL, WAITS, DISPATCHED, LEAVES, REGISTERS, ADMITS)
