"""The running tables: what a request frees, what a copy releases, and what becomes known to the cache.

The pool may be of any size, a table and a list of copies of any length: see ``kvspec.running``. One place of a table is
run, which stands for all: what is done to it depends on no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from attrs import frozen

from kvreference import admission, attention, holdings, mamba
from kvreference import manager as manager_module
from kvreference import tables as block_tables
from kvreference.ahead import PopulationAhead
from kvreference.answers import Copy, Hit
from kvreference.attention import Kind
from kvreference.block_pool import NULL
from kvreference.geometry import Group
from kvreference.holdings import Holdings, Span
from kvreference.mamba import AlignedMamba
from kvreference.operations import Dispatch, Preempt, ReleaseSkipped
from kvreference.prefix_cache import PrefixCache
from kvreference.tables import Table
from kvspec.loops import edited
from kvspec.obligation import Count, Obligation, Unknown, only
from kvspec.pool.induction import before, operands, sound
from kvspec.pool.invariants import Point
from kvspec.pool.state import HELD
from kvspec.pool.transitions import Drop, Pin, ReadDone
from kvspec.progress.counted import least
from kvspec.proofs.running_pool import OF_POOL, books, holdings_over, is_pool, manager_over, running
from kvspec.running import Key, Running, Unwatched, key, undecided
from kvspec.sequences import Parts, Stretch, numbered, times
from kvspec.stand_in import group
from kvspec.symbolic import Term, current_path, either, formula_of, implies, negated

HOLDINGS = "kvreference.holdings:Holdings"
OWNER, OTHER = 1, 2
"""Two requests."""
NO_HIT = Hit(0, ((),))


def table_of(*blocks: Any) -> Table:
    """A table that names these blocks."""
    return Table(list(blocks), registered=0, boundary_tokens=0)


class Entries:
    """A sequence of any length: the entries of a table, the tables of a request, or what waits in a list.

    It is known at some places, given in order, which are those that are looked at. With ``its`` pool, an iteration also
    meets another block that is there, if there is one: what is done to one must not depend on the others.
    """

    def __init__(self, length: Any, known: Mapping[str, tuple[Any, Any]], its: Running | None = None) -> None:
        self.length, self.known, self.its = length, dict(known), its
        self.made: Callable[[Key], Any] = lambda block: block
        """What stands there with a block."""
        self._others: list[Any] | None = None
        """The other block that is met, if there is one: the same whenever it is gone through."""

    def __bool__(self) -> bool:
        return bool(self.length > 0)

    def __iter__(self) -> Iterator[Any]:
        return iter(self[:])

    def _name(self, place: Any) -> str:
        return next(name for name, (at, _) in self.known.items() if place is at)

    def __getitem__(self, place: Any) -> Any:
        if not isinstance(place, slice):
            return self.known[self._name(place)][1]
        # Python's slices clip: of a part that begins before the first place, or ends after the last, what is there.
        start, stop = (
            default if given is None else given if not isinstance(given, int) or given >= 0 else self.length + given
            for given, default in ((place.start, 0), (place.stop, self.length))
        )
        met = [value for at, value in self.known.values() if (at >= start) & (at < stop)]
        if self.its is not None:
            if self._others is None:
                self._others = [self._another(self.its)] if undecided("another") else []
            met += self._others
        return met if place.step is None else met[:: place.step]

    def _another(self, its: Running) -> Any:
        another = Unwatched(current_path().fresh("another"))
        apart: Any = (another != its.at.block) & (another != its.own.block)
        state = its.state
        current_path().assume(formula_of(apart & (state.where[another] == HELD) & (state.writes.count(another) == 0)))
        current_path().fact(formula_of(sound(state, [Point(another)])))
        return self.made(another)

    def __setitem__(self, place: Any, block: Any) -> None:
        self.known[self._name(place)] = place, block


ELSEWHERE = -1
"""Stands for a block that is not released."""


class Pending:
    """The copies that are pending: one into the block of the step, if there is any, among others.

    However many those are makes no difference: each copy is asked by itself (``kvspec.turns``).
    """

    def __init__(self, its: Running) -> None:
        self._its = its

    def __iter__(self) -> Iterator[Copy]:
        yield from (Copy(0, 5, NULL, 1), Copy(0, 5, ELSEWHERE, 1))
        if self._its.state.writes.count(self._its.own.block) >= 1:
            yield Copy(0, 5, self._its.own.block, 1)
        yield Copy(0, 5, ELSEWHERE, 1)


@contextmanager
def at_places(module: Any, places: Sequence[Any], asked: list[tuple[Any, Any]]) -> Iterator[None]:
    """Code of ``module`` that iterates over a range of places runs only at these ``places``, if they are among them."""

    def over(first: Any, end: Any) -> list[Any]:
        asked.append((first, end))
        return [place for place in places if (place >= first) & (place < end)]

    with patch.object(module, "range", over, create=True), on_lengths(module):
        yield


@contextmanager
def on_lengths(module: Any) -> Iterator[None]:
    """Lengths may be terms. A value with such a length has no ``__len__``: Python would require a number."""

    def length(value: Any) -> Any:
        return value.length if hasattr(value, "length") else value.__len__()

    with patch.object(module, "len", length, create=True):
        yield


def holdings_on(pool: Any, its: Group, anchor: tuple[Any, Any]) -> Any:
    """Holdings of one group over something that stands for a pool."""
    # The range that a hit at the last boundary in a drop reads is proved separately (chapter 10): here it is any range.
    geometry = SimpleNamespace(groups=(its,), anchor=lambda _group, _end: anchor)
    return holdings_over(SimpleNamespace(pool=pool), geometry)


def _ended(its: Running, u: Any) -> None:
    """An entry was released at the end of its request: with a pinned tier it was pinned before."""
    if u.tier == 1:
        its.follow(Pin)
    its.follow(Drop)


def _frees_all(u: Any) -> Any:
    its = running(u)
    held = holdings_over(its)
    other = [table_of(5)]
    lists = _tables(u, its)
    held.tables, held.copies = {OWNER: lists, OTHER: other}, Pending(its)
    try:
        with its.runs():
            held.release_all(OWNER)
    except ValueError:
        is_written = its.state.writes.count(its.own.block) >= 1
        return its.agrees() & is_written & (held.tables == {OWNER: lists, OTHER: other})
    _ended(its, u)
    # How many wait is not known where another block was released, too.
    return its.agrees(sizes=False) & (held.tables == {OTHER: other})


def _tables(u: Any, its: Running, others: bool = True) -> Any:
    """Tables of any length, of any number of groups: one place of one of them is known."""
    table: Any = table_of()
    table.blocks = Entries(u.length, {"looked": (u.place, its.own.block)}, its if others else None)
    return Entries(u.groups, {"looked": (u.group, table)})


_RELEASED = {
    "a pinned block": lambda u: (u.tier == 1) & (u.refs[u.at_block] == 1) & (u.content[u.at_block] != 0),
    "another table names it": lambda u: u.refs[u.at_block] == 2,
}
IN_TABLES: Mapping[str, Unknown] = {
    **OF_POOL,
    "length": Count(1),
    "place": Count(0),
    "groups": Count(1),
    "group": Count(0),
}
"""An entry of the tables of a request."""


def _names(u: Any) -> Any:
    """A request names the block, at a place of a table of one of its groups."""
    return is_pool(u) & _is_named(u) & (u.place < u.length) & (u.group < u.groups)


def _is_named(u: Any) -> Any:
    return (u.named[u.at_entry] == u.at_block) & (u.at_block != NULL)


WRITTEN = only(
    "freed-while-written",
    "A block is released into which something is still copied.",
    f"{HOLDINGS}._check_not_written",
    lambda self, blocks: None,
)
WRITTEN_LATER = tuple(
    only(
        f"{name}-copy-alone-is-asked",
        f"Of the copies that are pending only the {name} is asked for.",
        f"{HOLDINGS}._check_not_written",
        lambda self, blocks, which=which: _check_some(self, blocks, which),
    )
    for name, which in (("first", slice(1)), ("last", slice(-1, None)))
)


def _check_some(self: Holdings, blocks: Any, which: slice) -> None:
    copies = [copy for copy in self.copies if copy.destination != NULL][which]
    NOT_WRITTEN(SimpleNamespace(copies=copies), blocks)  # type: ignore[arg-type]  # it stands for holdings


NOT_WRITTEN = Holdings._check_not_written
"""What it does, where nothing is broken."""


FREES_ALL = Obligation(
    id="blocks-and-references.running-end-of-a-request",
    statements=("KV-OP-07", "KV-INV-01", "KV-INV-03", "KV-LEAK-01"),
    title="A request that frees all it holds drops every block that its tables name, in every group, and has no "
    "tables any more; those of other requests stay. While something is to be copied into one of them, it is rejected, "
    "and then nothing changes.",
    unknowns=IN_TABLES,
    assumes=_names,
    claim=_frees_all,
    witnesses=_RELEASED,
    mutants=(
        only(
            "first-group-alone",
            "Only what the first group holds is freed.",
            f"{HOLDINGS}.free",
            lambda self, tables: [self.pool.end(table.blocks[::-1]) for table in tables[:1]],
        ),
        only(
            "the-last-two-alone",
            "Only the last two blocks of a table are freed.",
            f"{HOLDINGS}.free",
            lambda self, tables: [self.pool.end(table.blocks[-2:]) for table in tables],
        ),
        only(
            "tables-stay",
            "The tables name blocks that were freed.",
            f"{HOLDINGS}.release_all",
            lambda self, request: self.free(self.tables.get(request, [])),
        ),
        only(
            "released-without-a-pin",
            "What ends is released, and not pinned.",
            f"{HOLDINGS}.free",
            lambda self, tables: [self.pool.release(table.blocks[::-1]) for table in tables],
        ),
        WRITTEN,
        *WRITTEN_LATER,
    ),
)


class TurnOverError(Exception):
    """A loop has taken one turn, and begins another one."""


class Deferred:
    """The blocks that wait for steps in flight, in the order in which they were freed: any number, then those freed
    now.

    Of those before, one is met: each of them waits for no more steps than those freed later.
    """

    def __init__(self, before: Any, one: tuple[Any, Any]) -> None:
        self.before, self.one = before, one
        self.own: tuple[Any, Any] | None = None
        self.popped: list[tuple[Any, Any]] = []

    def append(self, own: tuple[Any, Any]) -> None:
        """The last one."""
        self.own = own

    def __bool__(self) -> bool:
        if self.popped:
            # What is left is like what was there.
            raise TurnOverError
        return True

    def __getitem__(self, place: int) -> tuple[Any, Any]:
        assert place == 0 and self.own is not None, "the first"  # noqa: PT018  # one thing is asked
        return self.one if self.before > 0 else self.own

    def pop(self, place: int) -> tuple[Any, Any]:
        """The first, which waits no longer."""
        self.popped.append(self[place])
        return self.popped[-1]


def _waits(u: Any) -> Any:
    """Freed while steps are in flight: nothing is free before all that were dispatched are over, and then all is."""
    its = running(u)
    held = holdings_over(its)
    lists, waiting = _tables(u, its, others=False), Deferred(u.waits, (u.older, [table_of(NULL)]))
    held.tables, held.deferred, held.copies = {OWNER: lists}, waiting, Pending(its)
    manager = manager_over(held)
    manager.settings = SimpleNamespace(loads_out_of_turn=True)
    # Its steps in flight went to the worker.
    request = SimpleNamespace(in_flight=[1] * u.flies.__index__(), undispatched=False)
    manager.population = books(PopulationAhead)
    manager.population.alive, manager.population.dispatched = {OWNER: request}, u.steps
    with its.runs():
        try:
            manager._preempt(Preempt(OWNER))
        except ValueError:
            return its.agrees() & (u.flies == 0) & (held.tables == {OWNER: lists})
        if u.flies == 0:
            _ended(its, u)
            return its.agrees() & (held.tables == {} and waiting.own is None)
        if u.tier == 1:
            its.follow(Pin)
        if waiting.own is None:
            return False
        steps, tables = waiting.own
        kept = its.agrees() & (steps == u.steps) & (held.tables == {} and tables is lists)
        manager.population.over = u.over - 1
        try:
            manager.returned([OTHER])
            again = False
        except TurnOverError:
            again = True
        except ValueError:
            return kept & its.agrees() & (waiting.popped == [])
    if either(u.waits > 0, u.older, u.steps) > u.over:
        return kept & its.agrees() & (waiting.popped == [] and not again)
    if u.waits == 0:
        its.follow(Drop)
    return kept & its.agrees() & (len(waiting.popped) == 1 and again)


WAITS = Obligation(
    id="blocks-and-references.running-wait-for-steps",
    statements=("KV-MEM-04", "KV-OP-07", "KV-LEAK-01"),
    title="Where another node may write out of turn, a block that a request in flight frees waits, after any number of "
    "others, and keeps its holder until all steps that were dispatched are over. When steps are over, the first that "
    "waits is released, once, and then the next one, as long as it waits for no more steps. Otherwise it is "
    "released at once.",
    unknowns={
        **IN_TABLES,
        "steps": Count(1),
        "over": Count(1),
        "older": Count(1),
        "waits": Count(0),
        "flies": Count(0, 1),
    },
    assumes=lambda u: _names(u) & (u.older <= u.steps) & (u.over <= u.steps),
    claim=_waits,
    witnesses={
        "it waits": lambda u: (u.flies == 1) & (u.over < u.steps) & (u.refs[u.at_block] == 1),
        "one that waited before is released": lambda u: (
            (u.flies == 1) & (u.waits == 5) & (u.over == u.older) & (u.older < u.steps)
        ),
        "it is released": lambda u: (u.flies == 1) & (u.waits == 0) & (u.over == u.steps) & (u.refs[u.at_block] == 1),
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
        only(
            "one-at-a-time",
            "Of what waits for the same step, only the oldest is released.",
            f"{HOLDINGS}.steps_over",
            lambda self, steps: _released_one(self, steps),
        ),
        WRITTEN,
    ),
)


def _released_one(self: Holdings, steps: int) -> None:
    if self.deferred and self.deferred[0][0] <= steps:
        for table in self.deferred.pop(0)[1]:
            self.pool.release(table.blocks[::-1])


def _released_early(self: Holdings, steps: int) -> None:
    while self.deferred and self.deferred[0][0] <= steps + 1:
        for table in self.deferred.pop(0)[1]:
            self.pool.release(table.blocks[::-1])


def _dispatched(u: Any) -> Any:
    its = running(u)
    held = holdings_over(its)
    copy = Copy(0, its.own.block, u.at_other, 1)
    pending: Any = Entries(u.length, {"looked": (u.place, copy)}, its)
    pending.made = lambda block: Copy(0, block, 1, 1)
    held.copies = pending
    manager = manager_over(held)
    manager.cache = object.__new__(PrefixCache)
    manager.cache.fenced = {(0, NULL)}
    with its.runs():
        copies = manager._dispatch(Dispatch()).copies
    its.follow(ReadDone)
    serves = not manager.cache.fenced
    handed_over = sum(each is copy for each in copies) == 1
    return its.agrees(sizes=False) & (serves and held.copies == [] and handed_over)


DISPATCHED = Obligation(
    id="partial-hits.running-dispatch",
    statements=("KV-OP-19", "KV-INV-09", "KV-INV-01"),
    title="When a step is dispatched, each of the copies that are pending is passed to the worker once and releases "
    "its source, and none is pending any more; what the step computes may serve hits from then on.",
    unknowns={**OF_POOL, "length": Count(1), "place": Count(0)},
    assumes=lambda u: is_pool(u) & ReadDone.precondition(before(u), operands(u)) & (u.place < u.length),
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
        only("sources-stay", "The sources are never freed.", f"{HOLDINGS}.dispatch", lambda self: _kept(self)),
    ),
)


def _again(self: Holdings) -> tuple[Copy, ...]:
    self.pool.release(copy.source for copy in self.copies)
    return tuple(self.copies)


def _kept(self: Holdings) -> tuple[Copy, ...]:
    copies, self.copies = self.copies, []
    return tuple(copies)


OF_TABLE: Mapping[str, Unknown] = {
    "computed": Count(0),
    "unsure": Count(0),
    "length": Count(1),
    "dead": Count(0),
    "place": Count(0),
    "end": Count(0),
    "other": Count(0),
}
"""A table, and how many of its leading blocks no token reads after those that are sure, and after any other number."""


def _any_kind(u: Any) -> Any:
    """A group of any kind: what is dead in it is proved of each kind by itself (chapter 04)."""
    return SimpleNamespace(blocks_dead=lambda tokens: either(tokens == u.computed, u.end, u.other))


def _dead_end(u: Any) -> Any:
    """Before which place no entry is read any more."""
    return least(u.end, u.length)


def _may_leave(u: Any) -> Any:
    """The place is one of the table, and what is pinned is released (chapter 10)."""
    fine = is_pool(u) & _is_named(u) & (u.place < u.length) & (u.dead <= u.length) & (u.anchor_end <= _dead_end(u))
    return fine & (u.group < u.groups)


def _leaves(u: Any) -> Any:
    """One place of a table, in a release of what no token after the first ``computed`` reads."""
    its = running(u)
    # Without a pinned tier it is the same as with one in which no drop is long enough.
    its.pool.drop_blocks_min = u.drop_min
    its_group = _any_kind(u)
    # The range that a hit at the last boundary in a drop reads is proved separately (chapter 10): here it is any range.
    groups: Any = Entries(u.groups, {"looked": (u.group, its_group)})
    geometry = SimpleNamespace(groups=groups, anchor=lambda _group, _end: (u.anchor, u.anchor_end))
    held = holdings_over(its, geometry)
    place, asked = key(u.place), list[tuple[Any, Any]]()
    table: Any = table_of()
    table.blocks, table.dead = Entries(u.length, {"looked": (place, its.own.block)}), u.dead
    tables: Any = Entries(u.groups, {"looked": (u.group, table)})
    held.tables, held.copies = {OWNER: tables}, Pending(its)
    try:
        with its.runs(), at_places(holdings, [place], asked):
            held.release_passed(OWNER, u.computed + u.unsure, u.unsure)
    except ValueError:
        return its.agrees() & (table.blocks[place] is its.own.block) & (table.dead == u.dead)
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
    title="In each of any number of groups, of any kind, a request releases exactly the entries of its table, of any "
    "length, that no later token reads and that it has not released before; each is a null block then. While something "
    "is to be copied into one of them, it is rejected, and then nothing changes.",
    unknowns={
        **OF_POOL,
        **OF_TABLE,
        "tier": Count(1, 1),
        "anchor": Count(0),
        "anchor_end": Count(0),
        "drop_min": Count(0),
        "groups": Count(1),
        "group": Count(0),
    },
    assumes=_may_leave,
    claim=_leaves,
    witnesses={
        "a block in the middle of a drop": lambda u: (
            (u.dead >= 1) & (u.place > u.dead) & (u.end > u.place + 1) & (u.other == 0)
        ),
        "a block that stays": lambda u: (u.dead < u.place) & (u.end == u.place) & (u.unsure == 2),
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
        only(
            "first-group-alone",
            "Only the first group releases anything.",
            f"{HOLDINGS}.release_dead",
            lambda self, request, computed: _released_in(self, request, computed, self.groups[:1]),
        ),
        WRITTEN,
    ),
)


_release_dead = Holdings.release_dead
"""What it does, where nothing is broken."""


def _released_in(self: Any, request: int, computed: int, groups: Sequence[Group]) -> None:
    tables = {request: [table for _, table in zip(groups, self.tables[request], strict=False)]}
    some: Any = SimpleNamespace(groups=groups, tables=tables, settings=self.settings, rules=self.rules)
    some.blocks_dead, some._leave = self.blocks_dead, self._leave
    _release_dead(some, request, computed)


def _released_again(self: Any, request: int, computed: int) -> None:
    for group_, table in zip(self.groups, self.tables[request], strict=True):
        dead = least(self.blocks_dead(group_, computed), table.blocks.length)
        for place in holdings.range(0, dead):  # type: ignore[attr-defined]  # patched
            self.pool.slide([table.blocks[place]], [])
            table.blocks[place] = NULL
        table.dead = dead


def _released_and_named(self: Any, request: int, computed: int) -> None:
    for group_, table in zip(self.groups, self.tables[request], strict=True):
        dead = least(self.blocks_dead(group_, computed), table.blocks.length)
        if dead > table.dead:
            for place in holdings.range(table.dead, dead):  # type: ignore[attr-defined]  # patched
                self.pool.slide([table.blocks[place]], [])
            table.dead = dead


def _steps(u: Any) -> Any:
    """One place of a table, in an allocation of slots that the table has."""
    released: list[Any] = []
    taken: list[Any] = []

    def make_room(count: Any, _kept: Any) -> bool:
        taken.append(count)
        return bool(count == 0)

    pool = SimpleNamespace(
        slide=lambda blocks, _anchor: released.extend(blocks),
        release_last=released.extend,
        free=[],
        count_free=len,
        make_room=make_room,
    )
    its = _any_kind(u)
    its.blocks_occupied, its.entries = lambda _provided: 0, lambda _tokens, _slots: u.entries
    held = holdings_on(pool, its, (0, 0))
    held.settings.tokens_max = u.computed + u.unsure
    place = key(u.place) if isinstance(u.place, Term) else u.place
    table: Any = table_of()
    table.blocks, table.dead = Entries(u.length, {"looked": (place, u.block)}), u.dead
    held.tables = {OWNER: [table]}
    span = Span(u.computed + u.unsure, 1, unsure=u.unsure)
    with at_places(holdings, [place], []), on_lengths(block_tables), on_lengths(admission):
        if u.asked == 1:
            manager = manager_over(held)
            manager.settings = SimpleNamespace(loads_out_of_turn=False)
            request = SimpleNamespace(number=OWNER, tokens_computed=span.computed, drafts_in_flight=u.unsure)
            manager.population = {OWNER: request}
            manager._release_skipped(ReleaseSkipped(OWNER))
        else:
            allocation = held.allocate(OWNER, span, NO_HIT)
            if allocation is None or allocation.entries != ((),) or not all(count == 0 for count in taken):
                return False
    leaves = (u.place >= u.dead) & (u.place < _dead_end(u))
    return (leaves & (released == [u.block])) | (negated(leaves) & (released == []))


RELEASES_NOTHING = only(
    "releases-nothing",
    "An allocation releases nothing.",
    f"{HOLDINGS}.release_passed",
    lambda self, request, computed, unsure: None,
)
"""A mutant of all that rests on what an allocation releases first."""

STEPS = Obligation(
    id="blocks-and-references.running-next-step",
    statements=("KV-OP-06", "KV-OP-04", "KV-MEM-01"),
    title="When asked and in its next allocation a request releases exactly the entries of a table, of any length, in "
    "a group of any kind, that no token after the sure ones reads; if the table has the slots, nothing is taken and "
    "nothing is asked of the pool.",
    unknowns={**OF_TABLE, "entries": Count(0), "block": Count(1), "asked": Count(0, 1)},
    assumes=lambda u: (u.place < u.length) & (u.dead <= u.length) & (u.entries <= u.length),
    claim=_steps,
    witnesses={
        "drafts may be taken back": lambda u: (
            (u.unsure == 2) & (u.end == 7) & (u.other == 9) & (u.place == 6) & (u.dead == 0)
        )
    },
    mutants=(
        only(
            "drafts-are-sure",
            "A window leaves what drafts that fail still read.",
            "kvreference.holdings:tokens_passed",
            lambda request, groups, computed, unsure: computed,
        ),
        RELEASES_NOTHING,
    ),
)


def _planned(u: Any) -> Any:
    one = group(Kind.FULL, u.size)
    # How a table grows is not asked here: what is planned is how many entries it is to have.
    asked: list[Any] = []

    def layout(_blocks: Any, entries: Any, fresh: Any) -> Any:
        asked.append(fresh)
        return entries

    its = SimpleNamespace(entries=one.entries, layout=layout)
    held = holdings_over(SimpleNamespace(pool=None), SimpleNamespace(groups=(its,)))
    held.settings.tokens_max = u.longest
    table: Any = table_of()
    table.blocks, table.fresh = Entries(u.length, {}), bool(u.fresh == 1)
    with on_lengths(block_tables):
        (entries,) = held._plan([table], [None], Span(u.computed, u.tokens, u.lookahead))
    slots = either(u.computed + u.tokens + u.lookahead < u.longest, u.computed + u.tokens + u.lookahead, u.longest)
    needed = (slots + u.size - 1) // u.size
    if entries is None:
        return needed <= u.length
    return (entries == needed) & (needed > u.length) & (asked == [table.fresh])


PLANNED = Obligation(
    id="blocks-and-references.running-plan",
    statements=("KV-OP-04", "KV-MEM-02"),
    title="A table of any length is to have as many entries as its tokens and its look-ahead slots occupy, and no more "
    "than the longest request occupies; one that has them stays as it is. How it grows depends on whether it holds "
    "nothing but a hit.",
    unknowns={
        "fresh": Count(0, 1),
        "size": Count(1),
        "length": Count(0),
        "computed": Count(0),
        "tokens": Count(0),
        "lookahead": Count(0),
        "longest": Count(1),
    },
    claim=_planned,
    witnesses={
        "look-ahead ends at the longest": lambda u: (
            (u.computed == 60) & (u.tokens == 3) & (u.lookahead == 5) & (u.longest == 64) & (u.size == 4)
        )
    },
    mutants=(
        only(
            "every-table-is-fresh",
            "Every table grows as if it held nothing but a hit.",
            "kvreference.holdings:plan",
            edited(block_tables.plan, "table.fresh", "True"),
        ),
        only(
            "no-slots-for-drafts",
            "Look-ahead gets no slots.",
            f"{HOLDINGS}._plan",
            lambda self, tables_, given, span: block_tables.plan(
                self.settings.geometry,
                tables_,
                given,
                span.computed + span.tokens,
                least(span.computed + span.tokens, self.settings.tokens_max),
            ),
        ),
    ),
)


def _without_entries() -> Any:
    table: Any = table_of()
    table.blocks, table.registered = Entries(0, {}), 0
    return table


def _rewinds(u: Any) -> Any:
    geometry = SimpleNamespace(groups=(group(Kind.FULL, 1), group(Kind.FULL, 1), group(Kind.FULL, u.size)))
    forgotten: list[Any] = []

    def evict(block: Any) -> list[str]:
        forgotten.append(block)
        return ["its content"]

    pool = SimpleNamespace(evict=evict)
    manager = manager_over(holdings_over(SimpleNamespace(pool=pool), geometry))
    manager.geometry = geometry
    table: Any = table_of()
    table.blocks, table.registered = Entries(u.length, {"looked": (u.place, u.block)}), u.registered
    manager.holdings.tables = {OWNER: [_without_entries(), _without_entries(), table]}
    with on_lengths(manager_module):
        manager._rewind(SimpleNamespace(request=OWNER, tokens=u.valid))
    reported = [event.content for event in manager._events]
    is_full = (u.place + 1) * u.size <= u.valid
    looked_at = table.registered > u.place
    if not forgotten:
        return is_full & (looked_at == (u.registered > u.place)) & (reported == [])
    return negated(is_full) & negated(looked_at) & (reported == ["its content"] and forgotten == [u.block])


_FORGETS = manager_module.Manager._forget_after
"""What is forgotten, where nothing is broken."""


def _forget_but_of_the_last(self: Any, request: int, tokens: int) -> Any:
    groups, tables = self.geometry.groups[:-1], {request: self.tables[request][:-1]}
    with patch.object(self, "geometry", SimpleNamespace(groups=groups)), patch.object(self.holdings, "tables", tables):
        return _FORGETS(self, request, tokens)


REWINDS = Obligation(
    id="external-tokens.running-rewind",
    statements=("KV-OP-08", "KV-MEM-01", "KV-OP-10"),
    title="After a load that failed, exactly the blocks of a table, of any group and length, that are not full of "
    "valid tokens are evicted, and reported; each is looked at again when its tokens are computed, and no other block "
    "is.",
    unknowns={
        "size": Count(1),
        "length": Count(1),
        "place": Count(0),
        "registered": Count(0),
        "valid": Count(0),
        "block": Count(1),
    },
    assumes=lambda u: u.place < u.length,
    claim=_rewinds,
    witnesses={
        "a block that was looked at is lost": lambda u: (
            (u.size == 4) & (u.valid == 7) & (u.place == 1) & (u.registered == 2)
        ),
        "one stays": lambda u: (u.size == 4) & (u.valid == 7) & (u.place == 0) & (u.registered == 2),
    },
    mutants=(
        only(
            "one-block-too-many-is-valid",
            "The block in which the valid tokens end stays cached.",
            "kvreference.manager:blocks_still_valid",
            lambda valid, blocks: least(valid + 1, blocks),
        ),
        only(
            "all-is-lost",
            "Valid blocks are forgotten, too.",
            "kvreference.manager:blocks_still_valid",
            lambda valid, blocks: 0,
        ),
        only(
            "only-the-first-groups-forget",
            "Blocks of the last group stay cached.",
            "kvreference.manager:Manager._forget_after",
            _forget_but_of_the_last,
        ),
    ),
)


@frozen(eq=False)
class Cut(Stretch):
    """Neighbouring blocks of a table, from a first place on, of which any may be cut out."""

    first: Any = 0

    def __iter__(self) -> Iterator[Cut]:
        yield self

    def __getitem__(self, which: slice) -> Cut:
        first, end = (
            default if place is None else either(place < self.count, place, self.count)
            for place, default in ((which.start, 0), (which.stop, self.count))
        )
        return Cut(either(end > first, end - first, 0), first)


LAYOUT: Callable[..., Any] = AlignedMamba.layout
"""What it does, where nothing is broken."""


def _moves(u: Any) -> Any:
    """A table of states as it becomes: where one of its blocks is, and what is at one of its places."""

    def length(of: Any) -> Any:
        return times(Parts(of).length)

    fresh = bool(u.fresh == 1)
    with ExitStack() as stack:
        for module in (mamba, attention):
            stack.enter_context(patch.object(module, "len", length, create=True))
        became = AlignedMamba(u.drafts).layout(Cut(u.length), times(u.entries), fresh)  # type: ignore[arg-type]  # a number of any size
    grows, running = u.entries > u.length, u.entries - u.drafts - 1
    stay = either((u.fresh == 1) | negated(grows), u.length, u.length - u.drafts)
    named: Any = 0
    is_null: Any = False
    fine: Any = Parts(became).length == either(grows, u.entries, u.length)
    for place, part in numbered(became):
        if isinstance(part, Cut):
            its = (u.block >= part.first) & (u.block < part.first + part.count)
            named = named + either(its, 1, 0)
            now = place + u.block - part.first
            moves = grows & (u.block >= stay) & (u.block < running)
            right = implies(moves, now >= running) & implies(negated(moves), now == u.block)
            fine = fine & implies(its, right)
        elif part.value == NULL:
            is_null = is_null | ((u.place >= place) & (u.place < place + part.count))
    return fine & (named == 1) & (is_null == (grows & (u.place >= stay) & (u.place < running)))


STATES = Obligation(
    id="attention-kinds.running-layout-of-states",
    statements=("KV-OP-26",),
    title="A table of states that grows, however long, names each of its blocks once more: the states before those of "
    "drafts stay in their places, all of a hit do; the states of drafts that stand before the new place of the running "
    "state move to it and after it, and in between stands the null block.",
    unknowns={
        **{name: Count(0) for name in ("drafts", "length", "block", "place")},
        "entries": Count(1),
        "fresh": Count(0, 1),
    },
    assumes=lambda u: (u.entries > u.drafts) & ((u.fresh == 1) | (u.length > u.drafts)) & (u.block < u.length),
    claim=_moves,
    witnesses={
        "drafts move to the end": lambda u: (u.drafts == 70) & (u.length == 90) & (u.entries == 190) & (u.fresh == 0),
        "after a hit": lambda u: (u.drafts == 2) & (u.length == 3) & (u.entries == 7) & (u.fresh == 1),
        "one draft's state is the new place": lambda u: (
            (u.drafts == 3) & (u.length == 9) & (u.entries == 11) & (u.fresh == 0)
        ),
    },
    mutants=(
        only(
            "grows-like-any-other",
            "The states of drafts stay where they were.",
            "kvreference.mamba:AlignedMamba.layout",
            lambda self, blocks, entries, fresh: attention.grown(blocks, entries),
        ),
        only(
            "moves-a-hit",
            "What was hit is moved like the states of drafts.",
            "kvreference.mamba:AlignedMamba.layout",
            lambda self, blocks, entries, fresh: LAYOUT(self, blocks, entries, False),
        ),
    ),
)


OBLIGATIONS = (FREES_ALL, WAITS, DISPATCHED, LEAVES, STEPS, PLANNED, REWINDS, STATES)
