"""Chapter 11: the admission gate that runs, over a pool of any size.

``scheduler_room`` proves that the gate counts a bound. Here it is proved what the running gate asks of the running
pool, and that it counts no unread block.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kvreference import admission
from kvreference.admission import blocks_at_peak
from kvreference.answers import Hit, Partial
from kvreference.attention import Kind
from kvreference.block_pool import NULL
from kvspec.obligation import Count, Obligation, only
from kvspec.pool.induction import before, operands, sound
from kvspec.pool.invariants import Point
from kvspec.pool.state import FREE, WAITING, Operands
from kvspec.pool.transitions import Hold, Read
from kvspec.proofs.running_pool import OF_POOL, POOL, holdings_over, is_pool, running
from kvspec.proofs.running_tables import BLOCK_TOKENS, HOLDINGS, OWNER, on_lengths, table_of
from kvspec.proofs.scheduler_room import LIMITS, group_of_kind, settings_of
from kvspec.running import key
from kvspec.stand_in import any_geometry, any_settings, group
from kvspec.symbolic import current_path, either, formula_of

GATE = "kvreference.admission"


def _has_room(u: Any) -> Any:
    its = running(u)
    with its.runs(), on_lengths(admission):
        there = admission.has_room(its.pool, u.count, ())
    return its.agrees() & (there == (u.where.count(FREE) >= u.count))


HAS_ROOM = Obligation(
    id="scheduler-progress.running-room",
    statements=("KV-OP-03", "KV-OP-04"),
    title="Without a pinned tier the running pool has room for a number of blocks if and only if as many are free; to "
    "ask changes nothing.",
    unknowns={**OF_POOL, "tier": Count(0, 0), "count": Count(0)},
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


def _asked_for(u: Any) -> Any:
    """A request hits a block of a table of full attention, or none, and a part of another block, or of none."""
    hit, copy = operands(u), Operands(u.source, copy=u.at_copy, content=u.source_content)
    fine = is_pool(u) & Hold.guard(before(u), hit) & Read.guard(before(u), copy) & (u.source != u.at_block)
    fine = fine & (u.where[u.source] != WAITING) & (u.pinned[u.source] == 0)
    return fine & (u.tokens <= u.longest) & (u.tokens >= BLOCK_TOKENS + 1)


def _is_admitted(u: Any) -> Any:
    its = running(u)
    hits, copied = u.hits.__index__(), u.copied.__index__()
    size = BLOCK_TOKENS
    geometry = any_geometry(group(Kind.FULL, size))
    held = holdings_over(its, geometry)
    held.settings = any_settings(geometry, size, u.longest, u.blocks)
    source: Any = key(u.source)
    for block in (source, its.own.block):
        current_path().fact(formula_of(sound(its.state, [Point(block)])))
    hit = Hit(hits * size, ((its.own.block,) * hits,), (Partial(0, source, 1),) * copied)
    occupied = (u.tokens + size - 1) // size
    needed = occupied - hits
    if u.knows == 1:
        # Its tables are there: it has loaded, or is a session that continues.
        held.tables = {OWNER: [table_of(NULL, *([its.own.block] * hits))]}
    else:
        needed = needed + hits * either(u.where[u.at_block] == FREE, 1, 0)
        needed = needed + copied * either(u.where[u.source] == FREE, 1, 0)
    with its.runs(), on_lengths(admission):
        passes = held.passes_gate(OWNER, u.tokens, hit, hits * size)
    return its.agrees() & (passes == (u.where.count(FREE) >= needed))


PASSES = Obligation(
    id="scheduler-progress.running-gate",
    statements=("KV-OP-03",),
    bound=f"full attention in blocks of {BLOCK_TOKENS} tokens, a hit of one block at most and of a part of one, in a "
    "pool of any size without a pinned tier: tables are lists",
    title="A request passes the gate if and only if the blocks that its tokens still take, and those of its hit and of "
    "its copy that are not held, are free; one that has tables takes what these lack.",
    unknowns={
        **OF_POOL,
        "tier": Count(0, 0),
        "hits": Count(0, 1),
        "copied": Count(0, 1),
        "knows": Count(0, 1),
        "source": Count(1),
        "source_content": Count(1),
        "tokens": Count(1),
        "longest": Count(1),
    },
    assumes=_asked_for,
    claim=_is_admitted,
    witnesses={
        "the source takes the last free block": lambda u: (
            (u.copied == 1)
            & (u.hits == 0)
            & (u.knows == 0)
            & (u.where[u.source] == FREE)
            & (u.tokens == 8)
            & (u.where.count(FREE) == 2)
        ),
        "it has tables": lambda u: (u.knows == 1) & (u.hits == 1) & (u.tokens == 20),
    },
    mutants=(
        only(
            "hit-takes-nothing",
            "The free blocks of the hit are not counted.",
            f"{POOL}.count_free",
            lambda self, blocks: 0,
        ),
        only(
            "tables-are-forgotten",
            "What a request has is asked for once more.",
            f"{HOLDINGS}._without_held",
            lambda self, its, table, computed: [],
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


PEAK: Callable[..., Any] = blocks_at_peak


def _adds_up(u: Any) -> Any:
    full, window = group(Kind.FULL, u.block), group(Kind.SLIDING_WINDOW, u.other_block, u.window)
    settings = settings_of(u, full, window)
    counted = admission.blocks_to_come(settings, u.tokens, 0, (u.live, u.other_live))
    lacks = PEAK(settings, full, u.tokens, 0) - u.live
    other = PEAK(settings, window, u.tokens, 0) - u.other_live
    return counted == either(lacks > 0, lacks, 0) + either(other > 0, other, 0)


ADDS_UP = Obligation(
    id="scheduler-progress.groups-lack-each-by-itself",
    statements=("KV-OP-03",),
    title="A surplus of one group does not make up for a lack of another: the gate asks for what each of both lacks.",
    unknowns={
        "block": Count(1),
        "other_block": Count(1),
        "window": Count(2),
        "tokens": Count(1),
        "live": Count(0),
        "other_live": Count(0),
        **LIMITS,
    },
    claim=_adds_up,
    witnesses={
        "one has too much": lambda u: (
            (u.live == 10) & (u.other_live == 0) & (u.tokens == 12) & (u.block == 4) & (u.other_block == 4)
        )
    },
    mutants=(
        only(
            "the-most-that-one-lacks",
            "Only the group that lacks most is asked for.",
            f"{GATE}:blocks_to_come",
            lambda settings, tokens, computed, live: max(
                0,
                *(
                    PEAK(settings, its, tokens, computed) - n
                    for its, n in zip(settings.geometry.groups, live, strict=True)
                ),
            ),
        ),
    ),
)

OBLIGATIONS = (
    HAS_ROOM,
    PASSES,
    _counts_what_is_read(Kind.FULL, "full", "full attention"),
    _counts_what_is_read(Kind.SLIDING_WINDOW, "window", "a sliding window", window=Count(1)),
    _counts_what_is_read(Kind.CHUNKED_LOCAL, "chunk", "chunked local attention", window=Count(1)),
    ADDS_UP,
)
