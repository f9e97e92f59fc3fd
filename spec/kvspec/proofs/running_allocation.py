"""Chapters 01, 10 and 13: an allocation of any size, and the room for it.

``Holdings.allocate`` is run over something that stands for a pool, and records what it is asked for. A table is a list
of stretches: neighbouring entries, of which only the number is known. Of any number of groups one or any two are run,
each with a copy or without. How much all groups take together is a sum: those that are run add to what all others take
(``kvspec.turns``). Each of the others takes what it adds, as is proved of those that are run. What the pool does with
what it is asked for is proved of the running pool by itself (``running_pool``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import wraps
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from attrs import evolve, frozen

from kvreference import admission, attention, block_pool, hit_lookup, holdings, pinned_tier
from kvreference import tables as block_tables
from kvreference.answers import Copy, Hit, Partial
from kvreference.attention import Kind
from kvreference.block_pool import NULL, BlockPool
from kvreference.geometry import Group
from kvreference.holdings import Holdings, Span
from kvreference.manager import OWN, tokens_computed
from kvreference.pinned_tier import PinnedPool
from kvreference.tables import Table
from kvspec import sequences
from kvspec.obligation import Count, Obligation, Unknown, only
from kvspec.proofs.longest_hit import Blocks as FoundBlocks
from kvspec.proofs.running_pool import INSIDE_TOKENS, holdings_over
from kvspec.proofs.running_tables import Entries, on_lengths
from kvspec.sequences import Parts, more_than, times
from kvspec.stand_in import group
from kvspec.symbolic import Term, either, expression_of, negated
from kvspec.turns import added_to_others

OWNER = 1
GROUPS = range(2)
"""Two groups of a model, in their order."""
OLDER = Copy(0, 5, 6, 1)
"""A copy of another request, which has its destination."""
COMPUTES, LOADS, RUNS = range(3)
"""What slots are asked for: a first chunk, what another node provides, or, while it runs, another chunk."""


@frozen(eq=False)
class Stretch(sequences.Stretch):
    """Neighbouring entries of a table: null blocks, blocks that were there, or blocks that were taken."""

    what: str

    def __ne__(self, other: object) -> bool:
        assert other == NULL, "whether it is the null block"
        return self.what != "null"

    __hash__ = object.__hash__


class Length(Term):
    """How long a list of stretches is. Python cuts the list there: after so many stretches."""

    __slots__ = ("stretches",)

    def __init__(self, length: Any, stretches: int) -> None:
        super().__init__(expression_of(length))
        self.stretches = stretches

    def __index__(self) -> int:
        return self.stretches


class Times(Term):
    """A number of times that a tuple of one entry is repeated."""

    __slots__ = ()

    def __sub__(self, other: Any) -> Times:
        return Times((Term(self.z3) - other).z3)

    def __rmul__(self, other: Any) -> Any:
        (one,) = other
        return (Stretch(Term(self.z3), "new" if one is None else "null"),)


class Layout:
    """A table as it must become: its stretches, of which some are new."""

    def __init__(self, stretches: list[Stretch]) -> None:
        self.stretches = stretches

    def count(self, value: Any) -> Any:
        """How many entries are new."""
        assert value is None, "new ones"
        return sum(each.count for each in self.stretches if each.what == "new")

    def __iter__(self) -> Iterator[Stretch | None]:
        # For each new entry the next block is taken: for all of them at once.
        yield from (None if each.what == "new" else each for each in self.stretches)


class HitBlocks:
    """The blocks of a hit in a group, however many."""

    def __init__(self, count: Any) -> None:
        self.count = count

    def __getitem__(self, which: slice) -> list[Stretch]:
        self.read = Stretch(more_than(self.count, which.start), "there")
        return [self.read]


class HitTokens:
    """How many tokens a hit has: of each group in which it ends inside a block, only the whole blocks are known."""

    def __init__(self, blocks: Sequence[Any]) -> None:
        self.blocks = blocks

    def __floordiv__(self, which: int) -> Length:
        # After what is not read and the blocks that were hit, in the group with this block size.
        return Length(self.blocks[which], 2)


def _length(of: Any) -> Any:
    stretches = of.stretches if isinstance(of, Layout) else of
    if not any(isinstance(each, Stretch) for each in stretches):
        return len(stretches)
    return Length(sum(each.count for each in stretches), len(stretches))


GROWN = attention.grown
"""What it does, where nothing is broken."""


def grown(blocks: Any, entries: Any) -> Layout:
    """A table that is to have so many entries: its stretches, and new ones."""
    return Layout(list(GROWN(blocks.stretches if isinstance(blocks, Layout) else blocks, entries)))  # type: ignore[arg-type]  # stretches


@contextmanager
def on_stretches() -> Iterator[None]:
    """Tables may be lists of stretches."""
    with ExitStack() as stack:
        for module in (holdings, block_tables, attention, admission):
            stack.enter_context(patch.object(module, "len", _length, create=True))
        for module in (block_tables, attention):
            stack.enter_context(patch.object(module, "grown", grown))
        yield


class Calls:
    """Stands for a pool, and for how many blocks can be had of it."""

    def __init__(self, u: Any) -> None:
        self.u = u
        self.free: list[Any] = []
        self.counted = set[Stretch]()
        self.asked: list[tuple[Any, Any]] = []
        self.touched: list[Stretch] = []
        self.taken: list[Stretch] = []
        self.in_order = True
        """Whether all that is held was held before anything was taken."""

    def count_free(self, blocks: Any) -> Any:
        """How many of what is about to be held are free."""
        self.counted = set(blocks)
        return self.u.free

    def make_room(self, count: Any, kept: Any) -> bool:
        """Whether so many can be had."""
        self.asked.append((count, set(kept)))
        return bool(count <= self.u.room)

    def touch(self, blocks: Any) -> None:
        """What is held."""
        held = list(blocks)
        self.in_order = self.in_order and not (held and self.taken)
        self.touched += held

    def take(self, count: Any) -> tuple[list[Stretch], list[str]]:
        """So many blocks, from the front of the free queue."""
        self.taken.append(Stretch(count, "taken"))
        return self.taken[-1:], []


def _group(u: Any, which: int) -> Any:
    def times(name: str) -> Times:
        return Times(expression_of(getattr(u, f"{name}{which}")))

    return SimpleNamespace(
        blocks_unread=lambda _computed: times("dead"),
        blocks_dead=lambda _computed: 0,
        blocks_occupied=lambda provided: times("provided") if u.way == LOADS else Times(expression_of(0)),
        entries=lambda _tokens, _slots: times("entries"),
        layout=lambda blocks, entries, _fresh: grown(blocks, entries),
        # Only what a hit divided by it is, is asked for.
        block_size_tokens=which,
    )


def _allocates(u: Any) -> Any:
    """An allocation over some groups, and what it asks for if all others take so many blocks."""
    way, pool, numbers = u.way.__index__(), Calls(u), range(u.groups.__index__())
    groups = tuple(_group(u, which) for which in numbers)
    held: Any = holdings_over(SimpleNamespace(pool=pool), SimpleNamespace(groups=groups))
    held.settings.tokens_max = u.longest
    known = [Table([Stretch(getattr(u, f"length{which}"), "there")], 0, 0, fresh=False) for which in numbers]  # type: ignore[list-item]  # stretches
    held.tables = {OWNER: known} if way == RUNS else {}
    held.copies = [OLDER]
    before = dict(held.tables)
    blocks: Any = tuple(HitBlocks(getattr(u, f"length{which}")) for which in numbers)
    tokens: Any = HitTokens([u.length0, u.length1])
    sources: dict[int, Any] = {which: Stretch(1, "source") for which in numbers if getattr(u, f"copied{which}") == 1}
    hit = Hit(tokens, blocks, tuple(Partial(which, each, INSIDE_TOKENS) for which, each in sources.items()))
    span = Span(u.computed, u.tokens, provided=u.computed if way == LOADS else 0, reserved=u.reserved)
    with on_stretches(), added_to_others(holdings, "blocks_new", u.others):
        allocation = held.allocate(OWNER, span, hit)
    starts, ends, parts = [], [], list[Any]()
    for which in numbers:
        length, dead, entries = (getattr(u, f"{name}{which}") for name in ("length", "dead", "entries"))
        start = length if way == RUNS else dead + more_than(length, dead)
        between = start + (more_than(getattr(u, f"provided{which}"), start) if way == LOADS else 0)
        parts.append((between - start, more_than(entries, between)))
        starts.append(start)
        ends.append(between + more_than(entries, between))
    asks = u.others + sum(ends) - sum(starts) + u.free
    # First all that is copied, then what is hit, group by group.
    uses = [] if way == RUNS else [*sources.values(), *(each.read for each in blocks)]
    counts = (u.reserved, 0)[: len(pool.asked)]
    fine: Any = pool.counted == set(uses)
    # First with what must stay free for others.
    for more, (count, kept) in zip(counts, pool.asked, strict=True):
        fine = fine & (count == asks + more) & (kept == set(uses))
    if allocation is None:
        untouched = pool.touched == [] and pool.taken == [] and held.tables == before and held.copies == [OLDER]
        return fine & (u.room < asks + u.reserved) & untouched
    tables = held.tables[OWNER]
    fine = fine & (u.room >= asks + u.reserved) & (pool.in_order and pool.touched == uses and len(pool.asked) == 2)
    # A copy goes into the first of the new blocks, which stands at the place where the hit ends inside a block.
    aims = [Copy(which, each, allocation.entries[which][0], INSIDE_TOKENS) for which, each in sources.items()]
    fine = fine & (held.copies == [OLDER, *aims])
    for which in sources:
        fine = fine & (starts[which] == getattr(u, f"length{which}"))
    # What is taken stands in the tables, group by group: first for what is provided, then for the rest.
    rounds = [[first for first, _ in parts], [last for _, last in parts]]
    at = 0
    for count in (count for each in rounds for count in each):
        if count > 0:
            if at == len(pool.taken):
                return False
            fine = fine & (pool.taken[at].count == count)
            at += 1
    gained = [each for entries in allocation.entries for each in entries]
    fine = fine & (at == len(pool.taken) and sorted(map(id, gained)) == sorted(map(id, pool.taken)))
    for which, table in enumerate(tables):
        fine = fine & (sum(each.count for each in table.blocks) == ends[which])
        behind = table.blocks[len(table.blocks) - len(allocation.entries[which]) :]
        fine = fine & (behind == list(allocation.entries[which]) and not table.fresh)
    return fine


def _ends_inside(u: Any) -> Any:
    """A hit that ends inside a block is read up to there, and its table grows: see ``HAS_A_BLOCK``."""
    fine: Any = True
    for which in GROUPS:
        copied, length, dead, entries, provided = (
            getattr(u, f"{name}{which}") for name in ("copied", "length", "dead", "entries", "provided")
        )
        grows = (entries > length) | ((u.way == LOADS) & (provided > length))
        fine = fine & ((copied == 0) | ((u.way != RUNS) & (dead <= length) & grows))
    return fine


def _holds_late(self: Holdings, request: int, wanted: Any, _hit: Any, layouts: Any, _provided: Any) -> Any:
    self.tables[request] = wanted
    lost = self._fill(wanted, layouts)
    self.pool.touch(block for table in wanted for block in table.live())
    return lost


def _aims_before(self: Holdings, request: int, _hit: Any) -> None:
    tables = self.tables[request]
    self.copies = [
        copy if copy is OLDER else evolve(copy, destination=tables[copy.group].blocks[1]) for copy in self.copies
    ]


def _aims_one(self: Holdings, request: int, hit: Any) -> None:
    first, self.copies = self.copies[:2], self.copies[2:]
    left, self.copies = self.copies, first
    _aim(self, request, hit)
    self.copies += left


def _holds_no_source(self: Holdings, hit: Hit) -> None:
    self.copies += [Copy(each.group, each.source, NULL, each.tokens) for each in hit.partials]


_aim, _blocks_new = Holdings._aim, block_tables.blocks_new
"""What they do, where nothing is broken."""


@wraps(_blocks_new)
def _new_of_the_first(layouts: Any, before: Any) -> Any:
    return _blocks_new(layouts[:1], before[:1])


ALLOCATES = Obligation(
    id="blocks-and-references.running-allocation",
    statements=("KV-OP-04", "KV-OP-05", "KV-OP-19", "KV-OP-23", "KV-OP-24", "KV-INV-09", "KV-MEM-02"),
    title="Over any number of groups, with hits and tables of any length, and a copy in each group or in none, an "
    "allocation asks for exactly the blocks that it then takes, those of its hit and of its copies that are free "
    "included, and nothing happens if they cannot be had. What it hits and copies is not demoted for them. Else each "
    "block of the hit and each source of a copy is held, once, before any other is taken. Blocks are taken group by "
    "group, first for what another node provides, and stand at the end of their tables. Each copy goes into the first "
    "of them in its group, where the hit ends.",
    unknowns={
        **{f"{name}{which}": Count(0) for which in GROUPS for name in ("length", "dead", "entries", "provided")},
        **{f"copied{which}": Count(0, 1) for which in GROUPS},
        "groups": Count(1, len(GROUPS)),
        "way": Count(0, 2),
        **{name: Count(0) for name in ("others", "free", "room", "reserved", "tokens")},
        **{name: Count(1) for name in ("computed", "longest")},
    },
    assumes=_ends_inside,
    claim=_allocates,
    witnesses={
        "a hit in one group, and new blocks in another": lambda u: (
            (u.way == COMPUTES)
            & (u.groups == 2)
            & (u.length0 == 5)
            & (u.dead0 == 2)
            & (u.entries1 == u.length1 + 7)
            & (u.others == 40)
            & (u.room >= 100)
            & (u.free == 2)
        ),
        "something is copied in both": lambda u: (
            (u.way == LOADS)
            & (u.groups == 2)
            & (u.copied0 == 1)
            & (u.copied1 == 1)
            & (u.length0 == 3)
            & (u.dead0 == 1)
            & (u.entries0 == 5)
            & (u.room >= 100)
        ),
        "one block is missing": lambda u: (
            (u.way == RUNS) & (u.groups == 1) & (u.entries0 == u.length0 + 2) & (u.others == 3) & (u.room == 4)
        ),
    },
    mutants=(
        only(
            "hit-is-held-last",
            "The blocks for what is loaded are taken before the hit is held.",
            "kvreference.holdings:Holdings._admit",
            _holds_late,
        ),
        only(
            "source-is-not-held",
            "The source of a copy is not held (finding of the design `unheld copy`).",
            "kvreference.holdings:Holdings._read",
            _holds_no_source,
        ),
        only(
            "copied-into-the-block-before",
            "A copy goes into the last block of the hit.",
            "kvreference.holdings:Holdings._aim",
            lambda self, request, hit: _aims_before(self, request, hit),
        ),
        only(
            "first-copy-alone",
            "Only the first copy of a hit gets a destination.",
            "kvreference.holdings:Holdings._aim",
            lambda self, request, hit: _aims_one(self, request, hit),
        ),
        only(
            "nothing-new-is-counted",
            "Only the free blocks of the hit are counted among those that are needed.",
            "kvreference.holdings:blocks_new",
            lambda layouts, before: 0,
        ),
        only(
            "first-group-alone-is-counted",
            "The new blocks of one group are counted.",
            "kvreference.holdings:blocks_new",
            _new_of_the_first,
        ),
        only(
            "hit-is-demoted",
            "To make room, what the request hits is demoted.",
            "kvreference.holdings:has_room",
            lambda pool, count, _kept, rules: admission.has_room(pool, count, (), rules),
        ),
        only(
            "reserve-is-forgotten",
            "What must stay free for others is not counted.",
            "kvreference.holdings:blocks_to_have",
            lambda _groups, span, _hit_tokens, taken: taken - span.reserved,
        ),
        only(
            "planned-twice",
            "What is provided for is planned again on top of what was there before.",
            "kvreference.holdings:plan_provided",
            lambda geometry, tables_, provided: [None] * len(tables_),
        ),
    ),
)

# A block to copy into


def _has_a_block(u: Any) -> Any:
    """The table of a hit that ends inside a block, and how long a table is planned for what follows."""
    one = group(Kind.FULL, u.size, compress_ratio=u.ratio, whole_slots=bool(u.whole == 1))
    found: Any = object.__new__(hit_lookup._Found)
    first, after = one.blocks_needed(u.hit)
    needed = times(first), after
    found.group = SimpleNamespace(blocks_needed=lambda _hit: needed, block_size_tokens=u.size)
    found.blocks = FoundBlocks(-1, None)
    full = sum(part.count for part in found.table(u.hit))
    end = u.hit + u.provided
    computed = OWN.rules.ask(tokens_computed, end, u.prompt)
    its = SimpleNamespace(
        entries=one.entries,
        layout=lambda _blocks, entries, _fresh: entries,
        blocks_occupied=one.blocks_occupied,
        blocks_unread=one.blocks_unread,
    )
    held = holdings_over(SimpleNamespace(pool=None), SimpleNamespace(groups=(its,)))
    held.settings.tokens_max = u.longest
    (table,) = block_tables.tables_of_hit(held.settings.geometry, Hit(u.hit, ((),)), computed)
    is_read = table.blocks == [] and bool(table.dead == 0)
    table.blocks = Entries(full, {})  # type: ignore[assignment]  # it stands for one
    with on_lengths(block_tables), patch.object(block_tables, "grown", lambda _blocks, entries: entries):
        loaded = block_tables.plan_provided(held.settings.geometry, [table], end)
        planned = held._plan([table], [None], Span(computed, u.tokens, u.drafts))
    fine: Any = is_read & (full == u.hit // u.size)
    for entries in (*loaded, *planned):
        if entries is None:
            return False
        fine = fine & (entries > full)
    return fine


def _is_inside(u: Any) -> Any:
    """A hit of whole slots (chapter 08), which ends inside a block and before the last token of a prompt that fits."""
    inside = (u.hit % u.ratio == 0) & negated(u.hit % u.size == 0)
    return inside & (u.hit + u.provided <= u.prompt) & (u.hit < u.prompt) & (u.prompt <= u.longest)


HAS_A_BLOCK = Obligation(
    id="partial-hits.running-block-to-copy-into",
    statements=("KV-INV-09", "KV-OP-19", "KV-MEM-02"),
    title="Where a hit ends inside a block, which only full attention allows, compressed or not, the request's table "
    "has the full blocks of the hit, all of them read, and is to have at least one more: for what another node "
    "provides after the hit, and for what is computed, however much it is. A copy goes there.",
    unknowns={
        **{name: Count(1) for name in ("size", "ratio", "hit", "prompt", "longest")},
        **{name: Count(0) for name in ("provided", "tokens", "drafts")},
        "whole": Count(0, 1),
    },
    assumes=_is_inside,
    claim=_has_a_block,
    witnesses={
        "only whole slots are stored": lambda u: (
            (u.whole == 1) & (u.ratio == 4) & (u.size == 32) & (u.hit == 72) & (u.provided == 3)
        )
    },
    mutants=(
        only(
            "only-full-blocks",
            "A table has only the blocks that its tokens fill.",
            "kvreference.geometry:blocks_occupied",
            lambda tokens, block: tokens // block,
        ),
        only(
            "slots-are-complete-blocks",
            "Tokens are stored only in complete blocks.",
            "kvreference.geometry:Group.tokens_stored",
            lambda self, tokens: tokens - tokens % self.block_size_tokens,
        ),
    ),
)

# Room with a pinned tier


class _Uses:
    """The blocks that a request uses: some of the stretches, and the block that is looked at or not."""

    def __init__(self, stretches: list[sequences.Stretch], looked: Any) -> None:
        self.stretches, self.looked = stretches, looked

    def __contains__(self, block: Any) -> bool:
        return block in self.stretches if isinstance(block, sequences.Stretch) else bool(self.looked == 1)


def _makes_room(u: Any) -> Any:
    """In the pinned queue stand a block, others before it and others after it, of each of which some are used.

    How those that are used stand among the others makes no difference to what is left without them.
    """
    used, others = ([sequences.Stretch(getattr(u, f"{name}{at}")) for at in range(2)] for name in ("used", "others"))
    looked = object()
    pool: Any = object.__new__(PinnedPool)
    pool.free = SimpleNamespace(length=u.free)
    pool.pinned = [used[0], others[0], looked, used[1], others[1]]
    demoted: list[Any] = []
    pool._unpin = demoted.append
    with on_lengths(pinned_tier), on_lengths(block_pool), patch.object(pinned_tier, "tuple", Parts, create=True):
        answer = bool(pool.make_room(u.count, _Uses(used, u.uses)))
    missing, demotable = u.count - u.free, u.others0 + u.others1 + (1 - u.uses)
    fine = (missing <= demotable) == answer
    count = either((missing > 0) & fine, missing, 0) if answer else 0
    # It is demoted if fewer than are missing can be demoted before it; and no other one stands elsewhere.
    is_among_the_oldest = (u.uses == 0) & (missing > u.others0) & answer
    gone = looked in demoted
    fine = fine & (Parts(demoted).length == count) & (is_among_the_oldest == gone)
    first = Parts(demoted[: demoted.index(looked)]).length if gone else u.others0
    return fine & (first == u.others0)


def _demotes(self: Any, count: Any, demotable: Any) -> bool:
    missing = count - self.free.length
    for block in Parts(demotable)[: max(0, missing)]:
        self._unpin(block)
    return True


def _is_enough(self: Any, count: Any, kept: Any) -> bool:
    return bool(count - self.free.length <= Parts(block for block in self.pinned if block not in kept).length)


MAKES_ROOM = Obligation(
    id="pinned-tier.makes-room-if-possible",
    statements=("KV-OP-23", "KV-OP-04", "KV-OP-03", "KV-LIVE-01"),
    title="The blocks that are asked for can be had if and only if they are free or can be demoted. Then the oldest "
    "are demoted that the request does not use, as many as were missing, and else none: in a pinned queue of any "
    "length, whichever of its blocks the request uses.",
    unknowns={
        **{name: Count(0) for name in ("free", "count", "used0", "used1", "others0", "others1")},
        "uses": Count(0, 1),
    },
    claim=_makes_room,
    witnesses={
        "some are used, and enough others are demoted": lambda u: (
            (u.used0 == 1) & (u.others0 == 2) & (u.uses == 0) & (u.others1 == 9) & (u.free == 1) & (u.count == 4)
        ),
        "it is the newest that is needed": lambda u: (
            (u.uses == 0) & (u.others0 == 70) & (u.others1 == 5) & (u.free == 1) & (u.count == 72)
        ),
    },
    mutants=(
        only(
            "gate-does-not-know-the-tier",
            "The gate asks only what is free.",
            "kvreference.pinned_tier:PinnedPool.make_room",
            BlockPool.make_room,
        ),
        only(
            "demotes-in-vain",
            "Blocks are demoted even where that is not enough.",
            "kvreference.pinned_tier:PinnedPool.make_room",
            lambda self, count, kept: (
                _demotes(self, count, (block for block in self.pinned if block not in kept))
                and _is_enough(self, count, kept)
            ),
        ),
        only(
            "demotes-the-newest",
            "The newest blocks are demoted.",
            "kvreference.pinned_tier:PinnedPool.make_room",
            lambda self, count, kept: (
                _is_enough(self, count, kept)
                and _demotes(self, count, [block for block in self.pinned if block not in kept][::-1])
            ),
        ),
        only(
            "demotes-what-is-used",
            "Blocks are demoted whether the request uses them or not.",
            "kvreference.pinned_tier:PinnedPool.make_room",
            lambda self, count, kept: _is_enough(self, count, kept) and _demotes(self, count, self.pinned),
        ),
        only(
            "demotes-one-more",
            "One block more is demoted than was missing.",
            "kvreference.pinned_tier:PinnedPool.make_room",
            lambda self, count, kept: (
                _is_enough(self, count, kept)
                and _demotes(self, count + 1, (block for block in self.pinned if block not in kept))
            ),
        ),
    ),
)

# Slots of a step

_PLAN = Holdings._plan
"""What it does, where nothing is broken."""

KINDS = (Kind.FULL, Kind.SLIDING_WINDOW, Kind.CHUNKED_LOCAL)
"""The kinds that keep a slot for each token."""


def _kind_of(u: Any) -> Group:
    kind = KINDS[u.kind.__index__()]
    if kind is Kind.FULL:
        return group(kind, u.size, compress_ratio=u.ratio, whole_slots=bool(u.whole == 1))
    return group(kind, u.size, u.window)


def _times(number: Any) -> Times:
    return Times(expression_of(number))


def _as_stretches(its: Group) -> Any:
    """The group, where it says how many entries there are."""
    return SimpleNamespace(
        blocks_unread=lambda tokens: _times(its.blocks_unread(tokens)),
        # What no later token reads was released before: see ``blocks-and-references.running-next-step``.
        blocks_dead=lambda _tokens: 0,
        blocks_occupied=lambda tokens: _times(its.blocks_occupied(tokens)),
        entries=lambda tokens, slots: _times(its.entries(tokens, slots)),
        layout=its.layout,
        block_size_tokens=1,
    )


def _has_slots(u: Any) -> Any:
    """Where the slot of a token that is computed or drafted is, after an allocation."""
    runs, its, pool = bool(u.runs == 1), _kind_of(u), Calls(u)
    held: Any = holdings_over(SimpleNamespace(pool=pool), SimpleNamespace(groups=(_as_stretches(its),)))
    held.settings.tokens_max = u.longest
    blocks: Any = (HitBlocks(u.length),)
    if runs:
        dead = its.blocks_dead(u.computed - u.unsure)
        known: Any = [Stretch(dead, "null"), Stretch(u.length - dead, "there")]
        held.tables = {OWNER: [Table(known, 0, 0, fresh=False)]}
    span = Span(u.computed, u.tokens, u.lookahead, provided=u.end if u.external > 0 else 0)
    with on_stretches():
        allocation = held.allocate(OWNER, span, Hit(u.hit, blocks))
    if allocation is None:
        return True
    ((table,),) = held.tables.values()
    place = u.position // u.size
    first, named, is_new = 0, False, False
    for part in table.blocks:
        its_place = (place >= first) & (place < first + part.count)
        named = (its_place & (part.what != "null")) | named
        is_new = (its_place & (part.what == "taken")) | is_new
        first = first + part.count
    # In a block of a hit nothing is computed; in one that it had, a running request continues.
    return named & (is_new | (place < u.length) & (runs | (u.position < u.hit)))


def _stored(u: Any, tokens: Any) -> Any:
    """How many of the first tokens are in slots that are complete. Said anew here, from what a slot is."""
    return tokens - tokens % u.ratio if u.whole == 1 else tokens


def _asks_for_slots(u: Any) -> Any:
    """A request runs, and its table has its computed tokens; or it has a hit, and what another node provides."""
    its = _kind_of(u)
    slots = u.computed + u.tokens + u.lookahead
    slots = either(slots < u.longest, slots, u.longest)
    # What a token that is computed then reads, at the earliest.
    unread = either(u.runs == 1, its.blocks_dead(u.computed - u.unsure), its.blocks_unread(u.computed))
    fine = (u.position >= u.computed) | (u.position // u.size >= unread)
    fine = fine & (u.position < _stored(u, slots)) & (u.end == u.hit + u.external)
    begins = (u.unsure == 0) & (u.hit // u.size == u.length) & (u.computed <= u.end) & (u.computed >= u.hit)
    # Hits end where slots do: see ``compressed-groups.boundaries-are-whole-slots``.
    begins = begins & (u.computed + u.tokens >= u.end) & (_stored(u, u.hit) == u.hit)
    goes_on = (u.unsure <= u.computed) & (u.length >= its.blocks_occupied(u.computed)) & (u.external == 0)
    return fine & ((u.runs == 1) | begins) & ((u.runs == 0) | goes_on)


OF_SLOTS: Mapping[str, Unknown] = {
    "size": Count(1),
    "window": Count(2),
    "runs": Count(0, 1),
    **{name: Count(0) for name in ("length", "hit", "external", "end", "unsure", "computed", "tokens", "lookahead")},
    **{name: Count(0) for name in ("position", "free", "room")},
    "longest": Count(1),
}
"""A group, a request that begins or runs, and what it asks for."""
NO_SLOTS_FOR_DRAFTS = only(
    "no-slots-for-drafts",
    "Look-ahead gets no slots.",
    "kvreference.holdings:Holdings._plan",
    lambda self, tables_, given, span: _PLAN(self, tables_, given, evolve(span, lookahead=0)),
)
A_BLOCK_TOO_FEW = only(
    "a-block-too-few",
    "A table gets a block fewer than its tokens occupy.",
    "kvreference.attention:blocks_occupied",
    lambda tokens, block_size_tokens: tokens // block_size_tokens,
)

HAS_SLOTS = Obligation(
    id="blocks-and-references.running-slots-of-a-step",
    statements=("KV-MEM-02", "KV-MEM-01", "KV-OP-24", "KV-OP-19"),
    title="After an allocation each token that a step computes, and each that is drafted after them, up to the longest "
    "request, has a slot, and so has all that these read, loaded or not: its place in the table, of any length, with "
    "full attention, a window or chunks, names a block. For what comes after a hit it is taken now, also where the hit "
    "ends inside a block, or it was there before in the table of a request that runs; never is it a block of the hit.",
    unknowns={**OF_SLOTS, "kind": Count(0, len(KINDS) - 1), "ratio": Count(1, 1), "whole": Count(0, 0)},
    assumes=_asks_for_slots,
    claim=_has_slots,
    witnesses={
        "a draft of a running request": lambda u: (
            (u.runs == 1)
            & (u.kind == 1)
            & (u.lookahead == 3)
            & (u.position == u.computed + u.tokens + 2)
            & (u.size == 4)
            & (u.computed == 70)
            & (u.window == 9)
            & (u.length == 18)
            & (u.position >= 72)
            & (u.room == 9)
        ),
        "a hit ends inside a block": lambda u: (
            (u.runs == 0) & (u.size == 4) & (u.hit == 6) & (u.external == 0) & (u.position == 6) & (u.room == 9)
        ),
        "a prompt is loaded": lambda u: (
            (u.runs == 0)
            & (u.kind == 2)
            & (u.external == 50)
            & (u.computed == u.end - 1)
            & (u.window == 16)
            & (u.room == 99)
            & (u.size == 4)
        ),
    },
    mutants=(
        NO_SLOTS_FOR_DRAFTS,
        only(
            "load-forgets-its-last-token",
            "What is released follows from all tokens that are loaded (finding 009, vLLM 0.20.2).",
            "kvreference.holdings:tables_of_hit",
            lambda geometry, hit, computed: block_tables.tables_of_hit(geometry, hit, computed + 1),
        ),
        A_BLOCK_TOO_FEW,
    ),
)

HAS_WHOLE_SLOTS = Obligation(
    id="compressed-groups.running-whole-slots-of-a-step",
    statements=("KV-MEM-02", "KV-MEM-01"),
    title="Where memory is taken for complete slots only, each slot that is complete with the tokens that a step "
    "computes or drafts, up to the longest request, has its place after the allocation, and so has each that these "
    "read, loaded or not: in a table of any length, at any ratio. Where a slot was only begun before, it has its place "
    "with the step that completes it. Never is it in a block of the hit, if a slot ends where the hit does.",
    unknowns={**OF_SLOTS, "kind": Count(0, 0), "window": Count(2, 2), "ratio": Count(1), "whole": Count(1, 1)},
    assumes=_asks_for_slots,
    claim=_has_slots,
    witnesses={
        "a slot that was begun is completed": lambda u: (
            (u.runs == 1)
            & (u.ratio == 4)
            & (u.size == 8)
            & (u.computed == 18)
            & (u.length == 2)
            & (u.tokens == 1)
            & (u.lookahead == 2)
            & (u.position == 16)
            & (u.room == 9)
        ),
        "after what is loaded": lambda u: (
            (u.runs == 0)
            & (u.ratio == 4)
            & (u.size == 8)
            & (u.hit == 12)
            & (u.external == 9)
            & (u.position == 12)
            & (u.room == 9)
        ),
    },
    mutants=(
        NO_SLOTS_FOR_DRAFTS,
        A_BLOCK_TOO_FEW,
        only(
            "slots-are-complete-blocks",
            "Tokens are stored only in complete blocks.",
            "kvreference.geometry:Group.tokens_stored",
            lambda self, tokens: tokens - tokens % self.block_size_tokens,
        ),
    ),
)

OBLIGATIONS = (ALLOCATES, HAS_A_BLOCK, MAKES_ROOM, HAS_SLOTS, HAS_WHOLE_SLOTS)
