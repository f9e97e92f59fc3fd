"""Chapter 01: who holds a block, and that no block is lost and none is allocated that is needed.

The pool may be of any size, with any number of requests and copies: see ``kvspec.pool``.
"""

from __future__ import annotations

from typing import Any

from attrs import evolve

from kvspec.pool import invariants
from kvspec.pool.induction import (
    after,
    anywhere,
    before,
    broken,
    each_happens,
    happens,
    inductive,
    of_every_step,
    recalled,
    unguarded,
)
from kvspec.pool.state import FREE, HELD, NOWHERE, WAITING, Operands, State, in_pool, is_cached
from kvspec.pool.transitions import Drop, Fill, Hold, Pin, Register, Reset, Take, Use
from kvspec.symbolic import either, implies, negated

CHAPTER = "blocks-and-references"

DROPPED = Drop.effect
"""The release of a block, where nothing is broken."""


def _drop_keeps_count(state: State, at: Operands) -> State:
    return evolve(state, named=state.named.put(at.entry, 0))


def _drop_loses(state: State, at: Operands) -> State:
    where = state.where.put(at.block, either(state.refs[at.block] == 1, NOWHERE, HELD))
    return evolve(DROPPED(state, at), where=where)


def _pin_counts(state: State, at: Operands) -> State:
    refs = state.refs.put(at.block, state.refs[at.block] + either(is_cached(state, at.block), 1, 0))
    return evolve(state, refs=refs, pinned=state.pinned.put(at.block, either(is_cached(state, at.block), 1, 0)))


def _hold_stays_queued(state: State, at: Operands) -> State:
    refs = state.refs.put(at.block, state.refs[at.block] + 1)
    return evolve(state, refs=refs, named=state.named.put(at.entry, at.block))


def _drop_frees(state: State, at: Operands) -> State:
    # The waiting block is looked at before the count: so the second holder's block is free.
    refs = state.refs.put(at.block, state.refs[at.block] - 1)
    return evolve(state, refs=refs, named=state.named.put(at.entry, 0), where=state.where.put(at.block, FREE))


COUNTS = inductive(
    CHAPTER,
    invariants.counts_holders,
    ("KV-INV-01",),
    "In every reachable state a block's reference count is the number of table entries that name it and of pending "
    "copies that read it.",
    (
        broken("drop-keeps-the-count", "A table releases a block, and the count stays.", Drop, _drop_keeps_count),
        broken("pin-by-count", "A pin is one more reference.", Pin, _pin_counts),
    ),
    {
        "one of two holders releases": lambda u: happens(u, Drop) & (u.refs[u.at_block] == 2),
        "a copy reads what a table names": lambda u: (
            (u.reads.count(u.any_block) >= 1) & (u.named.count(u.any_block) >= 1)
        ),
    },
)

ONE_PLACE = inductive(
    CHAPTER,
    invariants.in_one_place,
    ("KV-INV-02", "KV-INV-03"),
    "Every block but the null block is in exactly one place: held, in the free queue, or in the pinned queue.",
    (broken("drop-loses-the-block", "A block without a holder is put into no queue.", Drop, _drop_loses),),
    each_happens(),
)

CONSERVED = inductive(
    CHAPTER,
    invariants.conserved,
    ("KV-INV-03", "KV-LEAK-01"),
    "The blocks that are held, free and waiting as pinned add up to the blocks of the pool: none is ever lost.",
    (
        broken("drop-loses-the-block", "A block without a holder is put into no queue.", Drop, _drop_loses),
        broken(
            "reset-loses-the-pinned",
            "A reset empties the pinned queue, and its blocks are nowhere.",
            Reset,
            lambda state, at: evolve(state, where=state.where.replaced(WAITING, NOWHERE)),
        ),
    ),
    {
        "blocks are in all three places": lambda u: (
            (u.where.count(HELD) >= 2) & (u.where.count(FREE) >= 2) & (u.where.count(WAITING) >= 2)
        )
    },
)

HELD_IF_REFERENCED = inductive(
    CHAPTER,
    invariants.held_if_referenced,
    ("KV-INV-02",),
    "A block waits in a queue if and only if it counts no reference, and no count is ever negative.",
    (broken("drop-frees-at-once", "A block is free as soon as one of its holders gives it up.", Drop, _drop_frees),),
    {"the last holder releases": lambda u: happens(u, Drop) & (u.refs[u.at_block] == 1)},
)


def _free_exactly(state: State, block: Any) -> Any:
    unheld = (state.named.count(block) == 0) & (state.reads.count(block) == 0)
    return (state.where[block] == FREE) == (in_pool(state, block) & unheld & (state.pinned[block] == 0))


FREE_EXACTLY = of_every_step(
    f"{CHAPTER}.free-exactly",
    ("KV-INV-02",),
    "A block is in the free queue if and only if no table names it, no copy reads it, and it is not pinned.",
    lambda u: implies(u.any_block != 0, _free_exactly(after(u), u.any_block)),
    (broken("hold-leaves-it-queued", "A block that is hit stays where it waited.", Hold, _hold_stays_queued),),
    {"a free block is hit": lambda u: happens(u, Hold) & (u.where[u.at_block] == FREE)},
)

NULL = inductive(
    CHAPTER,
    invariants.null_is_nothing,
    ("KV-INV-06",),
    "The null block is never cached and never pinned; it is in no queue, since it is not a block of the pool.",
    (
        unguarded(
            "null-is-registered",
            "A block without a holder is registered, such as the null block.",
            Register,
            lambda state, at: (state.content[at.block] == 0) & (at.content != 0),
        ),
    ),
    {"a block of the pool is registered": lambda u: happens(u, Register) & (u.any_block == 0)},
)


def _no_request_needs(state: State, block: Any, at: Operands) -> Any:
    copied = (state.reads[at.copy] == block) | (state.writes[at.copy] == block)
    return (state.named[at.entry] != block) & negated(copied) & (state.pinned[block] == 0)


_FROM_ANYWHERE = unguarded(
    "taken-from-anywhere",
    "Any block of the pool is allocated, whether it is free or not.",
    Take,
    lambda state, at: in_pool(state, at.block) & (state.named[at.entry] == 0),
)

NOT_LIVE = of_every_step(
    f"{CHAPTER}.no-live-block-handed-out",
    ("KV-INV-02", "KV-OP-05", "KV-MEM-01"),
    "A block that is allocated was named by no table, read or written by no pending copy, and not pinned.",
    lambda u: implies(happens(u, Take, Fill), _no_request_needs(before(u), u.at_block, anywhere(u))),
    (
        _FROM_ANYWHERE,
        unguarded(
            "taken-from-both-queues",
            "Blocks are allocated from the pinned queue as well.",
            Take,
            lambda state, at: in_pool(state, at.block) & (state.where[at.block] != HELD) & (state.named[at.entry] == 0),
        ),
    ),
    {"others are held": lambda u: happens(u, Take) & (u.named[u.any_entry] >= 1) & (u.reads[u.any_copy] >= 1)},
)

NOTHING_LEAKS = of_every_step(
    f"{CHAPTER}.nothing-leaks",
    ("KV-LEAK-01",),
    "A block that no table names and no copy reads any more can be allocated, at once or after a demotion.",
    lambda u: implies(
        in_pool(after(u), u.any_block) & negated(_has_holders(after(u), u.any_block)),
        (after(u).where[u.any_block] == FREE) | (after(u).where[u.any_block] == WAITING),
    ),
    (broken("drop-keeps-the-count", "A table releases a block, and the count stays.", Drop, _drop_keeps_count),),
    {"the last holder releases": lambda u: happens(u, Drop) & (u.refs[u.at_block] == 1) & (u.any_block == u.at_block)},
)


def _has_holders(state: State, block: Any) -> Any:
    return (state.named.count(block) >= 1) | (state.reads.count(block) >= 1)


def _released_in_flight(state: State, at: Operands) -> Any:
    named = (state.named[at.entry] == at.block) & (at.block != 0)
    return named & (state.writes.count(at.block) == 0) & (state.filled[at.block] == 0)


_GIVEN_UP = unguarded(
    "given-up-in-flight",
    "The last holder of a block gives it up while a step in flight uses it, as in finding 022.",
    Drop,
    _released_in_flight,
)
_TAKEN_WHILE_USED = {
    "another node writes a block while a step in flight uses another": lambda u: (
        (u.out_of_turn == 1) & (u.filled[u.at_block] == 1) & (u.uses[u.any_use] >= 1)
    )
}

USED_IS_HELD = inductive(
    CHAPTER,
    invariants.used_is_held,
    ("KV-MEM-04",),
    "Where another node may write out of turn, a block that a step in flight reads or writes has a holder, and "
    "so is not free.",
    (_GIVEN_UP,),
    {"one of two holders releases what a step uses": lambda u: happens(u, Drop) & (u.uses.count(u.at_block) >= 1)},
)

FILLED_IS_HELD = inductive(
    CHAPTER,
    invariants.filled_is_held,
    ("KV-MEM-04",),
    "A block that another node writes has a holder until it has arrived, or the other node has cancelled.",
    (
        unguarded(
            "given-up-while-loaded",
            "A table releases a block that another node still writes.",
            Drop,
            lambda state, at: (
                (state.named[at.entry] == at.block)
                & (at.block != 0)
                & (state.writes.count(at.block) == 0)
                & (state.uses.count(at.block) == 0)
            ),
        ),
    ),
    {"another node begins to write": lambda u: happens(u, Fill)},
)

FILLED_IS_UNUSED = inductive(
    CHAPTER,
    invariants.filled_is_unused,
    ("KV-MEM-04",),
    "Where another node may write out of turn, it writes no block that a step in flight reads or writes.",
    (
        unguarded(
            "loads-into-what-is-held",
            "What another node provides goes into any block of the pool.",
            Fill,
            lambda state, at: in_pool(state, at.block) & (state.named[at.entry] == 0),
        ),
        unguarded(
            "computed-while-loaded",
            "A step computes for a request whose blocks another node still writes.",
            Use,
            lambda state, at: (state.named[at.entry] == at.block) & (at.block != 0) & (state.uses[at.use] == 0),
        ),
    ),
    _TAKEN_WHILE_USED,
)


def _is_kept(u: Any) -> Any:
    """Of a block that a step in flight uses before and after: that no other request gets it meanwhile."""
    block, now = before(u).uses[u.any_use], after(u)
    recalled(before(u), anywhere(u))
    used = (u.out_of_turn == 1) & (block != 0) & (now.uses[u.any_use] == block)
    given = happens(u, Take, Fill) & (u.at_block == block)
    return implies(used, (now.where[block] == HELD) & (now.filled[block] == 0) & negated(given))


FENCE = of_every_step(
    f"{CHAPTER}.fence",
    ("KV-MEM-04", "KV-MEM-01"),
    "Where another node may write out of turn, no block that a step in flight reads or writes is free or waits as "
    "pinned, is allocated again, or is written by another node, until the step is over.",
    _is_kept,
    (
        _GIVEN_UP,
        _FROM_ANYWHERE,
    ),
    _TAKEN_WHILE_USED,
)

OBLIGATIONS = (
    COUNTS,
    ONE_PLACE,
    CONSERVED,
    HELD_IF_REFERENCED,
    FREE_EXACTLY,
    NULL,
    NOT_LIVE,
    NOTHING_LEAKS,
    USED_IS_HELD,
    FILLED_IS_HELD,
    FILLED_IS_UNUSED,
    FENCE,
)
