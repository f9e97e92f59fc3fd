"""The running tables: what a request gives up, what a copy gives up, and what becomes known to the cache.

The pool may be of any size, a table and a list of copies of any length: see ``kvspec.running``. One place of a table is
run, which stands for all: what is done to it depends on no other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from kvreference import caching, holdings
from kvreference.answers import Copy
from kvreference.attention import Kind
from kvreference.block_pool import NULL
from kvreference.geometry import Geometry, Group
from kvreference.holdings import Holdings
from kvreference.rules import OWN_RULES
from kvreference.tables import Table
from kvspec.obligation import Count, Obligation, Unknown, only
from kvspec.pool.induction import before, operands
from kvspec.pool.state import Operands
from kvspec.pool.transitions import Drop, Pin, ReadDone, Register
from kvspec.proofs.running_pool import ANY_QUEUE, OF_POOL, is_pool, running
from kvspec.running import Key, Running, key
from kvspec.stand_in import any_geometry, group
from kvspec.symbolic import current_path, either, formula_of

HOLDINGS = "kvreference.holdings:Holdings"
OWNER, OTHER = 1, 2
"""Two requests."""


def holdings_over(its: Running, geometry: Any = None) -> Any:
    """Holdings over the running pool."""
    made: Any = object.__new__(Holdings)
    made.rules, made.pool, made.tables, made.copies, made.deferred = OWN_RULES, its.pool, {}, [], []
    made.settings = SimpleNamespace(geometry=geometry)
    made.groups = () if geometry is None else geometry.groups
    return made


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
    with its.runs():
        copies = held.dispatch()
    its.follow(ReadDone)
    return its.agrees() & (held.copies == [] and len(copies) == 1 and copies[0] is copy)


DISPATCHED = Obligation(
    id="partial-hits.running-dispatch",
    statements=("KV-OP-19", "KV-INV-09", "KV-INV-01"),
    title="When a step is dispatched, each copy that is pending is handed to the worker once and gives up its source, "
    "and none is pending any more.",
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

    with (
        patch.object(module, "range", over, create=True),
        patch.object(module, "len", lambda value: value.__len__(), create=True),
    ):
        yield


OF_WINDOW: Mapping[str, Unknown] = {
    **OF_POOL,
    "kind": Count(0, 1),
    "size": Count(1),
    "window": Count(2),
    "alignment": Count(1),
    "computed": Count(0),
    "length": Count(1),
    "dead": Count(0),
    "place": Count(0),
    "drop_min": Count(0),
}


def _leaves(u: Any) -> Any:
    """One place of a table, in a release of what no token after the first ``computed`` reads."""
    its = running(u)
    if u.tier == 1:
        its.pool.drop_blocks_min = u.drop_min
    kind = Kind.SLIDING_WINDOW if u.kind == 1 else Kind.FULL
    its_group: Group = group(kind, u.size, u.window if kind is Kind.SLIDING_WINDOW else None)
    geometry = any_geometry(its_group, alignment_tokens=u.alignment)
    geometry = SimpleNamespace(
        groups=(its_group,),
        anchor=lambda one, end: Geometry.anchor(any_geometry(alignment_tokens=u.alignment), one, end),
    )
    held = holdings_over(its, geometry)
    place, asked = key(u.place), list[tuple[Any, Any]]()
    table: Any = table_of()
    table.blocks, table.dead = Entries(u.length, {"looked": (place, its.own.block)}), u.dead
    held.tables = {OWNER: [table]}
    with its.runs(), at_place(holdings, place, asked):
        held.release_dead(OWNER, u.computed)
    end = its_group.blocks_dead(u.computed)
    end = either(end < u.length, end, u.length)
    inside = (u.place >= u.dead) & (u.place < end)
    if not inside:
        return its.agrees() & (table.blocks[place] is its.own.block) & (table.dead == either(end > u.dead, end, u.dead))
    anchor = geometry.anchor(its_group, end)
    if (u.tier == 1) and (1 >= u.drop_min) and (u.place >= anchor[0]) & (u.place < anchor[1]):
        its.follow(Pin)
    its.follow(Drop)
    return its.agrees() & (table.blocks[place] == NULL) & (table.dead == end)


LEAVES = Obligation(
    id="blocks-and-references.running-release-of-what-is-dead",
    statements=("KV-OP-06", "KV-INV-01", "KV-INV-03", "KV-OP-21"),
    title="A request releases exactly the entries of a table, of any length, that no later token reads and that it has "
    "not released before; each is a null block then, and what a hit at the last boundary among them reads is pinned "
    "where the drop is long enough.",
    unknowns=OF_WINDOW,
    assumes=lambda u: is_pool(u) & Drop.guard(before(u), operands(u)) & (u.place < u.length) & (u.dead <= u.length),
    claim=_leaves,
    witnesses={
        "a block in the middle of a drop": lambda u: (
            (u.kind == 1)
            & (u.dead >= 1)
            & (u.place > u.dead)
            & (u.computed > u.window + u.size * (u.place + 2))
            & (u.size >= 2)
        ),
        "a block that stays": lambda u: (
            (u.kind == 1) & (u.dead < u.place) & (u.computed == u.size * u.place) & (u.place >= 2)
        ),
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
        dead = self.blocks_dead(group_, computed)
        dead = either(dead < table.blocks.length, dead, table.blocks.length)  # type: ignore[attr-defined]
        for place in holdings.range(0, dead):  # type: ignore[attr-defined]
            self.pool.slide([table.blocks[place]], [])
            table.blocks[place] = NULL
        table.dead = dead


def _released_and_named(self: Holdings, request: int, computed: int) -> None:
    for group_, table in zip(self.groups, self.tables[request], strict=True):
        dead = self.blocks_dead(group_, computed)
        dead = either(dead < table.blocks.length, dead, table.blocks.length)  # type: ignore[attr-defined]
        if dead > table.dead:
            for place in holdings.range(table.dead, dead):  # type: ignore[attr-defined]
                self.pool.slide([table.blocks[place]], [])
            table.dead = dead


OBLIGATIONS = (FREES_ALL, WAITS, DISPATCHED, LEAVES)
