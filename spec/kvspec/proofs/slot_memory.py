"""The content of slots: what was written there, independent of the cache.

A step that is scheduled owes what it will write; it writes when it is computed, in the order in which steps are
dispatched. Another node may write out of turn. The pool may be of any size, with any number of
requests and steps in flight: see ``kvspec.pool``. A content stands for the slots up to the end of its prefix, so a
block holds as many contents as it has boundaries. That these slots are those that a step computes is proved of the
formulas (chapters 04 and 08).
"""

from __future__ import annotations

from typing import Any

from attrs import evolve

from kvspec.pool import invariants
from kvspec.pool.induction import after, anywhere, before, broken, happens, inductive, of_every_step, unguarded
from kvspec.pool.state import HELD, Operands, State, in_pool
from kvspec.pool.transitions import (
    Begin,
    Compute,
    Computed,
    Drop,
    Fill,
    Forget,
    Hold,
    Overwrite,
    Provide,
    Read,
    Register,
    Take,
    is_written_or_owed,
    one_less,
)
from kvspec.symbolic import implies

CONTENT, BLOCKS = "content-and-cached-map", "blocks-and-references"

TAKEN, WRITES = Take.effect, Computed.effect
"""What these do, where nothing is broken."""

_REGISTERED_EARLY = unguarded(
    "registered-before-it-is-scheduled",
    "A block becomes known to hold what no step that is scheduled writes.",
    Register,
    lambda state, at: (
        (state.where[at.block] == HELD)
        & (state.content[at.block] == 0)
        & (state.filled[at.block] == 0)
        & (at.content != 0)
    ),
)
_OUT_OF_ORDER = unguarded(
    "steps-out-of-order",
    "A step writes before one that was dispatched earlier.",
    Computed,
    lambda state, at: (state.owed[at.content, at.block] == at.block) & (at.block != 0),
)

KNOWN_IS_WRITTEN = inductive(
    CONTENT,
    invariants.known_is_written,
    ("KV-MEM-01",),
    "In every reachable state the slots of a block hold what the cache says of it, a beginning too, or a step that is "
    "scheduled or in flight writes it there.",
    (
        _REGISTERED_EARLY,
        unguarded(
            "registered-while-loaded",
            "A boundary becomes an entry of a block that another node still writes.",
            Begin,
            lambda state, at: (
                (state.where[at.block] == HELD) & (state.begins[at.content, at.block] == 0) & (at.content != 0)
            ),
        ),
        broken(
            "take-keeps-what-is-known",
            "A block that is allocated again is known to hold what is overwritten.",
            Take,
            lambda state, at: evolve(
                TAKEN(state, at), content=state.content, listed=state.listed, begun=state.begun, begins=state.begins
            ),
        ),
    ),
    {
        "a step owes what a hit may read": lambda u: (
            (u.content[u.any_block] == u.any_content)
            & (u.any_content != 0)
            & (u.written[u.any_content, u.any_block] == 0)
        ),
        "it is computed": lambda u: happens(u, Computed) & (u.content[u.at_block] == u.at_content),
        "a beginning becomes known": lambda u: happens(u, Begin) & (u.content[u.at_block] != 0),
    },
)

LATE_SPOILS_NOTHING = inductive(
    CONTENT,
    invariants.late_spoils_nothing,
    ("KV-MEM-01",),
    "A step that is computed after its request gave a block up writes nothing over what a later holder has written.",
    (
        _OUT_OF_ORDER,
        broken(
            "take-trusts-the-slots",
            "What was in a block before it was allocated again counts as written.",
            Take,
            lambda state, at: evolve(TAKEN(state, at), written=state.written),
        ),
    ),
    {"a late step writes": lambda u: happens(u, Overwrite) & (u.any_block == u.at_block)},
)

OWED_IS_HELD = inductive(
    BLOCKS,
    invariants.owed_is_held,
    ("KV-MEM-04",),
    "Where another node may write out of turn, a block that a step still has to write has a holder.",
    (
        unguarded(
            "given-up-while-owed",
            "The last holder of a block gives it up while a step still has to write it.",
            Drop,
            lambda state, at: (
                (state.named[at.entry] == at.block)
                & (at.block != 0)
                & (state.writes.count(at.block) == 0)
                & (state.filled[at.block] == 0)
            ),
        ),
        broken(
            "given-up-twice",
            "A block loses two holders with one.",
            Drop,
            lambda state, at: _dropped_twice(state, at),
        ),
    ),
    {"a step still has to write": lambda u: (u.out_of_turn == 1) & happens(u, Compute) & (u.any_block == u.at_block)},
)


def _dropped_twice(state: State, at: Operands) -> State:
    after_one = one_less(state, at.block)
    return evolve(
        after_one, named=after_one.named.put(at.entry, 0), refs=after_one.refs.put(at.block, state.refs[at.block] - 2)
    )


LATE_IS_IN_TURN = inductive(
    BLOCKS,
    invariants.late_is_in_turn,
    ("KV-MEM-04",),
    "Where another node may write out of turn, no step writes a block that its request freed.",
    (
        unguarded(
            "taken-while-owed",
            "Blocks are allocated whether they are held or not.",
            Take,
            lambda state, at: in_pool(state, at.block) & (state.named[at.entry] == 0),
        ),
        broken(
            "always-late",
            "An allocated block may still be written for another request.",
            Take,
            lambda state, at: evolve(TAKEN(state, at), late=TAKEN(state, at).late.put(at.block, 1)),
        ),
    ),
    {"a block is loaded": lambda u: happens(u, Fill) & (u.out_of_turn == 1)},
)


def _stays(u: Any) -> Any:
    """The content written at the arbitrary point is still there, unless the block was allocated again."""
    at = anywhere(u)
    was, now = before(u).written[at.content, at.block], after(u).written[at.content, at.block]
    allocated = happens(u, Take, Fill) & (u.at_block == at.block)
    return implies((at.block != 0) & (at.content != 0) & (was == at.block), (now == at.block) | allocated)


STAYS = of_every_step(
    f"{CONTENT}.written-stays",
    ("KV-MEM-01",),
    "What was written into a block stays there until the block is allocated again, and so as long as a table names it, "
    "a copy reads it or the cache lists it.",
    _stays,
    (
        broken(
            "written-over",
            "What a step computes replaces the block's content.",
            Computed,
            lambda state, at: evolve(
                WRITES(state, at), written=state.written.replaced(at.block, 0).put((at.content, at.block), at.block)
            ),
        ),
        unguarded(
            "late-at-any-time",
            "A step that is not in flight any more writes a block.",
            Overwrite,
            lambda state, at: in_pool(state, at.block),
        ),
        broken(
            "eviction-erases",
            "An eviction erases the slots.",
            Forget,
            lambda state, at: evolve(state, written=state.written.replaced(at.block, 0)),
        ),
    ),
    {
        "another content of the block is computed": lambda u: (
            happens(u, Computed) & (u.written[u.any_content, u.at_block] == u.at_block) & (u.any_block == u.at_block)
        ),
        "it is released": lambda u: (
            happens(u, Drop) & (u.any_block == u.at_block) & (u.written[u.any_content, u.at_block] == u.at_block)
        ),
    },
)


def _reads_what_was_written(u: Any) -> Any:
    return implies(happens(u, Hold, Read), is_written_or_owed(after(u), Operands(u.at_block, content=u.at_content)))


_HIT_ON_ANYTHING = unguarded(
    "hit-on-anything",
    "Any block of the pool serves a hit.",
    Hold,
    lambda state, at: in_pool(state, at.block) & (state.named[at.entry] == 0) & (at.content != 0),
)

READS = of_every_step(
    f"{CONTENT}.hit-reads-what-was-written",
    ("KV-MEM-01", "KV-OP-19"),
    "A block that serves a hit, or is copied for one, holds what the request asked for in its slots, or a step that "
    "was scheduled before writes it there.",
    _reads_what_was_written,
    (
        _HIT_ON_ANYTHING,
        unguarded(
            "copy-of-anything",
            "A beginning of any block is copied.",
            Read,
            lambda state, at: (
                in_pool(state, at.block)
                & (state.reads[at.copy] == 0)
                & (state.writes[at.copy] == 0)
                & (at.content != 0)
            ),
        ),
    ),
    {
        "it is owed": lambda u: happens(u, Hold) & (u.written[u.at_content, u.at_block] == 0),
        "a beginning was written": lambda u: (
            happens(u, Read) & (u.content[u.at_block] == 0) & (u.written[u.at_content, u.at_block] == u.at_block)
        ),
    },
)

_LOADED = {"it arrives out of turn": lambda u: happens(u, Provide) & (u.out_of_turn == 1)}


def _arrives(u: Any) -> Any:
    state, at = after(u), Operands(u.at_block, content=u.at_content)
    return implies(
        happens(u, Provide), (state.written[u.at_content, u.at_block] == u.at_block) & (state.late[at.block] == 0)
    )


ARRIVES = of_every_step(
    f"{BLOCKS}.what-arrives-stays",
    ("KV-MEM-01", "KV-MEM-04"),
    "What another node has written into a block is in its slots, and no step in flight writes over it.",
    _arrives,
    (
        broken(
            "arrives-elsewhere",
            "What another node provides is not in the block.",
            Provide,
            lambda state, at: state,
        ),
        unguarded(
            "before-the-steps-in-flight",
            "Another node writes before the steps in flight, though it should write in turn.",
            Provide,
            lambda state, at: (state.filled[at.block] != 0) & (at.content != 0),
        ),
    ),
    _LOADED,
)

OBLIGATIONS = (KNOWN_IS_WRITTEN, LATE_SPOILS_NOTHING, OWED_IS_HELD, LATE_IS_IN_TURN, STAYS, READS, ARRIVES)
