"""Chapter 11: the admission gate that runs, over a pool of any size.

``scheduler_room`` proves that the gate counts a bound. Here it is proved what the running gate asks of the running
pool, and that it counts no unread block.

What all groups lack is a sum. Of any number of groups one or any two are run, and add to what all others lack
(``kvspec.turns``).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from kvreference import admission, holdings, manager
from kvreference.admission import blocks_at_peak
from kvreference.answers import Hit, Partial
from kvreference.attention import Kind
from kvreference.block_pool import NULL
from kvspec.obligation import AMap, Count, Obligation, only
from kvspec.pool.state import FREE
from kvspec.proofs.running_pool import OF_POOL, POOL, holdings_over, is_pool, manager_over, running
from kvspec.proofs.running_requests import Tokens
from kvspec.proofs.running_tables import HOLDINGS, OWNER, on_lengths
from kvspec.proofs.scheduler_room import LIMITS, group_of_kind, settings_of
from kvspec.sequences import Met, TablePart, more_than, numbered
from kvspec.stand_in import any_settings
from kvspec.symbolic import Term, either, expression_of
from kvspec.turns import added_to_others

GATE = "kvreference.admission"
ROOM: Callable[..., bool] = admission.has_room
GATE_OF: Callable[..., bool] = admission.passes_gate
"""What they do, where nothing is broken."""


def _has_room(u: Any) -> Any:
    its = running(u)
    with its.runs(), on_lengths(admission):
        said = manager.OWN.rules.ask(admission.blocks_said_free, its.pool)
        there = u.tier == 1 or admission.has_room(its.pool, u.count, ()) == (u.where.count(FREE) >= u.count)
    return its.agrees() & (said == u.where.count(FREE)) & there


HAS_ROOM = Obligation(
    id="scheduler-progress.running-room",
    statements=("KV-OP-03", "KV-OP-04", "KV-INV-03"),
    title="As many blocks are said to be free as the free queue of the running pool holds. Without a pinned tier it "
    "has room for a number of blocks if and only if as many are free; to ask changes nothing.",
    unknowns={**OF_POOL, "count": Count(0)},
    assumes=is_pool,
    claim=_has_room,
    witnesses={
        "as many as there are": lambda u: (u.count == 3) & (u.where.count(FREE) == 3),
        "one is missing": lambda u: (u.count == 3) & (u.where.count(FREE) == 2),
    },
    mutants=(
        only(
            "never-the-last",
            "The last free block is never promised.",
            f"{POOL}.make_room",
            lambda self, count, kept: count < self.free._order.size,
        ),
        only(
            "one-is-not-asked-for",
            "One block less is asked for.",
            f"{GATE}:blocks_said_free",
            lambda pool: pool.free._order.size + 1,
        ),
    ),
)


class _Nulls(Term):
    """A number of null blocks: a tuple of one is repeated as often."""

    __slots__ = ()

    def __rmul__(self, other: Any) -> Any:
        assert other == (NULL,), "null blocks"
        return (TablePart(Term(self.z3), 0),)


class _HitBlocks:
    """The blocks of a hit in a group, however many."""

    def __init__(self, count: Any) -> None:
        self.count = count

    def __getitem__(self, which: slice) -> tuple[TablePart]:
        rest = more_than(self.count, which.start)
        self.read = TablePart(rest, rest)
        return (self.read,)


class _Group:
    """A group of which nothing is known but its number."""

    def __init__(self, u: Any, which: int) -> None:
        self.u, self.which = u, which

    def entries(self, tokens: Any, slots: Any) -> Any:
        """How many entries its table has for so many tokens in so many slots."""
        return self.u.entries[self.which, tokens, slots]

    def blocks_unread(self, computed: Any) -> _Nulls:
        """How many leading entries are not read any more."""
        return _Nulls(expression_of(self.u.unread[self.which, computed]))

    def blocks_dead(self, computed: Any) -> Any:
        """How many leading entries are released."""
        return self.u.dead[self.which, computed]

    def blocks_held_at_most(self, chunk_tokens: Any, tokens_max: Any) -> Any:
        """How many blocks are held at once at most."""
        return self.u.most[self.which, chunk_tokens, tokens_max]


class _Between:
    """A range of places."""

    def __init__(self, first: Any, end: Any) -> None:
        self.first, self.end = first, end

    def __bool__(self) -> bool:
        return bool(self.first < self.end)

    def __contains__(self, place: Any) -> bool:
        return bool((place >= self.first) & (place < self.end))


class _Room:
    """Stands for a pool: what it is asked, and whether that is there."""

    def __init__(self, u: Any) -> None:
        self.u, self.free = u, SimpleNamespace(length=u.queued)
        self.held: set[Any] | None = None
        self.asked: list[tuple[Any, Any]] = []

    def count_free(self, blocks: Any) -> Any:
        """How many of what is about to be held are free."""
        self.held = set(blocks)
        return self.u.free

    def make_room(self, count: Any, kept: Any) -> bool:
        """Whether so many can be had."""
        self.asked.append((count, set(kept)))
        return bool(count <= self.u.room)


def _table_of(u: Any, which: int) -> Any:
    """What is released or due to be, what is not read any more and stays held, and the rest."""
    dead, unread = u.dead[which, u.computed], u.unread[which, u.computed]
    stays = either(more_than(unread, dead) < u.live[which], more_than(unread, dead), u.live[which])
    rest = u.live[which] - stays
    return SimpleNamespace(blocks=[TablePart(dead, u.early[which]), TablePart(stays, stays), TablePart(rest, rest)])


def _is_admitted(u: Any) -> Any:
    pool, met = _Room(u), range(u.groups.__index__())
    geometry: Any = SimpleNamespace(groups=Met(_Group(u, which) for which in met))
    held = holdings_over(SimpleNamespace(pool=pool), geometry)
    held.settings = any_settings(geometry, u.chunk, u.longest, u.blocks)
    blocks = [_HitBlocks(u.hit[which]) for which in met]
    sources: list[Any] = [object() for _ in range(u.copied.__index__())]
    copies: Any = Met(Partial(0, source, 1) for source in sources)
    hit = Hit(u.tokens, Met(blocks), copies)  # type: ignore[arg-type]  # groups are met
    tables = [_table_of(u, which) for which in met] if u.knows == 1 else None
    held.tables = {} if tables is None else {OWNER: tables}
    request: Any = SimpleNamespace(number=OWNER, tokens=Tokens(u.tokens))
    with ExitStack() as stack:
        for module, name, by in (
            (admission, "tuple", Met),
            # Without a fork for each group.
            (admission, "max", lambda one, other: either(one > other, one, other)),
            (admission, "min", lambda one, other: either(one < other, one, other)),
            (holdings, "range", _Between),
            (holdings, "enumerate", numbered),
        ):
            stack.enter_context(patch.object(module, name, by, create=True))
        stack.enter_context(added_to_others(admission, "blocks_to_come", u.others))
        for module in (admission, manager):
            stack.enter_context(on_lengths(module))
        passes = manager_over(held)._fits(request, hit, u.computed)
    needed: Any = u.others
    for which in met:
        unread = u.unread[which, u.computed]
        lasts, most = u.entries[which, u.tokens, u.tokens] - unread, u.most[which, u.chunk, u.longest]
        has = more_than(u.hit[which], unread)
        if tables is not None:
            stays = more_than(unread, u.dead[which, u.computed])
            has = u.early[which] + more_than(u.live[which], stays)
        needed = needed + more_than(either(lasts < most, lasts, most), has)
    ((count, kept),) = pool.asked
    if tables is not None:
        return (passes == (u.room >= needed)) & (count == needed) & (pool.held is None and kept == set())
    uses = {*sources, *(each.read for each in blocks if each.read.live > 0)}
    needed = needed + u.free
    return (passes == (u.room >= needed)) & (count == needed) & (pool.held == uses and kept == uses)


def _is_possible(u: Any) -> Any:
    fine: Any = True
    for which in range(2):
        unread, dead, early = u.unread[which, u.computed], u.dead[which, u.computed], u.early[which]
        fine = fine & (unread >= 0) & (dead >= 0) & (early >= 0) & (early <= dead)
        fine = fine & (u.live[which] >= 0) & (u.hit[which] >= 0)
    return fine


PASSES = Obligation(
    id="scheduler-progress.running-gate",
    statements=("KV-OP-03", "KV-OP-23"),
    title="A request passes the gate if and only if what each group lacks of its bound for the tokens so far, added "
    "up over all groups, however many, and the blocks of its hit and of its copies that are free, are free or can be "
    "demoted. What the hit and the copies use is kept. A surplus of one group does not make up for a lack of another. "
    "A request that has tables takes what these lack.",
    unknowns={
        **{name: Count(0) for name in ("others", "computed", "queued", "free", "room")},
        **{name: Count(1) for name in ("tokens", "chunk", "longest")},
        "blocks": Count(2),
        "groups": Count(1, 2),
        "copied": Count(0, 2),
        "knows": Count(0, 1),
        **{name: AMap(3) for name in ("entries", "most")},
        **{name: AMap(2) for name in ("unread", "dead")},
        **{name: AMap() for name in ("hit", "live", "early")},
    },
    assumes=_is_possible,
    claim=_is_admitted,
    witnesses={
        "the source takes the last free block": lambda u: (
            (u.copied == 1) & (u.hit[0] == 0) & (u.knows == 0) & (u.free == 1) & (u.others == 7) & (u.groups == 1)
        ),
        "one group has too much": lambda u: (
            (u.knows == 1)
            & (u.groups == 2)
            & (u.live[0] == 9)
            & (u.unread[0, u.computed] == 0)
            & (u.entries[0, u.tokens, u.tokens] == 4)
            & (u.entries[1, u.tokens, u.tokens] == 70)
            & (u.most[1, u.chunk, u.longest] == 50)
        ),
    },
    mutants=(
        only(
            "hit-takes-nothing",
            "The free blocks of the hit are not counted.",
            f"{GATE}:has_room",
            lambda pool, count, kept, rules: ROOM(pool, count - pool.u.free, kept, rules),
        ),
        only(
            "hit-is-demoted",
            "To let a request in, what it hits is demoted.",
            f"{GATE}:has_room",
            lambda pool, count, kept, rules: ROOM(pool, count, (), rules),
        ),
        only(
            "copies-take-nothing",
            "The sources of the copies are not counted.",
            "kvreference.holdings:passes_gate",
            lambda settings, pool, hit, *others: GATE_OF(settings, pool, Hit(hit.tokens, hit.blocks), *others),
        ),
        only(
            "tables-are-forgotten",
            "What a request has is asked for once more.",
            f"{HOLDINGS}._without_held",
            lambda self, its, table, computed: [],
        ),
        only(
            "groups-share-a-surplus",
            "A surplus of one group makes up for a lack of another.",
            f"{GATE}:blocks_to_come",
            lambda settings, tokens, computed, live: sum(
                blocks_at_peak(settings, its, tokens, computed) - count
                for its, count in zip(settings.geometry.groups, live, strict=True)
            ),
        ),
        only(
            "look-ahead-is-counted",
            "A slot for look-ahead is counted.",
            f"{GATE}:blocks_at_peak",
            lambda settings, its, tokens, computed: min(
                its.entries(tokens, tokens + 1) - its.blocks_unread(computed),
                its.blocks_held_at_most(settings.chunk_tokens, settings.tokens_max),
            ),
        ),
        only(
            "what-stays-held-counts",
            "What drafts may still need counts as what the request has.",
            f"{HOLDINGS}._without_held",
            lambda self, its, table, computed: table.blocks,
        ),
    ),
)


def _unread(kind: Kind, u: Any) -> Any:
    """How many leading tokens the token after ``computed`` ones does not read."""
    if kind is Kind.FULL:
        return 0
    if kind is Kind.CHUNKED_LOCAL:
        return u.computed - u.computed % u.window
    return either(u.computed + 1 - u.window > 0, u.computed + 1 - u.window, 0)


def _counts_what_is_read(kind: Kind, name: str, words: str, **unknowns: Count) -> Obligation:
    def claim(u: Any) -> Any:
        its = group_of_kind(kind, u)
        counted = admission.blocks_at_peak(settings_of(u, its), its, u.tokens, u.computed)
        # The places from the first that is read to the last that has a token.
        return counted <= (u.tokens + u.block - 1) // u.block - _unread(kind, u) // u.block

    return Obligation(
        id=f"scheduler-progress.gate-counts-what-is-read-{name}",
        statements=("KV-OP-03",),
        title=f"With {words} the gate counts no block that the first token after the hit, and so any later one, does "
        "not read.",
        unknowns={"block": Count(1), **unknowns, "tokens": Count(1), "computed": Count(0), **LIMITS},
        assumes=lambda u: u.computed < u.tokens,
        claim=claim,
        witnesses={"a long hit": lambda u: (u.block == 4) & (u.computed == 40) & (u.tokens == 41)},
        mutants=(
            only(
                "a-block-more",
                "One more block is counted.",
                f"{GATE}:blocks_at_peak",
                lambda settings, its, tokens, computed: its.entries(tokens, tokens) - its.blocks_unread(computed) + 1,
            ),
        ),
    )


OBLIGATIONS = (
    HAS_ROOM,
    PASSES,
    _counts_what_is_read(Kind.FULL, "full", "full attention"),
    _counts_what_is_read(Kind.SLIDING_WINDOW, "window", "a sliding window", window=Count(1)),
    _counts_what_is_read(Kind.CHUNKED_LOCAL, "chunk", "chunked local attention", window=Count(1)),
)
