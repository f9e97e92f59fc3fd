"""Chapter 10: pins are flags next to the counts, and pinned blocks are out of reach until they are demoted.

Demotion admits every request that could be admitted, and happens only where it is enough. One demotion is proved for
pools of any size (``kvspec.pool``); how many there are, and of which blocks, of the running ``make_room``
(``running_allocation``). The pins of a long window drop serve a hit, with nothing else of its group.
"""

from __future__ import annotations

from typing import Any

from attrs import evolve

from kvreference.attention import Kind
from kvreference.geometry import Geometry
from kvspec.obligation import Count, Obligation, only
from kvspec.pool import invariants
from kvspec.pool.induction import after, before, broken, happens, inductive, of_every_step
from kvspec.pool.state import FREE, HELD, WAITING, Operands, State, in_pool, is_cached
from kvspec.pool.transitions import Demote, Drop, Forget, Hold, Pin, Reset, forgotten, one_more
from kvspec.proofs.retention import WINDOW, window_of
from kvspec.stand_in import any_geometry, sizes
from kvspec.symbolic import either, implies

CHAPTER = "pinned-tier"

DROPPED = Drop.effect
"""The release of a block, where nothing is broken."""


def _demote_keeps_pin(state: State, at: Operands) -> State:
    return evolve(state, where=state.where.put(at.block, FREE))


def _drop_always_pins(state: State, at: Operands) -> State:
    # Held or not, a released block waits as pinned.
    after = DROPPED(state, at)
    return evolve(after, where=after.where.put(at.block, either(state.refs[at.block] == 1, WAITING, HELD)))


def _pin_anything(state: State, at: Operands) -> State:
    return evolve(state, pinned=state.pinned.put(at.block, 1))


def _forget_keeps_pin(state: State, at: Operands) -> State:
    return evolve(forgotten(state, at.block), pinned=state.pinned, where=state.where)


def _hit_unpins(state: State, at: Operands) -> State:
    after = one_more(state, at.block)
    return evolve(after, named=after.named.put(at.entry, at.block), pinned=after.pinned.put(at.block, 0))


TIERS = inductive(
    CHAPTER,
    invariants.free_if_unpinned,
    ("KV-INV-02", "KV-INV-07"),
    "The pinned and the free tier are disjoint: a block in the free queue is never pinned.",
    (broken("demotion-keeps-the-pin", "A demoted block stays pinned.", Demote, _demote_keeps_pin),),
    {"a pinned block is demoted": lambda u: happens(u, Demote) & (u.any_block == u.at_block)},
)

WAITS = inductive(
    CHAPTER,
    invariants.waits_if_pinned,
    ("KV-INV-07",),
    "All that waits in the pinned queue is pinned.",
    (broken("drop-always-pins", "Every released block waits in the pinned queue.", Drop, _drop_always_pins),),
    {
        "a pinned block loses its last holder": lambda u: (
            happens(u, Drop) & (u.refs[u.at_block] == 1) & (u.pinned[u.at_block] != 0)
        )
    },
)

CACHED = inductive(
    CHAPTER,
    invariants.pinned_is_cached,
    ("KV-INV-07",),
    "A pinned block is cached: it holds a content, or a boundary inside it is an entry.",
    (
        broken("scratch-is-pinned", "Blocks are pinned whether they are cached or not.", Pin, _pin_anything),
        broken("eviction-keeps-the-pin", "An evicted block stays pinned.", Forget, _forget_keeps_pin),
    ),
    {
        "only an entry inside is cached": lambda u: (
            happens(u, Pin) & (u.content[u.at_block] == 0) & (u.begun[u.at_block] == 1)
        )
    },
)


def _queue_exactly(state: State, block: Any) -> Any:
    unheld = (state.named.count(block) == 0) & (state.reads.count(block) == 0)
    return (state.where[block] == WAITING) == (in_pool(state, block) & unheld & (state.pinned[block] != 0))


QUEUE = of_every_step(
    f"{CHAPTER}.queue-exactly",
    ("KV-INV-07",),
    "The pinned queue holds exactly the pinned blocks that no table names and no copy reads.",
    lambda u: implies(u.any_block != 0, _queue_exactly(after(u), u.any_block)),
    (
        broken(
            "hit-leaves-it-queued",
            "A pinned block that is hit stays in the pinned queue.",
            Hold,
            lambda state, at: evolve(
                one_more(state, at.block), where=state.where, named=state.named.put(at.entry, at.block)
            ),
        ),
    ),
    {"a pinned block is hit": lambda u: happens(u, Hold) & (u.where[u.at_block] == WAITING)},
)


def _is_unpinned(u: Any) -> Any:
    return (before(u).pinned[u.any_block] != 0) & (after(u).pinned[u.any_block] == 0)


OUTLIVES = of_every_step(
    f"{CHAPTER}.pin-outlives-hits",
    ("KV-OP-22",),
    "A pin outlives hits and the releases after them: it ends when its block is demoted or its content forgotten.",
    lambda u: implies(_is_unpinned(u), ((u.any_block == u.at_block) & happens(u, Demote, Forget)) | happens(u, Reset)),
    (broken("hit-unpins", "A hit takes the pin.", Hold, _hit_unpins),),
    {
        "a pinned block is hit": lambda u: happens(u, Hold) & (u.pinned[u.at_block] != 0) & (u.refs[u.at_block] == 0),
        "and released": lambda u: happens(u, Drop) & (u.pinned[u.at_block] != 0) & (u.refs[u.at_block] == 1),
    },
)


def _is_new_pin(u: Any) -> Any:
    return (before(u).pinned[u.any_block] == 0) & (after(u).pinned[u.any_block] != 0)


ONLY_PINS = of_every_step(
    f"{CHAPTER}.only-what-is-held-is-pinned",
    ("KV-OP-21",),
    "Only a held and cached block gets a pin, and it keeps its holders.",
    lambda u: implies(
        _is_new_pin(u),
        happens(u, Pin)
        & (u.any_block == u.at_block)
        & (after(u).refs[u.any_block] >= 1)
        & (after(u).refs[u.any_block] == before(u).refs[u.any_block])
        & is_cached(after(u), u.any_block),
    ),
    (
        broken(
            "drop-pins",
            "Giving up a block pins it.",
            Drop,
            lambda state, at: evolve(DROPPED(state, at), pinned=state.pinned.put(at.block, 1)),
        ),
        broken("scratch-is-pinned", "Blocks are pinned whether they are cached or not.", Pin, _pin_anything),
    ),
    {"a shared block is pinned": lambda u: _is_new_pin(u) & (u.refs[u.any_block] == 2)},
)

TIER = (TIERS, WAITS, CACHED, QUEUE, OUTLIVES, ONLY_PINS)


def _gain(u: Any) -> Any:
    was, now = before(u), after(u)
    more_free = now.where.count(FREE) == was.where.count(FREE) + 1
    as_many = now.where.count(FREE) + now.where.count(WAITING) == was.where.count(FREE) + was.where.count(WAITING)
    kept = (now.content[u.at_block] == was.content[u.at_block]) & (now.begun[u.at_block] == was.begun[u.at_block])
    return more_free & as_many & kept & (now.refs[u.any_block] == was.refs[u.any_block])


GAINS = of_every_step(
    f"{CHAPTER}.demotion-gains-one",
    ("KV-OP-23", "KV-OP-04"),
    "Each demotion lets one block more be taken, takes nothing from anybody and forgets nothing: as many demotions as "
    "blocks are missing let every allocation succeed that could.",
    lambda u: implies(happens(u, Demote), _gain(u)),
    (
        broken(
            "demotion-forgets",
            "A demoted block is not cached any more.",
            Demote,
            lambda state, at: forgotten(state, at.block),
        ),
        broken(
            "demotion-only-unpins",
            "A demoted block is unpinned, and stays where it waits.",
            Demote,
            lambda state, at: evolve(state, pinned=state.pinned.put(at.block, 0)),
        ),
    ),
    {"the last pinned block is demoted": lambda u: happens(u, Demote) & (u.where.count(WAITING) == 1)},
)

DEMOTIONS = (GAINS,)


def anchor(u: Any) -> Any:
    """The blocks that a drop which ends before block ``end`` pins, by the code that runs."""
    return Geometry.anchor(any_geometry(alignment_tokens=u.alignment), window_of(u), u.end)


def _is_last_within(u: Any) -> Any:
    """Whether ``boundary`` is the last at which a hit matches nothing after the drop."""
    dropped, matched = u.end * u.block, window_of(u).tokens_matched(u.boundary)
    return (u.boundary % u.alignment == 0) & (matched <= dropped) & (matched + u.alignment > dropped)


def _reads_just_that(u: Any) -> Any:
    (first, end), (reads, behind) = anchor(u), window_of(u).blocks_needed(u.boundary)
    return (first == reads) & (end == behind) & (end <= u.end)


ANCHOR = Obligation(
    id="pinned-tier.anchor-serves-a-hit",
    statements=("KV-OP-21",),
    title="A long window drop pins exactly the blocks that a hit at the last boundary within the drop reads, "
    "look-ahead included, and nothing after the drop: the pins serve that hit without another block of the group.",
    unknowns={**WINDOW, "alignment": Count(1), "end": Count(1), "boundary": Count(1)},
    assumes=_is_last_within,
    claim=_reads_just_that,
    witnesses={
        "a draft layer, and a drop after the boundary": lambda u: (
            (u.lookahead == 1) & (u.alignment >= 2 * u.block) & (u.end * u.block > u.boundary + u.block)
        )
    },
    mutants=(
        only(
            "anchor-without-lookahead",
            "The blocks before the drop's end are pinned, of which a draft layer needs one after it.",
            "kvreference.geometry:Geometry.anchor",
            lambda its, group, end: group.blocks_needed(
                end * group.block_size_tokens // its.alignment_tokens * its.alignment_tokens
            ),
        ),
        only(
            "anchor-at-no-boundary",
            "The blocks before the drop's end are pinned, whether a hit may end there or not.",
            "kvreference.geometry:Geometry.anchor",
            lambda its, group, end: group.blocks_needed(end * group.block_size_tokens - group.lookahead_tokens),
        ),
    ),
    binds=sizes(Kind.SLIDING_WINDOW, lookahead="lookahead", alignment="alignment_tokens"),
)

ANCHORS = (ANCHOR,)
OBLIGATIONS = (*TIER, *DEMOTIONS, *ANCHORS)
