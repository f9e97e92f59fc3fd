"""Chapter 10: pins are flags beside the counts, and pinned blocks are out of reach.

The pool may be of any size: see ``kvspec.pool``. That demotion is enough is in ``demotion``.
"""

from __future__ import annotations

from typing import Any

from attrs import evolve

from kvspec.pool import invariants
from kvspec.pool.contents import Demote, Forget, Pin, Reset, forgotten
from kvspec.pool.holders import Drop, Hold, one_more
from kvspec.pool.induction import after, before, broken, happens, inductive, of_every_step
from kvspec.pool.state import FREE, HELD, WAITING, Operands, State, in_pool, is_cached
from kvspec.symbolic import either, implies

CHAPTER = "pinned-tier"

DROPPED = Drop.effect
"""What giving up a block does, where nothing is broken."""


def _demote_keeps_pin(state: State, at: Operands) -> State:
    return evolve(state, where=state.where.put(at.block, FREE))


def _drop_always_pins(state: State, at: Operands) -> State:
    # Held or not, what is given up waits as pinned.
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
    "Whatever waits in the pinned queue is pinned.",
    (broken("drop-always-pins", "Whatever is given up waits in the pinned queue.", Drop, _drop_always_pins),),
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
        "and given up": lambda u: happens(u, Drop) & (u.pinned[u.at_block] != 0) & (u.refs[u.at_block] == 1),
    },
)


def _is_new_pin(u: Any) -> Any:
    return (before(u).pinned[u.any_block] == 0) & (after(u).pinned[u.any_block] != 0)


ONLY_PINS = of_every_step(
    f"{CHAPTER}.only-what-is-held-is-pinned",
    ("KV-OP-21",),
    "Only a block that somebody holds and that is cached gets a pin, and it keeps its holders.",
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

OBLIGATIONS = (TIERS, WAITS, CACHED, QUEUE, OUTLIVES, ONLY_PINS)
