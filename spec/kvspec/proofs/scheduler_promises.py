"""Chapter 11: what proofs of the scheduler assume of the block manager, proved in the form in which it is assumed.

There ``Promised`` stands for the holdings, and ``AnyHit`` for the cache (``kvspec.progress.promised``). Each of their
methods is compared here with the running one, over a pool of any size: the two answer the same, and after both as many
blocks are named and can be had. The numbers that ``Promised`` is given are those that the running method was seen to
ask for, take, keep and release. What else is assumed of them are the predicates of ``kvspec.progress.promised``.

The pool, its queues, its pins and its counts of references are the reference's own. Blocks of which the same is so
stand side by side as one stretch, of which the number is not known: null blocks, blocks that others hold, too, and
blocks that only one holds, pinned or not. Of any number of groups two are run, with tables of any length; what all
others take is added (``kvspec.turns``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from attrs import field, frozen

from kvreference import (
    admission,
    attention,
    block_pool,
    caching,
    free_queue,
    hit_lookup,
    holdings,
    mamba,
    pinned_tier,
    prefix_cache,
)
from kvreference import tables as block_tables
from kvreference.answers import Copy, Hit, Partial
from kvreference.attention import Kind
from kvreference.block_pool import NULL, BlockPool
from kvreference.free_queue import FreeQueue, ScratchFirstQueue
from kvreference.holdings import Holdings, Span
from kvreference.mamba import AlignedMamba
from kvreference.pinned_tier import PinnedPool
from kvreference.prefix_cache import NoPrefixCache, no_junction
from kvreference.rules import OWN_RULES
from kvreference.scheduler import room
from kvreference.tables import Table
from kvspec.obligation import Count, Mutant, Obligation, Unknown, only
from kvspec.pool.induction import ANY_STATE, before, is_sound
from kvspec.pool.state import FREE as STATE_FREE
from kvspec.pool.state import HELD as STATE_HELD
from kvspec.pool.state import WAITING
from kvspec.progress.counted import counted, least
from kvspec.progress.promised import (
    AnyHit,
    Promised,
    adds_up,
    held_by,
    leaves_a_token,
    passes_within,
    releases_some,
    serves_at_once,
    stays_within,
)
from kvspec.progress.room import KINDS as KINDS_OF_NEED
from kvspec.progress.room import first_blocks, first_states, group_of, held, on_states, states_taken
from kvspec.proofs.attention_kinds import ALIGNED, aligned_of, grows, held_when_it_grows, next_step
from kvspec.proofs.running_allocation import GROWN, Layout, Stretch, Times, grown, on_stretches
from kvspec.proofs.running_pool import PINNED, POOL, holdings_over
from kvspec.proofs.running_queries import CACHE, cache_over
from kvspec.proofs.running_registration import registered_in_a_step
from kvspec.proofs.running_requests import Tokens
from kvspec.proofs.running_tables import HOLDINGS, OTHER, OWNER, RELEASES_NOTHING, Cut, on_lengths
from kvspec.proofs.scheduler_room import FIRST_ALLOCATION, SIZES, is_admitted
from kvspec.running import key
from kvspec.sequences import Parts, Repeated, more_than, times
from kvspec.stand_in import group
from kvspec.symbolic import Term, either, expression_of, implies
from kvspec.turns import added_to_others, turns_at

OTHERS_COPY = Copy(0, 5, 6, 1)
"""A copy of another request, into none of the blocks here."""


# A pool of which the blocks are counted


class Weighed(Term):
    """Whether something is so of each block of a stretch: as a number, of how many."""

    __slots__ = ("is_so",)

    def __init__(self, is_so: bool, count: Any) -> None:
        super().__init__(expression_of(count if is_so else 0))
        self.is_so = is_so

    def __bool__(self) -> bool:
        return self.is_so


@frozen(eq=False)
class Blocks(Stretch):
    """Neighbouring blocks of which the same is so: null blocks, or blocks of the pool."""

    its: Any = field(factory=SimpleNamespace)
    """How many references each of them has, whether it is pinned and cached, and in which queue it waits."""

    def __ne__(self, other: object) -> Any:
        return Weighed(not self == other, self.count)

    def __eq__(self, other: object) -> bool:
        is_null = (isinstance(other, int) and other == NULL) or (isinstance(other, Blocks) and other.what == "null")
        return self is other or (is_null and self.what == "null")

    def __hash__(self) -> int:
        # The same for all others: then a set of them has the same order whenever the code is run.
        return hash(NULL) if self.what == "null" else 1

    def __gt__(self, _null: int) -> bool:
        return True

    def __lt__(self, _blocks: Any) -> bool:
        return True

    def __le__(self, _null: int) -> bool:
        return False

    def part(self, count: Any) -> Blocks:
        """So many of them."""
        return Blocks(count, self.what, SimpleNamespace(**{**vars(self.its), "whole": self}))


def _blocks(count: Any, references: int, pinned: bool = False, cached: bool = False, queue: Any = None) -> Blocks:
    made = SimpleNamespace(references=references, pinned=pinned, cached=cached or pinned, queue=queue, whole=None)
    blocks = Blocks(count, "there", made)
    if queue is not None:
        queue.members.append(blocks)
    return blocks


class References:
    """How many references each block of a stretch has."""

    length = 2
    """Of how many blocks: each stretch is within."""

    def __getitem__(self, blocks: Blocks) -> Any:
        return Holders(blocks)

    def __setitem__(self, blocks: Blocks, number: int) -> None:
        blocks.its.references = number


class Holders:
    """The number of references: that it is 0 is said of each block of the stretch."""

    def __init__(self, blocks: Blocks) -> None:
        self.blocks = blocks

    def __eq__(self, number: object) -> Any:
        return Weighed(bool(self.blocks.its.references == number), self.blocks.count)

    def __add__(self, number: int) -> int:
        return int(self.blocks.its.references + number)

    def __sub__(self, number: int) -> int:
        return int(self.blocks.its.references - number)

    __hash__ = None  # type: ignore[assignment]  # it is no key


class Flags:
    """Whether the blocks of a stretch are pinned."""

    def __getitem__(self, blocks: Blocks) -> bool:
        return bool(blocks.its.pinned)

    def __setitem__(self, blocks: Blocks, pinned: bool) -> None:
        blocks.its.pinned = pinned


class Order:
    """The order of a queue: how many blocks are in it, and which stretches are known to be."""

    def __init__(self, size: Any) -> None:
        self.size = size
        self.members: list[Blocks] = []
        self.next: Any = 0
        """How many are taken from the front at once."""

    def __len__(self) -> Any:
        return self.size

    def __contains__(self, blocks: Blocks) -> bool:
        return blocks.its.queue is self

    def __iter__(self) -> Iterator[Blocks]:
        yield from self.members

    def __bool__(self) -> bool:
        return bool(self.size > 0)

    def __setitem__(self, blocks: Blocks, _value: None) -> None:
        self.size, blocks.its.queue = self.size + blocks.count, self
        self.members.append(blocks)

    def __delitem__(self, blocks: Blocks) -> None:
        self.size, blocks.its.queue = self.size - blocks.count, None
        whole = blocks.its.whole
        if whole in self.members:
            self.members[self.members.index(whole)] = whole.part(whole.count - blocks.count)
        else:
            self.members.remove(blocks)

    def move_to_end(self, _blocks: Blocks, last: bool) -> None:
        """In which order they stand is not asked."""

    def popitem(self, last: bool) -> tuple[Blocks, None]:
        """As many as are taken at once; what is known of a stretch is not known any more."""
        assert not last, "from the front"
        self.size = self.size - self.next
        self.members = []
        return _blocks(self.next, 0), None


class Some(list[Any]):
    """Stretches of blocks, in order: as a tuple of blocks."""

    @property
    def length(self) -> Any:
        """How many blocks they are."""
        return sum(each.count for each in self)

    def __getitem__(self, which: Any) -> Any:
        assert (which.start, which.step) == (None, None), "the first so many"
        parts, left = [], which.stop
        for each in self:
            count = either(left < 0, 0, least(each.count, left))
            parts.append(each.part(count))
            left = left - count
        return parts


class Pool:
    """A pool of the reference, over stretches of blocks: so many are free, and so many wait pinned, with a tier."""

    def __init__(self, u: Any) -> None:
        self.free, self.waits = Order(u.free), Order(u.waits)
        pool: Any = object.__new__(PinnedPool if u.tier == 1 else BlockPool)
        pool.rules, pool.references, pool.is_pinned = OWN_RULES, References(), Flags()
        scratch_first = hasattr(u, "scratch_first") and bool(u.scratch_first == 1)
        pool.free = _queue(self.free, ScratchFirstQueue if scratch_first else FreeQueue)
        pool.pinned = _queue(self.waits, FreeQueue)
        pool.cached = SimpleNamespace(content_of=lambda each: each if each.its.cached else None, forget=lambda _: None)
        pool.partial = SimpleNamespace(contents_of=lambda _: (), forget=lambda _: None)
        pool.drop_blocks_min = u.drop_min
        self.asked: list[Any] = []
        """For how many blocks it was asked, with those that must stay what they are and wait pinned."""
        makes_room = pool.make_room

        def make_room(count: Any, kept: Any) -> bool:
            waiting = sum(each.count for each in kept if each in self.waits)
            self.asked.append(count + waiting)
            return bool(makes_room(count, kept))

        pool.make_room = make_room
        self.pool = pool
        self.all_waiting = u.waits

    def fill(self) -> None:
        """All else that waits pinned is none of the blocks that are known to."""
        known = sum(each.count for each in self.waits.members)
        _blocks(self.all_waiting - known, 0, pinned=True, queue=self.waits)

    @property
    def had(self) -> Any:
        """How many blocks can be had: they are free, or can be demoted."""
        return self.free.size + self.waits.size

    def _turn(self, count: Any) -> Iterator[int]:
        """All turns of a loop at once."""
        self.free.next = count
        return iter(range(1 if count > 0 else 0))

    @contextmanager
    def runs(self) -> Iterator[None]:
        """Tables are stretches, and so are the blocks that are passed to the pool."""
        with ExitStack() as stack:
            stack.enter_context(on_stretches())
            for module in (admission, block_pool, free_queue, pinned_tier):
                stack.enter_context(on_lengths(module))
            stack.enter_context(patch.object(block_pool, "range", self._turn, create=True))
            stack.enter_context(patch.object(pinned_tier, "tuple", Some, create=True))
            yield


def _queue(order: Order, kind: type[FreeQueue]) -> FreeQueue:
    queue = object.__new__(kind)
    queue._order = order  # type: ignore[assignment]  # it stands for one
    return queue


class Places(list[Any]):
    """The entries of a table, in stretches; those of some of them are what a hit at the last boundary reads."""

    anchor: tuple[Any, ...] = ()

    def __getitem__(self, which: Any) -> Any:
        if isinstance(which, slice) and which.stop is ANCHOR:
            return [each for each in self.anchor if each in self]
        return super().__getitem__(which)

    def __setitem__(self, place: Any, block: Any) -> None:
        super().__setitem__(place, Blocks(self[place].count, "null") if block == NULL else block)


ANCHOR = object()
"""Where the range ends that a hit at the last boundary in a drop reads."""


def named(tables: Any) -> Any:
    """How many blocks tables name."""
    return sum(each.count for table in tables for each in table.live())


# What is run, and what is known of it

KINDS = ("null", "shared", "scratch", "cached", "pinned")
"""Entries of a table: null blocks, blocks that another one names, too, and blocks that only this table names, which are
not cached, cached or pinned."""
PASSED = range(1, len(KINDS) + 2)
"""Where in a table those stand, by their stretches, that are released now: the last of them is an anchor."""
OF_POOL: dict[str, Unknown] = {
    **{name: Count() for name in ("free", "waits", "drop_min", "others", "others_need")},
    "tier": Count(0, 1),
}
"""A pool, and what all groups add that are not run."""
OF_TABLE: dict[str, Unknown] = {
    **{f"{which}_{name}": Count() for which in ("passed", "kept") for name in KINDS},
    **{name: Count() for name in ("anchor", "dead", "short", "over")},
}
"""Tables of any length: what was released of them, what is released now, and what is kept."""
TO_GROW: dict[str, Unknown] = {name: Count() for name in ("entries", "skipped")}
"""How many entries each is to have, and how many of the new ones are null blocks, as where states move."""
OF_NEED: dict[str, Unknown] = {"need": Count(), "copies": Count(0, 1)}
"""How many blocks a request is said to need in each group, and whether a copy may be read there."""
NONE, HELD, FREE, WAITS = range(4)
"""Whether a hit ends inside a block of a group, and where the source of the copy waits, if it does."""
OF_HIT: dict[str, Unknown] = {
    **{name: Count() for name in ("unread", "hit_held", "hit_free", "hit_waits")},
    "source": Count(NONE, WAITS),
}
"""A hit: in each group so many blocks of it are not read, are held by others, are free, and wait pinned."""


def of_groups(number: int, *unknowns: Mapping[str, Unknown]) -> dict[str, Unknown]:
    """What is not known of so many groups, each with its number, and what all others need."""
    return {f"{name}{at}": its for at in range(number) for each in unknowns for name, its in each.items()} | OF_POOL


def of_two(*unknowns: Mapping[str, Unknown]) -> dict[str, Unknown]:
    """The same of two groups, of which the second has nothing but a hit: it stands for the hits of all others."""
    own = {*OF_NEED, *(name for name in OF_HIT if name.startswith("hit"))}
    nothing = {f"{name}1": Count(0, 0) for each in unknowns for name in each if name not in own}
    return of_groups(2, *unknowns) | nothing


def _groups(u: Any) -> range:
    """The groups that are run."""
    return range(2 if hasattr(u, "need1") else 1)


def _sum_of(u: Any, at: int, *names: str) -> Any:
    return sum(getattr(u, f"{name}{at}") for name in names)


def _names(u: Any, at: int, which: str) -> Any:
    """How many blocks a table names where it is passed, or kept."""
    return _sum_of(u, at, *(f"{which}_{name}" for name in KINDS[1:])) + (
        getattr(u, f"anchor{at}") if which == "passed" else 0
    )


def _table(u: Any, at: int) -> Any:
    def stretches(which: str) -> list[Blocks]:
        null, shared, scratch, cached, pinned = (getattr(u, f"{which}_{name}{at}") for name in KINDS)
        held = [_blocks(shared, 2, cached=True), _blocks(scratch, 1), _blocks(cached, 1, cached=True)]
        return [Blocks(null, "null"), *held, _blocks(pinned, 1, pinned=True)]

    anchor, dead = _blocks(getattr(u, f"anchor{at}"), 1, cached=True), getattr(u, f"dead{at}")
    places = Places([Blocks(dead, "null"), *stretches("passed"), anchor, *stretches("kept")])
    places.anchor = (anchor,)
    return Table(places, 0, 0, dead, fresh=False)


def _tables(u: Any) -> dict[int, Any]:
    return {OWNER: [_table(u, at) for at in _groups(u)], OTHER: OTHERS_TABLES}


OTHERS_TABLES: Any = []
"""The tables of another request."""


def _is_passed(u: Any) -> Any:
    """What is passed is up to any place; if nothing is, that is before what was released."""
    fine: Any = True
    for at in _groups(u):
        passed = _names(u, at, "passed") + getattr(u, f"passed_null{at}")
        kept = _names(u, at, "kept") + getattr(u, f"kept_null{at}")
        short, over = getattr(u, f"short{at}"), getattr(u, f"over{at}")
        fine = fine & ((short == 0) | (passed == 0)) & ((over == 0) | (kept == 0)) & (short <= getattr(u, f"dead{at}"))
    return fine & implies(u.tier == 0, u.waits == 0)


def _group(u: Any, at: int) -> Any:
    """A group of which no more is known than how long its tables are to be, and what of them is read."""

    def times(name: str) -> Times:
        return Times(expression_of(getattr(u, name + str(at)) if hasattr(u, name + str(at)) else 0))

    def laid_out(blocks: Any, entries: Any, _fresh: bool) -> Any:
        *stretches, more = grown(blocks, entries).stretches
        if getattr(u, f"source{at}", NONE) > NONE:
            return Layout([*stretches, more])
        skipped = least(getattr(u, f"skipped{at}"), more.count)
        taken = [Stretch(more.count - skipped, "new")] if more.count - skipped > 0 else []
        return Layout([*stretches, Blocks(skipped, "null"), *taken])

    def dead(_tokens: Any) -> Any:
        if not hasattr(u, f"dead{at}"):
            return 0
        passed = _names(u, at, "passed") + getattr(u, f"passed_null{at}")
        return getattr(u, f"dead{at}") + passed + getattr(u, f"over{at}") - getattr(u, f"short{at}")

    return SimpleNamespace(
        at=at,
        blocks_unread=lambda _computed: times("unread"),
        blocks_dead=dead,
        blocks_occupied=lambda _tokens: times("provided"),
        entries=lambda _tokens, _slots: times("entries"),
        layout=laid_out,
        blocks_held_at_most=lambda _chunk, _longest: getattr(u, f"most{at}"),
        # Only what a hit divided by it is, is asked for.
        block_size_tokens=at,
    )


def _holdings(u: Any, pool: Pool, tables: dict[int, Any]) -> Any:
    groups = tuple(_group(u, at) for at in _groups(u))
    geometry = SimpleNamespace(groups=groups, anchor=lambda its, _end: (getattr(u, f"dead{its.at}"), ANCHOR))
    held = holdings_over(pool, geometry)
    held.settings.tokens_max = held.settings.chunk_tokens = 1
    held.tables, held.copies = tables, [OTHERS_COPY]
    return held


@contextmanager
def _on_places() -> Iterator[None]:
    """Meanwhile what is passed of a table are the stretches that stand for it."""
    with patch.object(holdings, "range", lambda first, end=None: range(first) if end is None else PASSED, create=True):
        yield


class HitEnds:
    """How many tokens a hit has: in each group of which a copy is read it ends after the stretches of the hit."""

    def __floordiv__(self, _block_size_tokens: Any) -> int:
        return 4


class HitBlocks:
    """The blocks of a hit in a group: those that are read."""

    def __init__(self, parts: list[Blocks]) -> None:
        self.parts = parts

    def __getitem__(self, _read: slice) -> list[Blocks]:
        return self.parts


def _hit(u: Any, pool: Pool) -> Hit:
    """A hit, of which some blocks are in the queues of the pool; the others there are none of it."""
    # Without a tier none waits: then what stands for those that do is empty.
    queues = {HELD: None, FREE: pool.free, WAITS: pool.waits if u.tier == 1 else pool.free}
    blocks: Any = []
    sources: dict[int, Any] = {}
    for at in _groups(u):
        held, free, waits = (getattr(u, f"hit_{name}{at}") for name in ("held", "free", "waits"))
        parts = [_blocks(held, 1, cached=True), _blocks(free, 0, cached=True, queue=pool.free)]
        blocks.append(HitBlocks([*parts, _blocks(waits, 0, pinned=True, queue=queues[WAITS])]))
        kind = getattr(u, f"source{at}").__index__()
        if kind != NONE:
            references = 1 if kind == HELD else 0
            sources[at] = _blocks(1, references, kind == WAITS, cached=True, queue=queues[kind])
    ends: Any = HitEnds()
    return Hit(ends, tuple(blocks), tuple(Partial(at, source, 1) for at, source in sources.items()))


def _is_hit(u: Any) -> Any:
    """Its blocks are in the queues, and without a tier nothing waits. Where a copy is read, the table grows."""
    free, waits = (
        sum(getattr(u, f"hit_{name}{at}") + either(getattr(u, f"source{at}") == kind, 1, 0) for at in _groups(u))
        for name, kind in (("free", FREE), ("waits", WAITS))
    )
    fine = (free <= u.free) & (waits <= u.waits) & implies(u.tier == 0, u.waits == 0)
    for at in _groups(u):
        fine = fine & ((getattr(u, f"source{at}") == NONE) | (getattr(u, f"copies{at}") == 1))
    return fine


def _said_to_need(u: Any) -> Any:
    """How many blocks a request is said to need, by the running formula: in each group, and in all others."""
    groups = tuple(
        SimpleNamespace(
            entries=lambda _tokens, _slots, at=at: getattr(u, f"need{at}"),
            blocks_held_at_most=lambda _span, _longest, at=at: getattr(u, f"need{at}"),
            copies=getattr(u, f"copies{at}"),
        )
        for at in _groups(u)
    )
    geometry = SimpleNamespace(groups=groups)
    settings: Any = SimpleNamespace(drafts_max=1, lookahead_tokens=1, tokens_max=1, chunk_tokens=1, geometry=geometry)
    with added_to_others(room, "blocks_to_run", u.others_need):
        return room.blocks_to_run(settings, 1)


def _are_counts(asked: SimpleNamespace) -> Any:
    """Each number is one: nothing is taken that was not there, and what is released cannot be had less than before."""
    fine: Any = True
    for number in vars(asked).values():
        fine = fine & (number >= 0)
    return fine


STAND_INS = "kvspec.progress.promised"


def promises_one_more(method: str) -> Mutant:
    """What stands for the holdings has one block more than there is."""
    does: Any = getattr(Promised, method)

    def does_with_one_more(self: Any, *arguments: Any) -> Any:
        self.free = self.free + 1
        return does(self, *arguments)

    name = method.replace("_", "-")
    return only(
        f"{name}-with-one-more", "A block more is promised.", f"{STAND_INS}:Promised.{method}", does_with_one_more
    )


def says_more(predicate: Callable[..., Any], by: Callable[..., Any]) -> Mutant:
    """More is assumed than is so."""
    name = predicate.__name__
    story = "More is assumed of the block manager than is so."
    return only(f"{name.replace('_', '-')}-says-more", story, f"{__name__}:{name}", by)


TIGHT = says_more(stays_within, lambda asked, needed: asked.left + asked.takes < needed)

# A request that has tables asks for more


def _new(u: Any, at: int, length: Any) -> Any:
    """How many blocks a table of that length takes."""
    more = more_than(getattr(u, f"entries{at}"), length)
    return more - least(getattr(u, f"skipped{at}"), more)


def _length(u: Any, at: int) -> Any:
    nulls = _sum_of(u, at, "dead", "passed_null", "kept_null")
    return nulls + _names(u, at, "passed") + _names(u, at, "kept")


def _grows(u: Any) -> Any:
    """The running allocation of a request that has tables, and the promised one."""
    pool = Pool(u)
    pool.fill()
    held = _holdings(u, pool, _tables(u))
    own, before = named(held.tables[OWNER]), pool.had
    released = list[Any]()
    release_passed = held.release_passed

    def releases(*arguments: Any) -> None:
        release_passed(*arguments)
        released.extend((named(held.tables[OWNER]), pool.had))

    held.release_passed = releases
    with pool.runs(), _on_places(), added_to_others(holdings, "blocks_new", u.others):
        allocation = held.allocate(OWNER, Span(1, 1), NO_HIT)
    left, had = released
    asked = SimpleNamespace(takes=pool.asked[0], gets=pool.asked[0], left=left, freed=had - before)
    promised = Promised({OWNER: own}, before, **vars(asked))
    fine = (promised.allocate(OWNER, Span(1, 1), NO_HIT) is None) == (allocation is None)
    # All other groups take what they add, as those do that are run.
    others = 0 if allocation is None else u.others
    fine = fine & (pool.had - others == promised.free) & (held.tables[OTHER] is OTHERS_TABLES)
    fine = fine & (named(held.tables[OWNER]) + others == held_by(promised, OWNER))
    enough: Any = u.others <= u.others_need
    for at in _groups(u):
        enough = enough & (_names(u, at, "kept") + _new(u, at, _length(u, at)) <= getattr(u, f"need{at}"))
    return (
        fine & releases_some(asked, own) & implies(enough, stays_within(asked, _said_to_need(u))) & _are_counts(asked)
    )


NO_HIT = Hit(0, ())
ALLOCATE: Any = Holdings.allocate
"""What it does, where nothing is broken."""


def _takes_one_more(self: Any, request: int, span: Any, hit: Any) -> Any:
    allocation = ALLOCATE(self, request, span, hit)
    if allocation is not None and self.pool.make_room(1, ()):
        self.pool.take(1)
    return allocation


TAKES_MORE = only(
    "takes-one-more", "A block more is taken than was asked for.", f"{HOLDINGS}.allocate", _takes_one_more
)
IN_VAIN = only(
    "reserves-in-vain",
    "An allocation is rejected that could be had.",
    "kvreference.holdings:blocks_to_have",
    lambda _groups, _span, _hit_tokens, taken: taken + 1,
)

GROWS = Obligation(
    id="scheduler-progress.promise-next-blocks",
    statements=("KV-LIVE-01", "KV-LIVE-02", "KV-LIVE-03", "KV-OP-04"),
    title="What the scheduler's proofs assume of a request that has tables and asks for more: it releases some blocks, "
    "however many are shared or pinned, and no fewer can be had then. It gets what it asks for if and only if that can "
    "be had; its tables name as many blocks more, and as many fewer can be had. If in no group that is more than it is "
    "said to need there, it is no more than it was said to need.",
    unknowns=of_groups(1, OF_TABLE, TO_GROW, OF_NEED),
    assumes=_is_passed,
    claim=_grows,
    witnesses={
        "pinned blocks are released and demoted": lambda u: (
            (u.tier == 1)
            & (u.passed_pinned0 == 2)
            & (u.passed_shared0 == 3)
            & (u.free == 1)
            & (u.waits == 1)
            & (u.entries0 == 30)
            & (u.skipped0 == 2)
            & (u.dead0 == 10)
            & (u.kept_scratch0 == 11)
            & (u.others == 0)
            & (u.anchor0 == 0)
            & (u.passed_null0 == 0)
            & (u.passed_cached0 == 0)
            & (u.passed_scratch0 == 0)
            & (u.kept_null0 == 0)
            & (u.kept_shared0 == 0)
            & (u.kept_cached0 == 0)
            & (u.kept_pinned0 == 0)
        ),
        "one is missing": lambda u: (u.entries0 == 5) & (u.free == 2) & (u.waits == 0) & (u.dead0 == 2) & _is_kept(u),
    },
    mutants=(
        promises_one_more("allocate"),
        TIGHT,
        says_more(releases_some, lambda asked, held: asked.left < held),
        TAKES_MORE,
        IN_VAIN,
        only(
            "keeps-what-is-passed",
            "What no later token reads is released of the pool, and stays in the tables.",
            f"{HOLDINGS}._leave",
            lambda self, table, places, anchor, last: self.pool.slide([table.blocks[place] for place in places], []),
        ),
    ),
)


def _is_kept(u: Any) -> Any:
    fine: Any = (u.anchor0 == 0) & (u.others == 0)
    for name in KINDS:
        fine = fine & (getattr(u, f"passed_{name}0") == 0) & (getattr(u, f"kept_{name}0") == 0)
    return fine


# A request that has none is admitted


def _new_after_hit(u: Any, at: int) -> Any:
    """How many blocks the table of a hit takes, for what another node provides and for the rest."""
    start = getattr(u, f"unread{at}") + _of_hit(u, at)
    between = start + (more_than(getattr(u, f"provided{at}"), start) if u.loads == 1 else 0)
    more = more_than(getattr(u, f"entries{at}"), between)
    skipped = 0 if getattr(u, f"source{at}") > 0 else least(getattr(u, f"skipped{at}"), more)
    return between - start + more - skipped


def _of_hit(u: Any, at: int) -> Any:
    return _sum_of(u, at, "hit_held", "hit_free", "hit_waits")


def _admits(u: Any) -> Any:
    """The running allocation of a request without tables, and the promised one."""
    pool = Pool(u)
    hit = _hit(u, pool)
    pool.fill()
    held = _holdings(u, pool, {OTHER: OTHERS_TABLES})
    before, span = pool.had, Span(1, 1, provided=1 if u.loads == 1 else 0)
    with pool.runs(), _on_places(), added_to_others(holdings, "blocks_new", u.others):
        allocation = held.allocate(OWNER, span, hit)
    gets = sum((_of_hit(u, at) + _new_after_hit(u, at) for at in _groups(u)), u.others)
    asked = SimpleNamespace(takes=pool.asked[0], gets=gets, left=0)
    promised = Promised({}, before, **vars(asked))
    fine = (promised.allocate(OWNER, span, hit) is None) == (allocation is None)
    others = 0 if allocation is None else u.others
    fine = fine & (pool.had - others == promised.free) & (held.tables[OTHER] is OTHERS_TABLES)
    fine = fine & ((OWNER in held.tables) == (OWNER in promised.tables))
    if OWNER in held.tables:
        fine = fine & (named(held.tables[OWNER]) + others == held_by(promised, OWNER))
        for at, table in enumerate(held.tables[OWNER]):
            # What is not read is not named.
            first = table.blocks[0]
            fine = fine & (first.what == "null") & (first.count == getattr(u, f"unread{at}"))
    enough: Any = u.others <= u.others_need
    for at in _groups(u):
        enough = enough & (_of_hit(u, at) + _new_after_hit(u, at) <= getattr(u, f"need{at}"))
    return fine & implies(enough, stays_within(asked, _said_to_need(u))) & _are_counts(asked)


def _asks_for_first(u: Any) -> Any:
    fine = _is_hit(u)
    for at in _groups(u):
        start = getattr(u, f"unread{at}") + _of_hit(u, at)
        grows = (getattr(u, f"entries{at}") > start) | ((u.loads == 1) & (getattr(u, f"provided{at}") > start))
        fine = fine & ((getattr(u, f"source{at}") == NONE) | grows)
        fine = fine & ((u.loads == 1) | (getattr(u, f"provided{at}") == 0))
    return fine


ADMITS = Obligation(
    id="scheduler-progress.promise-first-blocks",
    statements=("KV-LIVE-01", "KV-LIVE-02", "KV-LIVE-03", "KV-OP-04", "KV-OP-23"),
    title="What they assume of a request that has no tables and asks for blocks: it gets them if and only if all that "
    "it takes can be had, the blocks of its hit and the sources of its copies included that no request holds, also "
    "where they wait pinned. Then as many fewer can be had, and its tables name those that it takes but for the "
    "sources, those of its hit that others hold, and none that is not read. If in no group that is more than it is "
    "said to need there, it is no more than it was said to need.",
    unknowns=of_two(OF_HIT, TO_GROW, OF_NEED, {"provided": Count()}) | {"loads": Count(0, 1)},
    assumes=_asks_for_first,
    claim=_admits,
    witnesses={
        "a hit in both queues, and others hold some of it": lambda u: (
            (u.tier == 1)
            & (u.hit_held0 == 3)
            & (u.hit_free0 == 2)
            & (u.hit_waits0 == 2)
            & (u.source0 == WAITS)
            & (u.free == 3)
            & (u.waits == 9)
            & (u.entries0 == 12)
            & (u.unread0 == 1)
            & (u.others == 1)
            & (u.loads == 0)
        ),
        "what is loaded takes the last": lambda u: (
            (u.loads == 1) & (u.provided0 == 9) & (u.entries0 == 0) & (u.free == 9) & (u.waits == 0) & _hits_nothing(u)
        ),
    },
    mutants=(
        promises_one_more("allocate"),
        TIGHT,
        TAKES_MORE,
        IN_VAIN,
        only(
            "unread-is-held",
            "Of a hit the blocks are held, too, that no later token reads.",
            "kvreference.holdings:tables_of_hit",
            lambda geometry, hit, _computed: [Table([*blocks.parts], 0, 0) for blocks in hit.blocks],
        ),
        only(
            "pinned-hit-is-not-kept",
            "What a request hits may be demoted for it.",
            f"{PINNED}.make_room",
            lambda self, count, kept: MAKES_ROOM(self, count, ()),
        ),
    ),
)


def _hits_nothing(u: Any) -> Any:
    fine: Any = (u.source0 == NONE) & (u.unread0 == 0) & (u.others == 0)
    return fine & (_of_hit(u, 0) == 0)


MAKES_ROOM: Any = PinnedPool.make_room


# What its tables name in one group


def _as_stretches(its: Any, taken: Callable[[Any, Any], Any]) -> Any:
    """A group of one kind, where it says how many entries there are; of states at block ends so many are ``taken``."""

    def times(count: Any) -> Times:
        return Times(expression_of(count))

    def laid_out(blocks: Any, entries: Any, fresh: bool) -> Any:
        if not its.attention.stops_at_block_ends:
            return its.layout(blocks, entries, fresh)
        *stretches, more = grown(blocks, entries).stretches
        new = taken(sum(each.count for each in stretches), Term(expression_of(entries)))
        return Layout([*stretches, Blocks(more.count - new, "null"), *([Stretch(new, "new")] if new > 0 else [])])

    return SimpleNamespace(
        blocks_unread=lambda tokens: times(its.blocks_unread(tokens)),
        blocks_dead=its.blocks_dead,
        blocks_occupied=lambda tokens: times(its.blocks_occupied(tokens)),
        entries=lambda tokens, slots: times(its.entries(tokens, slots)),
        layout=laid_out,
        block_size_tokens=its.block_size_tokens,
    )


def _allocated(u: Any, its: Any, tables: dict[int, Any], span: Span, hit: Hit) -> tuple[Any, Any]:
    """The tables after an allocation in one group, if it is granted, and for how many blocks it asked."""
    pool = Pool(SimpleNamespace(free=u.free, waits=0, tier=0, drop_min=0))
    geometry: Any = SimpleNamespace(groups=(its,), anchor=lambda _its, _end: (getattr(u, "dead", 0), ANCHOR))
    held = holdings_over(pool, geometry)
    held.settings.tokens_max, held.tables = u.tokens_max, tables
    with ExitStack() as stack:
        for each in (counted(), pool.runs()):
            stack.enter_context(each)
        for module, name, by in ((mamba, "grown", grown), (holdings, "range", _one_stretch), (holdings, "min", least)):
            stack.enter_context(patch.object(module, name, by, create=True))
        granted = held.allocate(OWNER, span, hit)
    return (None if granted is None else held.tables[OWNER]), pool.asked[0]


def _one_stretch(first: Any, end: Any = None) -> range:
    return range(first) if end is None else range(1, 2)


def _names_first(u: Any) -> Any:
    """The first allocation of a request in one group of any kind: its tables name what ``needed-is-enough…`` counts."""
    its = group_of(u)
    with counted():
        unread, read = its.blocks_unread(u.computed), u.hit // its.block_size_tokens
    of_hit = more_than(read, unread)

    def taken(loaded: Any, entries: Any) -> Any:
        with on_states(), patch.object(mamba, "grown", GROWN):
            return states_taken(its, loaded, entries)

    blocks: Any = HitBlocks([_blocks(of_hit, 1, cached=True)])
    hit = Hit(u.hit, (blocks,))
    lookahead = u.drafts_max if u.lookahead == 1 else 0
    span = Span(u.computed, u.chunk_tokens, lookahead, provided=u.end if u.hit < u.end else 0)
    tables, asked = _allocated(u, _as_stretches(its, taken), {}, span, hit)
    names = first_states(u) if its.attention.stops_at_block_ends else first_blocks(u)
    return (of_hit + asked == names) & (tables is None or named(tables) == names)


IN_A_GROUP: dict[str, Unknown] = {**FIRST_ALLOCATION, "free": Count()}

NAMES_FIRST = Obligation(
    id="scheduler-progress.promise-first-blocks-in-a-group",
    statements=("KV-LIVE-01", "KV-LIVE-02", "KV-OP-04"),
    title="In one group, of whichever attention kind, the first allocation of a request takes and names as many blocks "
    "together as are compared with what it was said to need.",
    unknowns=IN_A_GROUP,
    assumes=lambda u: is_admitted(u) & ((u.kind < len(KINDS_OF_NEED) - 1) | (u.end < u.tokens)),
    claim=_names_first,
    witnesses={
        "a window, after a load": lambda u: (
            (u.kind == 1) & (u.block == 4) & (u.window == 8) & (u.hit == 8) & (u.end == 40) & (u.free == 20)
        ),
        "states at block ends": lambda u: (
            (u.kind == 4) & (u.block == 8) & (u.hit == 16) & (u.tokens == 80) & (u.free == 9)
        ),
    },
    mutants=(
        only(
            "hit-is-held-whole",
            "Of a hit the blocks are named, too, that no later token reads.",
            "kvreference.holdings:tables_of_hit",
            lambda geometry, hit, computed: FIRST_TABLES(geometry, hit, 0),
        ),
        only(
            "load-takes-one-more",
            "For a load one more block is taken.",
            "kvreference.holdings:plan_provided",
            lambda geometry, tables, provided: PLAN_PROVIDED(
                geometry, tables, provided + geometry.groups[0].block_size_tokens
            ),
        ),
    ),
)
FIRST_TABLES: Any = block_tables.tables_of_hit
PLAN_PROVIDED: Any = block_tables.plan_provided


def _names_next(u: Any, its: Any, taken: Callable[[Any, Any], Any], span: Span, at_most: Any) -> Any:
    """A later allocation in one group: if the table grows, with what it takes it names so many ``at_most``; else no
    more than before.
    """
    dead = its.blocks_dead(span.computed)
    passed = more_than(least(dead, u.length), u.dead)
    left = u.length - u.dead - passed
    places = Places([Blocks(u.dead, "null"), _blocks(passed, 1), _blocks(left, 1)])
    table: Any = Table(places, 0, 0, u.dead, fresh=False)
    tables, asked = _allocated(u, _as_stretches(its, taken), {OWNER: [table]}, span, NO_HIT)
    entries = its.entries(
        span.computed + span.tokens, least(span.computed + span.tokens + span.lookahead, u.tokens_max)
    )
    names, had = left + asked, u.length - u.dead
    is_named = tables is None or named(tables) == names
    return is_named & implies(entries > u.length, names <= at_most) & implies(entries <= u.length, names <= had)


def _names_later(u: Any) -> Any:
    lookahead = u.drafts_max if u.lookahead == 1 else 0
    with counted():
        return _names_next(u, group_of(u), least, Span(u.computed, u.tokens, lookahead), held(u))


LATER: dict[str, Unknown] = {**{name: Count() for name in ("free", "length", "dead")}, "tokens_max": Count(2)}
"""A table of any length, of which so much was released."""

NAMES_LATER = Obligation(
    id="scheduler-progress.promise-next-blocks-in-a-group",
    statements=("KV-LIVE-01", "KV-LIVE-02", "KV-OP-04", "KV-OP-06"),
    title="In one group of any attention kind, when its table grows, a request names no more blocks than are compared "
    "with what it was said to need; when it does not grow, no more than before. States that are kept at block ends "
    "only have a proof of their own.",
    unknowns={
        **SIZES,
        **LATER,
        **{"kind": Count(0, len(KINDS_OF_NEED) - 2), "computed": Count(0), "tokens": Count(0)},
    },
    assumes=lambda u: (u.dead <= u.length) & (u.length >= group_of(u).blocks_occupied(u.computed)),
    claim=_names_later,
    witnesses={
        "a window leaves, and it grows": lambda u: (
            (u.kind == 1)
            & (u.block == 4)
            & (u.window == 8)
            & (u.computed == 40)
            & (u.tokens == 4)
            & (u.length == 10)
            & (u.dead == 2)
            & (u.free == 3)
            & (u.tokens_max == 99)
        )
    },
    mutants=(RELEASES_NOTHING,),
)


def _states_taken_later(u: Any) -> Callable[[Any, Any], Any]:
    """How many states are taken for a table that grows, by the running layout."""

    def taken(length: Any, entries: Any) -> Any:
        with ExitStack() as stack:
            for module in (mamba, attention):
                stack.enter_context(patch.object(module, "len", lambda of: times(Parts(of).length), create=True))
            stack.enter_context(patch.object(mamba, "grown", GROWN))
            cut, to_have = Cut(length), times(entries)
            became: Any = AlignedMamba(u.drafts).layout(cut, to_have, False)  # type: ignore[arg-type]  # of any length
        return sum(part.count for part in became if isinstance(part, Repeated) and part.value is None)

    return taken


def _names_states(u: Any) -> Any:
    its, computed = aligned_of(u), u.end - u.rejected
    span = Span(computed, next_step(u))
    return _names_next(u, its, _states_taken_later(u), span, held_when_it_grows(u) + 1)


NAMES_STATES = Obligation(
    id="scheduler-progress.promise-next-states-in-a-group",
    statements=("KV-LIVE-01", "KV-LIVE-02", "KV-OP-04", "KV-OP-26"),
    title="The same where states are kept at block ends only: when its table grows, a request names no more of them "
    "than are compared with what it was said to need, and else no more than before.",
    unknowns={**ALIGNED.unknowns, **LATER},
    assumes=lambda u: grows(u) & (u.length == aligned_of(u).entries(u.end, 0)) & (u.dead <= u.length),
    claim=_names_states,
    lemmas=ALIGNED.lemmas,
    witnesses={
        "drafts were rejected": lambda u: (
            (u.rejected == 1)
            & (u.block == 8)
            & (u.drafts == 2)
            & (u.proposed == 2)
            & (u.decodes == 1)
            & (u.end == 24)
            & (u.free == 2)
            & (u.dead == 1)
        )
    },
    mutants=(RELEASES_NOTHING,),
)


# The gate


def _passes(u: Any) -> Any:
    """The running gate and the promised one, for a request that has tables, or for one with a hit."""
    pool = Pool(u)
    knows = bool(u.knows == 1)
    hit = NO_HIT if knows else _hit(u, pool)
    pool.fill()
    held = _holdings(u, pool, _tables(u) if knows else {OTHER: OTHERS_TABLES})
    own, before = (named(held.tables[OWNER]) if knows else 0), pool.had
    places = PASSED if u.stays == 1 else range(0)
    with (
        pool.runs(),
        patch.object(holdings, "range", lambda _first, _end: places, create=True),
        added_to_others(admission, "blocks_to_come", u.others),
    ):
        passes = held.passes_gate(OWNER, 1, hit, 1)
    asked = SimpleNamespace(gate=pool.asked[0])
    promised = Promised({OWNER: own}, before, gate=asked.gate)
    fine = (promised.passes_gate() == passes) & (pool.had == before) & (held.copies == [OTHERS_COPY])
    enough, asks = u.others_own + u.others <= u.others_need, u.others
    for at in _groups(u):
        peak = least(getattr(u, f"entries{at}") - getattr(u, f"unread{at}"), getattr(u, f"most{at}"))
        has = _names(u, at, "passed") + _names(u, at, "kept") if knows else _of_hit(u, at)
        enough = enough & (peak <= getattr(u, f"need{at}")) & (has <= getattr(u, f"need{at}"))
        # A request that asks for admission names nothing that is not read: see ``promise-first-blocks``.
        enough = enough & implies(knows & (u.stays == 1), _names(u, at, "passed") == 0)
        stays = _names(u, at, "passed") if knows and u.stays == 1 else 0
        asks = asks + more_than(peak, has - stays) + (0 if knows else _unheld(u, at))
    within = passes_within(asked, own + (u.others_own if knows else 0), _said_to_need(u))
    return fine & (asked.gate == asks) & implies(enough, within) & _are_counts(asked)


def _unheld(u: Any, at: int) -> Any:
    """How many blocks of the hit, and sources of copies, no request holds."""
    return _sum_of(u, at, "hit_free", "hit_waits") + either(getattr(u, f"source{at}") >= FREE, 1, 0)


PASSES = Obligation(
    id="scheduler-progress.promise-gate",
    statements=("KV-LIVE-01", "KV-LIVE-02", "KV-LIVE-03", "KV-OP-03"),
    title="What they assume of the gate: a request passes it if and only if what it asks for can be had, the blocks "
    "of its hit and the sources of its copies included that no request holds. As many can be had as before. If in no "
    "group it holds or asks for more than it is said to need there, that is no more than it was said to need.",
    unknowns={
        **of_two(OF_HIT, OF_TABLE, OF_NEED, {"entries": Count(), "most": Count()}),
        **{name: Count(0, 1) for name in ("knows", "stays")},
        "others_own": Count(),
    },
    assumes=lambda u: _is_hit(u) & _is_passed(u),
    claim=_passes,
    witnesses={
        "it is back from a load": lambda u: (
            (u.knows == 1) & (u.kept_scratch0 == 4) & (u.entries0 == 6) & (u.most0 == 8) & (u.free == 1)
        ),
        "its hit is all that is left": lambda u: (
            (u.knows == 0)
            & (u.tier == 1)
            & (u.hit_waits0 == 5)
            & (u.hit_held0 == 2)
            & (u.waits == 5)
            & (u.free == 1)
            & (u.entries0 == 9)
            & (u.unread0 == 1)
            & (u.others == 0)
        ),
    },
    mutants=(
        promises_one_more("passes_gate"),
        says_more(passes_within, lambda asked, held, needed: held + asked.gate < needed),
        only(
            "hit-takes-nothing",
            "The free blocks of the hit are not counted.",
            f"{POOL}.count_free",
            lambda self, blocks: 0,
        ),
        only(
            "gate-demotes-for-good",
            "For a request that asks, a block is taken.",
            f"{HOLDINGS}.passes_gate",
            lambda self, *arguments: PASSES_GATE(self, *arguments) and bool(self.pool.take(1)),
        ),
        only(
            "tables-are-forgotten",
            "What a request has is asked for once more.",
            f"{HOLDINGS}._without_held",
            lambda self, its, table, computed: [],
        ),
    ),
)
PASSES_GATE: Any = Holdings.passes_gate


# What is released


def _releases(u: Any) -> Any:
    """The running releases and the promised ones, of a request that has tables, or of one that has none."""
    pool, knows = Pool(u), bool(u.knows == 1)
    pool.fill()
    held = _holdings(u, pool, _tables(u) if knows else {OTHER: OTHERS_TABLES})
    own, before = (named(held.tables[OWNER]) if knows else 0), pool.had
    with pool.runs(), _on_places():
        if u.all == 1:
            held.release_all(OWNER)
        else:
            held.release_passed(OWNER, 1, 0)
    more = pool.had - before
    left = named(held.tables[OWNER]) if OWNER in held.tables else 0
    asked = SimpleNamespace(left=left, freed=more, ended=more)
    promised = Promised({OWNER: own} if knows else {}, before, **vars(asked))
    if u.all == 1:
        promised.release_all(OWNER)
    else:
        promised.release_passed(OWNER, 1, 0)
    fine = (pool.had == promised.free) & ((OWNER in held.tables) == (OWNER in promised.tables))
    fine = fine & (left == held_by(promised, OWNER)) & (held.tables[OTHER] is OTHERS_TABLES)
    return fine & releases_some(asked, own) & _are_counts(asked)


RELEASES = Obligation(
    id="scheduler-progress.promise-releases",
    statements=("KV-LIVE-01", "KV-LIVE-02", "KV-LIVE-03", "KV-OP-06", "KV-OP-07"),
    title="What they assume of releases: a request that releases what it does not read any more names no more blocks "
    "than before, and one that frees all that it holds has no tables. No fewer blocks can be had then, and the tables "
    "of others stay. Of a request that has no tables nothing is released.",
    unknowns=of_groups(1, OF_TABLE, OF_NEED) | {name: Count(0, 1) for name in ("knows", "all", "scratch_first")},
    assumes=_is_passed,
    claim=_releases,
    witnesses={
        "some are shared, and some wait then": lambda u: (
            (u.knows == 1)
            & (u.all == 1)
            & (u.tier == 1)
            & (u.kept_cached0 == 2)
            & (u.kept_shared0 == 3)
            & (u.kept_scratch0 == 4)
        ),
        "a window leaves": lambda u: (u.knows == 1) & (u.all == 0) & (u.passed_scratch0 == 2) & (u.anchor0 == 1),
    },
    mutants=(
        promises_one_more("release_passed"),
        promises_one_more("release_all"),
        only(
            "tables-stay",
            "The tables name blocks that were freed.",
            f"{HOLDINGS}.release_all",
            lambda self, request: self.free(self.tables.get(request, [])),
        ),
        only(
            "others-end-too",
            "With a request all others lose their tables.",
            f"{HOLDINGS}.release_all",
            lambda self, request: self.tables.update({number: [] for number in [*self.tables]}),
        ),
        only(
            "window-takes-blocks",
            "A window moves on, and a block is taken.",
            f"{HOLDINGS}.release_dead",
            lambda self, request, computed: self.pool.make_room(1, ()) and self.pool.take(1),
        ),
    ),
)


def _dispatches(u: Any) -> Any:
    pool = Pool(u)
    pool.fill()
    held = _holdings(u, pool, {OTHER: OTHERS_TABLES})
    sources: list[Any] = [_blocks(u.shared, 2, cached=True), _blocks(u.cached, 1, cached=True), _blocks(u.scratch, 1)]
    sources.append(_blocks(u.pinned, 1, pinned=True))
    held.copies = [Copy(0, source, 6, 1) for source in sources]
    before, copies = pool.had, [*held.copies]
    with pool.runs():
        dispatched = held.dispatch()
    promised = Promised({}, before, copied=pool.had - before)
    promised.dispatch()
    fine = (pool.had == promised.free) & (held.tables == {OTHER: OTHERS_TABLES}) & (held.copies == [])
    return fine & _are_counts(promised.asked) & (list(dispatched) == copies)


DISPATCHES = Obligation(
    id="scheduler-progress.promise-dispatch",
    statements=("KV-LIVE-01", "KV-LIVE-02", "KV-LIVE-03", "KV-OP-19"),
    title="What they assume of a step that is dispatched: no table changes, no fewer blocks can be had, and no copy is "
    "pending any more, however many were.",
    unknowns={
        **OF_POOL,
        **{name: Count() for name in ("shared", "cached", "scratch", "pinned")},
        "scratch_first": Count(0, 1),
    },
    assumes=lambda u: implies(u.tier == 0, u.waits == 0),
    claim=_dispatches,
    witnesses={
        "a pinned source waits again": lambda u: (u.tier == 1) & (u.pinned == 1) & (u.shared == 2) & (u.free == 0)
    },
    mutants=(
        promises_one_more("dispatch"),
        only(
            "copies-stay",
            "The copies are pending for the next step, too.",
            f"{HOLDINGS}.dispatch",
            lambda self: tuple(self.copies),
        ),
        only(
            "dispatch-takes-blocks",
            "A copy takes its source out of the queues.",
            f"{POOL}.release",
            lambda self, blocks: self.make_room(1, ()) and self.take(1),
        ),
    ),
)
# What no table names can be had


def _adds_up(u: Any) -> Any:
    """The parts of an induction over the blocks, and over the entries of tables; and what they show together.

    Of the blocks before one, so many are held, and so often are they named and read: with this one it stays so. When an
    entry names a block, all blocks of the pool together are named once more. So what is held is named or read.
    """
    state, block = before(u), u.any_block
    held = u.held_before + either(state.where[block] == STATE_HELD, 1, 0)
    holders = u.holders_before + state.named.count(block) + state.reads.count(block)
    each = implies((block != NULL) & (u.held_before <= u.holders_before), held <= holders)
    new: Any = key(u.new)
    table = Table([new], 0, 0)
    gains = len(table.live())
    put = state.named.put(u.at_entry, u.new)
    more = u.more_before + put.count(block) - state.named.count(block)
    # Of the null block and of the blocks before this one it was said before.
    said = u.more_before == either((u.new >= 1) & (u.new < block), 1, 0)
    named_once = implies((block != NULL) & said, more == either((u.new >= 1) & (u.new <= block), 1, 0))
    of_all = either((u.new >= 1) & (u.new < u.blocks), 1, 0) == gains
    can_be_had = state.where.count(STATE_FREE) + state.where.count(WAITING)
    is_held = (u.read == 0) & (state.where.count(STATE_HELD) <= u.names + u.read)
    together = implies(is_held, adds_up(u.blocks - 1, can_be_had, u.names))
    return each & named_once & of_all & together


ADDS_UP = Obligation(
    id="scheduler-progress.promise-what-is-not-named-can-be-had",
    statements=("KV-LIVE-01", "KV-LIVE-02", "KV-LIVE-03"),
    title="What they assume of every state: what no table names can be had. With as many blocks as tables name, by the "
    "count of the reference, that is all usable blocks at least. For each block that is held is named by a table or "
    "read by a copy, and no copy is pending between steps.",
    unknowns={
        **ANY_STATE,
        **{f"at_{name}": Count() for name in ("block", "entry", "other", "copy", "content", "use")},
        **{name: Count() for name in ("held_before", "holders_before", "more_before", "names", "read", "new")},
    },
    assumes=lambda u: is_sound(u) & (u.named[u.at_entry] == NULL) & (u.new < u.blocks) & (u.any_block < u.blocks),
    claim=_adds_up,
    witnesses={
        "a block that is shared": lambda u: (
            (u.named.count(u.any_block) == 2) & (u.where[u.any_block] == STATE_HELD) & (u.any_block == u.new)
        ),
        "all that can be had is just enough": lambda u: (
            (u.where.count(STATE_HELD) == 2) & (u.names == 2) & (u.read == 0) & (u.where.count(STATE_FREE) == 3)
        ),
    },
    mutants=(
        says_more(adds_up, lambda usable, free, *held: free + sum(held) > usable),
        only(
            "null-counts-as-held",
            "A table counts the null block among those that it names.",
            "kvreference.tables:Table.live",
            lambda self: [*self.blocks],
        ),
        only(
            "held-is-not-counted",
            "What waits pinned counts as held, and not as what can be had.",
            "kvspec.proofs.scheduler_promises:WAITING",
            STATE_HELD + 90,
        ),
    ),
)


# The cache


class Found:
    """What is cached of a request in a group: whether it can resume at a length other than 0 is not known."""

    def __init__(self, geometry: Any, index: int, *_others: Any) -> None:
        self.group = geometry.groups[index]

    def satisfies(self, hit_tokens: Any, _tokens: Any) -> bool:
        """Whether it can."""
        return bool((hit_tokens == 0) | (self.group.satisfied == 1))

    def table(self, _hit_tokens: Any) -> tuple[int, ...]:
        """Which blocks serve it is not asked."""
        return ()

    def partial(self, _hit_tokens: Any) -> None:
        """Nor which is copied."""


def _looks_up(u: Any) -> Any:
    """The running look-up: of the lengths that are tried, the longest, any other and the last."""
    groups = tuple(SimpleNamespace(satisfied=each, ends_inside=lambda _: False) for each in (u.first, u.second))
    cache = cache_over(SimpleNamespace(groups=groups, alignment_tokens=u.alignment))
    cache.junction_of = no_junction

    def lengths(first: Any, end: Any = None, step: Any = None) -> Any:
        if end is None:
            return range(first)
        assert (end, step) == (-1, -u.alignment) if isinstance(u.alignment, int) else end == -1, "down to 0"
        return [first, least(first, u.another), 0]

    cache = cache if u.caches == 1 else NoPrefixCache(cache.geometry)
    request: Any = SimpleNamespace(tokens=Tokens(u.tokens), reads_cache=bool(u.reads == 1), preemptions=0)
    pool: Any = SimpleNamespace(cached=None, partial=None)
    with (
        on_lengths(prefix_cache),
        patch.object(hit_lookup, "range", lengths, create=True),
        patch.object(hit_lookup, "_Found", Found),
    ):
        hit = cache.look_up(pool, request, [])
    same = AnyHit(hit.tokens, 1).look_up().tokens == hit.tokens
    return leaves_a_token(hit.tokens, u.tokens) & (hit.tokens >= 0) & same


LOOKS_UP = Obligation(
    id="scheduler-progress.promise-hit",
    statements=("KV-LIVE-01", "KV-LIVE-03", "KV-OP-01"),
    title="What they assume of a look-up: whatever is cached, a hit is shorter than its request, so that a token is "
    "left to compute.",
    unknowns={
        **{name: Count(1) for name in ("tokens", "alignment")},
        **{name: Count(0, 1) for name in ("first", "second", "reads", "caches")},
        "another": Count(),
    },
    claim=_looks_up,
    witnesses={
        "all that can be hit is hit": lambda u: (
            (u.tokens == 9) & (u.alignment == 4) & (u.first == 1) & (u.second == 1) & (u.reads == 1) & (u.caches == 1)
        )
    },
    mutants=(
        says_more(leaves_a_token, lambda hit, tokens: hit + 1 < tokens),
        only(
            "hit-is-longer",
            "A longer hit is promised.",
            f"{STAND_INS}:AnyHit.look_up",
            lambda self: Hit(self.tokens + 1, ()),
        ),
        only(
            "the-last-token-is-hit",
            "A hit may be as long as its request.",
            f"{CACHE}.look_up",
            lambda self, pool, request, prefixes: Hit(request.tokens.length, ()),
        ),
    ),
)


class AnyContent:
    """The prefixes of a request, which may be any."""

    def __getitem__(self, _place: Any) -> object:
        return object()


def _serves(u: Any) -> Any:
    """Once a step is dispatched, any hit of two groups is ready, whatever the step computed."""
    states, copied = (bool(getattr(u, name) == 1) for name in ("states", "copied"))
    groups = tuple(SimpleNamespace(keeps_states=each, tokens_matched=lambda hit: hit) for each in (states, False))
    cache = cache_over(SimpleNamespace(groups=groups, grain_tokens=u.grain))
    prefixes: Any = AnyContent()
    content = object()
    cache.fenced = {(0, content)}
    hit = Hit(u.hit, (), (Partial(1, 7, 1),) if copied else ())
    promised = AnyHit(u.hit, 0)
    cache.dispatched()
    promised.dispatched()
    cache = cache if u.caches == 1 else NoPrefixCache(cache.geometry)
    with patch.object(prefix_cache, "content_up_to", lambda _geometry, index, _prefixes, _end: (index, content)):
        ready = cache.is_ready(hit, prefixes)
    return (ready == promised.is_ready()) & serves_at_once(1 if ready else 0)


SERVES = Obligation(
    id="scheduler-progress.promise-hit-is-ready",
    statements=("KV-LIVE-01", "KV-LIVE-03", "KV-OP-20"),
    title="What they assume of a hit: it is ready for the first request that asks after a step was dispatched, also if "
    "it reads what that step computed.",
    unknowns={**{name: Count(0, 1) for name in ("states", "copied", "caches")}, "hit": Count(), "grain": Count(1)},
    claim=_serves,
    witnesses={"a state, and a copy": lambda u: (u.states == 1) & (u.copied == 1) & (u.hit >= 8) & (u.caches == 1)},
    mutants=(
        says_more(serves_at_once, lambda ready: ready > 1),
        only("hit-is-never-ready", "A hit is never ready.", f"{STAND_INS}:AnyHit.is_ready", lambda self: False),
        only(
            "dispatch-serves-nothing",
            "After a step a hit is not ready.",
            f"{STAND_INS}:AnyHit.dispatched",
            lambda self: None,
        ),
        only(
            "never-ready-again",
            "A content that was computed once never serves by a state.",
            f"{CACHE}.dispatched",
            lambda self: None,
        ),
        only(
            "states-never-serve",
            "No hit is ready that reads a state.",
            f"{CACHE}.is_ready",
            lambda self, hit, prefixes: not self.geometry.groups[0].keeps_states,
        ),
    ),
)


class OneBlock:
    """The entries of a table: each is the same block, which the request holds."""

    def __init__(self, block: Blocks) -> None:
        self.block = block

    def __getitem__(self, _place: Any) -> Blocks:
        return self.block


def _caches(u: Any) -> Any:
    """One block that is due becomes cached, and one of which the beginning is; the counts stay what they are."""
    pool = Pool(u)
    pool.fill()
    block = _blocks(1, 2 if u.held_twice == 1 else 1, pinned=bool(u.is_pinned == 1))
    pool.pool.cached.register = pool.pool.partial.register = lambda _content, _block: None
    pool.pool.cached.content_of = lambda _block: None
    its = group(Kind.FULL, u.size, unit_tokens=1)
    entries: Any = OneBlock(block)
    table, was = Table(entries, u.place, 0), {**vars(block.its)}
    kept: Any = SimpleNamespace(due_tokens=lambda *_: 0, boundaries=lambda *_: (u.boundary,))
    before_had, tokens = pool.had, (u.place + 1) * u.size
    unknowns = SimpleNamespace(group=0, groups=1, grain=1, known=tokens)
    with pool.runs(), turns_at(caching, [u.place]):
        _, reported = registered_in_a_step(unknowns, its, kept, table, pool.pool, tokens, tokens, 0)
    same = table.blocks is entries and vars(block.its) == was and AnyHit(0, 1).register() == []
    nothing = NoPrefixCache(None).register(None, None, [], [], tokens, 0)  # type: ignore[arg-type]  # nothing is read
    return (nothing == []) & (pool.had == before_had) & (same and len(reported) == 1)


CACHES = Obligation(
    id="scheduler-progress.promise-caching",
    statements=("KV-LIVE-01", "KV-LIVE-02", "KV-LIVE-03", "KV-OP-08"),
    title="What they assume of caching: when blocks of a request become cached, or their beginnings, its tables name "
    "the same blocks, each has as many holders, and as many can be had.",
    unknowns={
        **OF_POOL,
        **{name: Count(0, 1) for name in ("held_twice", "is_pinned")},
        **{name: Count() for name in ("place", "boundary")},
        "size": Count(2),
    },
    assumes=lambda u: implies(u.tier == 0, u.waits == 0),
    claim=_caches,
    witnesses={"a boundary inside a block": lambda u: (u.size == 4) & (u.place == 3) & (u.boundary == 14)},
    mutants=(
        only("caching-is-reported", "Something is reported.", f"{STAND_INS}:AnyHit.register", lambda self: [0]),
        only(
            "cached-is-held",
            "What is cached is held once more.",
            f"{POOL}.register",
            lambda self, content, block: self.references.__setitem__(block, 9),
        ),
        only(
            "cached-is-copied",
            "What is cached is copied into a block that is taken for it.",
            f"{POOL}.register_beginning",
            lambda self, content, block: self.make_room(1, ()) and self.take(1),
        ),
    ),
)

OBLIGATIONS = (
    GROWS,
    ADMITS,
    NAMES_FIRST,
    NAMES_LATER,
    NAMES_STATES,
    PASSES,
    RELEASES,
    DISPATCHES,
    ADDS_UP,
    LOOKS_UP,
    SERVES,
    CACHES,
)
