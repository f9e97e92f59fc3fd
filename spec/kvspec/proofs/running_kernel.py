"""Chapter 01: what writes tables and copies, one step at a time, whatever asks for it.

A few methods of the holdings write the tables and the copies, and each of them keeps the pool in step. Each is run here
over a pool of any size, with tables of any length: either it does what a transition says, or it raises and changes
nothing. Nothing is assumed of the caller. What releases blocks is in ``running_tables``, and what the pool does by
itself in ``running_pool``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from attrs import evolve, validators

from kvreference import tables as block_tables
from kvreference.answers import Copy, Hit
from kvreference.attention import Kind
from kvreference.block_pool import NULL, BlockPool
from kvreference.cached_map import CachedMap
from kvreference.content import Keys
from kvreference.holdings import Holdings
from kvreference.operations import Abort, Finish, Transferred
from kvreference.population import Population, Request, Status
from kvreference.tables import Table
from kvspec.loops import edited
from kvspec.obligation import Count, Obligation, only
from kvspec.pool.induction import before, operands, sound
from kvspec.pool.invariants import Point
from kvspec.pool.state import FREE, WAITING, in_pool
from kvspec.pool.transitions import Aim, Drop, Hold, Pin, Take
from kvspec.proofs.running_pool import (
    CACHED,
    FIRST_QUEUE,
    INSIDE_TOKENS,
    OF_POOL,
    PARTIAL,
    POOL,
    TOUCH_MUTANTS,
    books,
    holdings_over,
    is_pool,
    is_reported,
    manager_over,
    running,
)
from kvspec.proofs.running_tables import HOLDINGS, OTHER, OWNER, WRITTEN, Entries, Pending, table_of
from kvspec.running import Key, Running, Unwatched, fresh, key, undecided
from kvspec.stand_in import group
from kvspec.symbolic import current_path, formula_of

# A hit


class HitBlocks(Entries):
    """The blocks of a hit, however many: any blocks of the pool."""

    def _another(self, its: Running) -> Any:
        another = Unwatched(current_path().fresh("another"))
        apart: Any = (another != its.at.block) & (another != its.own.block)
        current_path().assume(formula_of(apart & in_pool(its.state, another)))
        current_path().fact(formula_of(sound(its.state, [Point(another)])))
        its.state.where.sees(another, WAITING)
        return another


def _holds(u: Any) -> Any:
    its = running(u)
    held = holdings_over(its)
    wanted = [evolve(table_of(5), registered=u.registered, dead=u.place, boundary_tokens=u.length), table_of(NULL, 6)]
    tables = held._begin(OWNER, wanted)
    begun = held.tables == {OWNER: tables} and [table.blocks for table in tables] == [[], []]
    begun = begun & (tables[0].registered == u.registered) & (tables[0].dead == u.place)
    begun = begun & (tables[0].boundary_tokens == u.length) & (tables[0].fresh == wanted[0].fresh)
    try:
        held._begin(OWNER, wanted)
    except ValueError:
        begun = begun & (held.tables[OWNER] is tables)
    else:
        return False
    tables[1].blocks = [its.own.block] * u.named_before.__index__()
    blocks: Any = HitBlocks(u.length, {"looked": (u.place, its.own.block)}, its)
    try:
        with its.runs():
            held._hold(tables, 0, blocks)
    except (ValueError, LookupError):
        twice = (u.named_before == 1) & (u.at_block != NULL)
        is_none = (u.at_block < NULL) | (u.at_block >= u.blocks)
        return begun & its.agrees() & (twice | is_none) & (tables[0].blocks == [])
    if u.at_block != NULL:
        its.follow(Hold)
    once = sum(each is its.own.block for table in tables for each in table.blocks) == 1
    # How many are free is not known where another block was held, too.
    return begun & its.agrees(sizes=False) & (once or bool(u.at_block == NULL))


HOLDS = Obligation(
    id="blocks-and-references.running-hold",
    statements=("KV-INV-01", "KV-INV-02", "KV-INV-04", "KV-INV-07", "KV-OP-22"),
    title="A request that holds nothing gets empty tables, which know what of the hit is not read, and what of it was "
    "looked at. Each block of a hit that one of them then names, however "
    "many there are, gets one holder more, leaves the queue in which it waited, the free or the pinned one, and keeps "
    "its content and its pin. A block that the request names already, and a number that is not a block's, are "
    "rejected, and then nothing changes.",
    unknowns={
        **OF_POOL,
        "length": Count(1),
        "place": Count(0),
        "named_before": Count(0, 1),
        "registered": Count(0),
    },
    assumes=lambda u: is_pool(u) & (u.place < u.length) & (u.named[u.at_entry] == 0),
    claim=_holds,
    witnesses={
        "a free block": lambda u: u.where[u.at_block] == FREE,
        "a pinned one that waits": lambda u: u.where[u.at_block] == WAITING,
        "one that is held": lambda u: u.refs[u.at_block] == 2,
        "one that the request names": lambda u: (u.named_before == 1) & (u.refs[u.at_block] == 1),
    },
    mutants=(
        only(
            "what-is-not-held-is-forgotten",
            "The first table does not know which blocks of the hit are not held.",
            f"{HOLDINGS}._begin",
            edited(Holdings._begin, "evolve(table, blocks=[])", "evolve(table, blocks=[], dead=0)"),
        ),
        *TOUCH_MUTANTS,
        only(
            "named-twice",
            "A request names a block twice.",
            "kvreference.holdings:may_be_named_twice",
            lambda blocks: True,
        ),
        only(
            "named-and-not-held",
            "A table names a hit, and is not counted.",
            f"{HOLDINGS}._hold",
            lambda self, tables, index, blocks: _names(tables[index], blocks),
        ),
        only(
            "begins-with-blocks",
            "New tables name blocks before they hold them.",
            f"{HOLDINGS}._begin",
            lambda self, request, wanted: self.tables.setdefault(request, wanted),
        ),
    ),
)


def _names(table: Table, blocks: Any) -> None:
    table.blocks += blocks


# New blocks


class Row:
    """The entries of a table, or what it is to become: how often it names the block that is looked at, and new ones."""

    def __init__(self, its: Running, occurs: Any, new: Any = 0) -> None:
        self.its, self.occurs, self.new = its, occurs, new

    def count(self, value: Any) -> Any:
        """How many entries are new."""
        assert value is None, "new ones"
        return self.new

    def __iter__(self) -> Iterator[Key | None]:
        # It is met once, for as often as it occurs.
        yield self.its.at.block
        if self.new >= 1:
            yield None


class Occurrences:
    """How often each block is named in a row, like a ``Counter``. Of others than the one that is looked at nothing is
    known."""

    def __init__(self, row: Row) -> None:
        self.row = row

    def __delitem__(self, nothing: Any) -> None:
        assert nothing in (None, NULL), "only what is no block is passed over"

    def __eq__(self, other: object) -> bool:
        assert isinstance(other, Occurrences)
        return bool(self.row.occurs == other.row.occurs) and undecided("all others occur as often")

    __hash__ = None  # type: ignore[assignment]  # it changes


def _grows(u: Any) -> Any:
    its = running(u)
    held = holdings_over(its)
    table, other = table_of(), table_of(5)
    there: Any = Row(its, u.occurs)
    table.blocks, held.tables = there, {OWNER: [table], OTHER: [other]}
    layout: Any = Row(its, u.again, u.at_other)
    with its.runs(), ExitStack() as stack:
        stack.enter_context(patch.object(block_tables, "Counter", Occurrences))
        try:
            lost = held._grow(table, layout)
        except (ValueError, LookupError):
            return its.agrees() & (table.blocks is there)
    kept = (u.occurs == u.again) & (held.tables == {OWNER: [table], OTHER: [other]})
    kept = kept & (sum(each is its.at.block for each in table.blocks) == 1)
    if u.at_other == 0:
        return kept & its.agrees() & (lost == [] and its.popped == [])
    its.follow(Take)
    new = [each for each in table.blocks if each is not its.at.block]
    popped: list[Any] = its.popped
    taken = len(popped) == len(new) == 1 and new[0] is popped[0]
    return kept & its.agrees() & (u.at_other <= u.where.count(FREE)) & taken & is_reported(u, lost)


GROWS = Obligation(
    id="blocks-and-references.running-grow",
    statements=("KV-INV-01", "KV-INV-02", "KV-INV-03", "KV-INV-04", "KV-INV-05", "KV-OP-05", "KV-OP-10"),
    title="A table of any length becomes what it is to be: it names each of its blocks as often as before, and besides "
    "new ones. Each of these was free, gets one holder, is forgotten by both maps and the tier, and its content is "
    "reported. Where a block would be lost or named more often, or too few are free, it is rejected, and then nothing "
    "changes.",
    unknowns={**OF_POOL, "occurs": Count(0), "again": Count(0)},
    # The front of the queue is the block of the step, if it is in it at all.
    assumes=lambda u: is_pool(u) & (u.where[u.at_block] == FREE) & (u.named[u.at_entry] == 0),
    claim=_grows,
    witnesses={
        "a cached block with entries, a pinned tier": lambda u: (
            (u.tier == 1)
            & (u.content[u.at_block] != 0)
            & (u.begun[u.at_block] == 2)
            & (u.any_block == u.at_block)
            & (u.at_other == 1)
        ),
        "another block holds the same": lambda u: (
            (u.content[u.at_block] != 0)
            & (u.content[u.any_block] == u.content[u.at_block])
            & (u.any_block != u.at_block)
            & (u.at_other == 1)
        ),
        "a block would be lost": lambda u: (u.occurs == 1) & (u.again == 0),
        "too few are free": lambda u: (u.at_other == u.where.count(FREE) + 1) & (u.occurs == u.again),
    },
    mutants=(
        only("take-forgets-nothing", "A block keeps its content.", f"{POOL}._lose", lambda self, block: []),
        only(
            "forget-drops-all",
            "With one block all others that hold the same are forgotten.",
            f"{CACHED}.forget",
            lambda self, block: _forget_all_of(self, block),
        ),
        only(
            "entries-stay", "The boundaries inside a block stay entries.", f"{PARTIAL}.forget", lambda self, block: None
        ),
        only(
            "pop-leaves-it",
            "The block that is taken stays in the free queue.",
            f"{FIRST_QUEUE}.pop",
            lambda self: _front(self),
        ),
        only(
            "loses-blocks",
            "A table may lose blocks that it held.",
            "kvreference.holdings:keeps_all",
            lambda layout, blocks: True,
        ),
        only(
            "takes-what-is-there",
            "As many blocks are taken as are free, if fewer than wanted.",
            f"{POOL}.take",
            lambda self, count: _takes(self),
        ),
        only(
            "taken-and-not-named",
            "Blocks are taken, and the table does not name them.",
            f"{HOLDINGS}._grow",
            lambda self, table, layout: self.pool.take(layout.count(None))[1],
        ),
    ),
)


def _forget_all_of(self: CachedMap, block: int) -> Any:
    content, self._content[block] = self._content[block], None
    if content is not None:
        self._blocks.pop(content)
    return content


def _front(self: Any) -> Any:
    block = self._order.popitem(last=False)[0]
    self._order[block] = None
    return block


def _takes(self: BlockPool) -> Any:
    block = self.free.pop()
    lost = self._lose(block)
    self.references[block] = 1
    return [block], lost


# Copies


class OnePlace:
    """A sequence of any length, known at one place: a table, or one thing for each group."""

    def __init__(self, place: Any, known: Any) -> None:
        self.place, self.known = place, known

    def __getitem__(self, place: Any) -> Any:
        return self.known if place == self.place else fresh("another")


AIM = Holdings._aim
"""How copies get their destinations, where nothing is broken."""


def _aims(u: Any) -> Any:
    its = running(u)
    held = holdings_over(its, SimpleNamespace(groups=OnePlace(u.group, group(Kind.FULL, u.size))))
    table, block, source = table_of(), its.own.block, key(u.source)
    table.blocks = OnePlace(u.full, block)  # type: ignore[assignment]  # it stands for one
    held.tables = {OWNER: OnePlace(u.group, table)}
    others = [Copy(0, 5, 6, 1), Copy(1, 7, 8, 1)]
    pending: Any = Copy(u.group, source, NULL, INSIDE_TOKENS)  # type: ignore[arg-type]  # a term
    held.copies = [others[0], pending, others[1]]
    with its.runs():
        held._aim(OWNER, Hit(u.full * u.size + u.inside, ((),)))
    first, aimed, last = held.copies
    if u.at_block != NULL:
        its.follow(Aim)
    kept = [first, last] == others and aimed.source is source and aimed.tokens == INSIDE_TOKENS
    return its.agrees() & (aimed.destination == u.at_block) & (aimed.group == u.group) & kept


AIMS = Obligation(
    id="partial-hits.running-aim",
    statements=("KV-INV-09", "KV-OP-19"),
    title="Each pending copy without a destination, in whichever group of any number, gets the block that its "
    "request's table there names after the full blocks of the hit, however many; its source stays, and so does each "
    "copy that has a destination.",
    unknowns={
        **OF_POOL,
        "group": Count(0),
        **{name: Count(least) for name, least in (("source", 1), ("size", 1), ("full", 0), ("inside", 1))},
    },
    assumes=lambda u: (
        is_pool(u)
        & (u.inside < u.size)
        & (u.reads[u.at_copy] == u.source)
        & (u.writes[u.at_copy] == 0)
        & (u.named[u.at_entry] == u.at_block)
    ),
    claim=_aims,
    witnesses={"a block of its own": lambda u: (u.refs[u.at_block] == 1) & (u.full == 2) & (u.group == 3)},
    mutants=(
        only(
            "only-the-first",
            "Only a copy that is pending before all others gets a destination.",
            f"{HOLDINGS}._aim",
            lambda self, request, hit: None if self.copies[0].destination else AIM(self, request, hit),
        ),
        only(
            "aims-into-the-block-before",
            "A copy goes into the last full block of the hit.",
            f"{HOLDINGS}._aim",
            lambda self, request, hit: _aims_at_source(self),
        ),
    ),
)


def _aims_at_source(self: Holdings) -> None:
    self.copies = [evolve(copy, destination=copy.destination or copy.source) for copy in self.copies]


# What a window leaves


def _leaves(u: Any) -> Any:
    its = running(u)
    its.pool.drop_blocks_min = u.drop_min
    held, table, place = holdings_over(its), table_of(), key(u.place)
    blocks: Any = Entries(u.length, {"looked": (place, its.own.block)})
    table.blocks, held.copies = blocks, Pending(its)
    last, times = u.last.__index__(), u.times.__index__()
    try:
        with its.runs():
            held._leave(table, [place] * times, slice(u.anchor, u.anchor_end), [its.own.block] * last)
    except ValueError:
        is_written = its.state.writes.count(its.own.block) >= 1
        return its.agrees() & is_written & (table.blocks[place] is its.own.block)
    if (u.tier == 1) & (u.drop_min <= 1 - last) & (u.place >= u.anchor) & (u.place < u.anchor_end):
        its.follow(Pin)
    its.follow(Drop)
    return its.agrees() & (table.blocks[place] == NULL)


LEAVES = Obligation(
    id="blocks-and-references.running-leave",
    statements=("KV-INV-01", "KV-INV-02", "KV-INV-07", "KV-INV-09", "KV-OP-06"),
    title="A place of a table, of any length, that a window leaves is a null block then, and its block has one holder "
    "fewer, also if the place is named twice; it is pinned before if it is an anchor of a long drop, and waits where "
    "its pin says, also if it is to go last. While something is to be copied into it, it is rejected, and then nothing "
    "changes.",
    unknowns={
        **OF_POOL,
        "scratch_first": Count(0, 1),
        "length": Count(1),
        "place": Count(0),
        "anchor": Count(0),
        "anchor_end": Count(0),
        "drop_min": Count(0),
        "times": Count(1, 2),
        "last": Count(0, 1),
    },
    assumes=lambda u: (
        is_pool(u)
        & (u.named[u.at_entry] == u.at_block)
        & (u.at_block != NULL)
        & (u.place < u.length)
        & (u.anchor_end <= u.length)
    ),
    claim=_leaves,
    witnesses={
        "a pinned block goes last": lambda u: (
            (u.tier == 1) & (u.last == 1) & (u.refs[u.at_block] == 1) & (u.pinned[u.at_block] != 0)
        ),
        "it is named twice": lambda u: (u.times == 2) & (u.refs[u.at_block] == 2),
    },
    mutants=(
        only(
            "last-is-not-pinned",
            "What goes last is put into the free queue, pinned or not.",
            f"{POOL}.release_last",
            lambda self, blocks: self.free.put(self._let_go(blocks), ()),
        ),
        only(
            "released-and-named",
            "A table names what was released.",
            f"{HOLDINGS}._leave",
            lambda self, table, places, anchor, last: self.pool.slide([table.blocks[each] for each in places], []),
        ),
        WRITTEN,
    ),
)

# The end of a request

STATUSES = tuple(Status)
ENDS: tuple[Callable[[int], Finish | Abort | Transferred], ...] = (
    Finish,
    lambda number: Finish(number, sends=True),
    Abort,
    lambda number: Transferred(number, True),
    lambda number: Transferred(number, False),
)


def _is_forgotten(u: Any) -> Any:
    its = running(u)
    geometry = SimpleNamespace(groups=(group(Kind.FULL, u.size),))
    held = holdings_over(its, geometry)
    manager = manager_over(held)
    manager.settings = SimpleNamespace(loads_out_of_turn=False)
    manager.cache = SimpleNamespace(register=lambda *_arguments: [])
    population = books(Population, geometry=geometry)
    number, other = key(u.number), key(u.other)
    request: Any = Request(number, [1], Keys(), True, status=STATUSES[u.status.__index__()])  # type: ignore[arg-type]  # a term
    one, two = [table_of(its.own.block)], [table_of(5)]
    population.alive = {number: request, other: Request(u.other, [1], Keys(), True)}
    held.tables, manager.prefixes, manager.population = {number: one, other: two}, {number: [], other: []}, population
    with validators.disabled():
        operation = ENDS[u.way.__index__()](number)
    with its.runs():
        manager.perform(operation)
    places: Any = (held.tables, manager.prefixes, population.alive)
    others = [list(each)[-1] is other for each in places] == [True] * len(places)
    remembered = [len(each) - 1 for each in places]
    if number in population.alive:
        # It holds on until a transfer is over, or continues.
        return others & (remembered[1:] == [1, 1])
    if u.tier == 1:
        its.follow(Pin)
    its.follow(Drop)
    return its.agrees() & (others and remembered == [0, 0, 0])


IS_FORGOTTEN = Obligation(
    id="blocks-and-references.running-end-is-forgotten",
    statements=("KV-LEAK-01",),
    title="A request that ends, at once or when its transfer is over, is in the books no longer; then it has no table "
    "and no prefixes, and its blocks are released. Of another request all stays.",
    unknowns={
        **OF_POOL,
        "number": Count(0),
        "other": Count(0),
        "size": Count(1),
        "status": Count(0, len(STATUSES) - 1),
        "way": Count(0, len(ENDS) - 1),
    },
    assumes=lambda u: is_pool(u) & Drop.precondition(before(u), operands(u)) & (u.number != u.other),
    claim=_is_forgotten,
    witnesses={
        "it runs, and finishes": lambda u: (u.status == STATUSES.index(Status.RUNNING)) & (u.way == 0),
        "its transfer is over": lambda u: (u.status == STATUSES.index(Status.ENDING)) & (u.way == 3),
    },
    mutants=(
        only(
            "tables-stay",
            "A request that ended keeps its tables.",
            f"{HOLDINGS}.release_all",
            lambda self, request: None,
        ),
        only(
            "books-forget-too-early",
            "A request that another node still reads is in the books no longer.",
            "kvreference.population:Population._end",
            lambda self, request, operation: self.alive.pop(request.number),
        ),
    ),
)

OBLIGATIONS = (HOLDS, GROWS, LEAVES, AIMS, IS_FORGOTTEN)
