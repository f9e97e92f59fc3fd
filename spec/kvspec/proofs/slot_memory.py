"""What the slots of blocks hold: what was written there last, independent of the cache.

A step that is scheduled owes what it will write; it writes when it is computed, in the order in which steps are
dispatched. Another node may write out of turn. The pool may be of any size, with any number of
requests and steps in flight: see ``kvspec.pool``. One range of the slots of a block is looked at, which is arbitrary.
A write replaces the content, whether it becomes known to the cache or not: drafts, and
blocks that are never full, too. A write stands for the tokens up to its end; that these slots are those that a step
computes is proved of the formulas (chapters 04 and 08).
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
    happens,
    inductive,
    of_every_step,
    recalled,
    unguarded,
)
from kvspec.pool.state import HELD, Operands, State, in_pool
from kvspec.pool.transitions import (
    Aim,
    Begin,
    Compute,
    Computed,
    Drop,
    Fill,
    Hold,
    Overwrite,
    Provide,
    Read,
    ReadDone,
    Register,
    Take,
    TakeBack,
    is_there,
    one_less,
    will_have,
)
from kvspec.symbolic import implies

CONTENT, BLOCKS, COPIES = "content-and-cached-map", "blocks-and-references", "partial-hits"

TAKEN, WRITES, AIMED, HELD_BY = Take.effect, Computed.effect, Aim.effect, Hold.effect
"""What these do, where nothing is broken."""


def _names(state: State, at: Operands) -> Any:
    return (state.named[at.entry] == at.block) & (at.block != 0)


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
    lambda state, at: (state.owed[at.block] != 0) & (at.block != 0),
)
_OVER_WHAT_IS_READ = unguarded(
    "written-over-what-a-hit-reads",
    "A request computes something else into a block that it names, also if others read it.",
    Compute,
    lambda state, at: _names(state, at) & (state.filled[at.block] == 0) & (at.content != 0),
)

KNOWN_IS_WRITTEN = inductive(
    CONTENT,
    invariants.known_is_written,
    ("KV-MEM-01",),
    "In every reachable state each range of a block's slots holds what the cache says of it, a beginning too, or a "
    "step that is scheduled or in flight writes it there, and writes nothing else after it.",
    (
        _REGISTERED_EARLY,
        _OUT_OF_ORDER,
        _OVER_WHAT_IS_READ,
        unguarded(
            "begun-before-it-is-scheduled",
            "A boundary becomes an entry of a block in which something else is.",
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
            & (u.part[u.any_content] != 0)
            & (u.written[u.any_block] == 0)
        ),
        "it is computed": lambda u: happens(u, Computed) & (u.owed[u.at_block] == u.part[u.content[u.at_block]]),
        "a beginning becomes known": lambda u: happens(u, Begin) & (u.content[u.at_block] != 0),
    },
)

COUNTED_IS_WRITTEN = inductive(
    BLOCKS,
    invariants.counted_is_written,
    ("KV-MEM-01",),
    "In every reachable state what a request counts as computed is in the blocks that its tables name, range by range, "
    "or a scheduled step writes it there, and writes nothing else after it: also in blocks that are never cached, and "
    "of drafts until they are taken back.",
    (
        _OUT_OF_ORDER,
        _OVER_WHAT_IS_READ,
        broken(
            "a-hit-counts-more",
            "A hit counts as computed what its block does not hold.",
            Hold,
            lambda state, at: evolve(HELD_BY(state, at), has=state.has.put(at.entry, at.content)),
        ),
        broken(
            "a-copy-brings-more",
            "The slots after the end of a copy count as computed.",
            Aim,
            lambda state, at: evolve(AIMED(state, at), has=state.has.put(at.entry, state.wants[at.copy])),
        ),
        unguarded(
            "loaded-over-what-is-read",
            "Another node writes into a block that several tables name.",
            Provide,
            lambda state, at: (
                _names(state, at)
                & (state.filled[at.block] != 0)
                & (state.late[at.block] == 0)
                & (state.owed[at.block] == 0)
                & (at.content != 0)
            ),
        ),
    ),
    {
        "a draft is taken back": lambda u: (
            happens(u, TakeBack) & (u.has[u.at_entry] != 0) & (u.any_entry == u.at_entry)
        ),
        "another one takes its place": lambda u: (
            happens(u, Compute) & (u.owed[u.at_block] != 0) & (u.owed[u.at_block] != u.at_content)
        ),
        "a block that is not cached": lambda u: (
            (u.has[u.any_entry] != 0) & (u.content[u.named[u.any_entry]] == 0) & (u.begun[u.named[u.any_entry]] == 0)
        ),
    },
)

WANTED_IS_WRITTEN = inductive(
    COPIES,
    invariants.wanted_is_written,
    ("KV-MEM-01", "KV-OP-19"),
    "Until a copy is dispatched, what it is to bring is in its source, or a step that is scheduled before it writes it "
    "there.",
    (
        _OVER_WHAT_IS_READ,
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
    {"the source is evicted meanwhile": lambda u: (u.wants[u.any_copy] != 0) & (u.fixed[u.reads[u.any_copy]] == 1)},
)


def _brings(u: Any) -> Any:
    """What the copy wants is what is there when it is dispatched; and it goes where a request counts it."""
    state = before(u)
    recalled(state, anywhere(u))
    wants = state.wants[u.at_copy]
    return implies(happens(u, ReadDone) & (wants != 0), will_have(state, u.at_block) == wants)


BRINGS = of_every_step(
    f"{COPIES}.copy-brings-what-it-should",
    ("KV-MEM-01", "KV-OP-19"),
    "When a copy is dispatched, its source has what the request asked for, after the steps that were scheduled before.",
    _brings,
    (
        unguarded(
            "from-another-source",
            "A copy is made from any block of the pool.",
            ReadDone,
            lambda state, at: in_pool(state, at.block) & (state.writes[at.copy] != 0),
        ),
    ),
    {"something is brought": lambda u: happens(u, ReadDone) & (u.wants[u.at_copy] != 0)},
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
            lambda state, at: _names(state, at) & (state.writes.count(at.block) == 0) & (state.filled[at.block] == 0),
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
    """What may be read at the arbitrary block is still there, or still owed, unless the block was allocated again."""
    at, state, now = anywhere(u), before(u), after(u)
    allocated = happens(u, Take, Fill) & (u.at_block == at.block)
    there = will_have(state, at.block)
    kept = (will_have(now, at.block) == there) & (now.fixed[at.block] != 0)
    return implies((at.block != 0) & (state.fixed[at.block] != 0) & (there != 0), kept | allocated)


STAYS = of_every_step(
    f"{CONTENT}.written-stays",
    ("KV-MEM-01",),
    "What a hit could read stays in its block until the block is allocated again, and so as long as a table names it, "
    "a copy reads it or the cache lists it.",
    _stays,
    (
        _OVER_WHAT_IS_READ,
        broken(
            "written-elsewhere",
            "What a step writes is not what it was scheduled to write.",
            Computed,
            lambda state, at: evolve(WRITES(state, at), written=state.written.put(at.block, at.content)),
        ),
        unguarded(
            "late-at-any-time",
            "A step that is not in flight any more writes a block.",
            Overwrite,
            lambda state, at: in_pool(state, at.block),
        ),
    ),
    {
        "it is computed": lambda u: happens(u, Computed) & (u.fixed[u.at_block] == 1) & (u.any_block == u.at_block),
        "it is released": lambda u: happens(u, Drop) & (u.any_block == u.at_block) & (u.fixed[u.at_block] == 1),
    },
)


def _reads_what_was_written(u: Any) -> Any:
    return implies(happens(u, Hold, Read), is_there(after(u), Operands(u.at_block, content=u.at_content)))


_HIT_ON_ANYTHING = unguarded(
    "hit-on-anything",
    "Any block of the pool serves a hit.",
    Hold,
    lambda state, at: in_pool(state, at.block) & (state.named[at.entry] == 0) & (at.content != 0),
)

READS = of_every_step(
    f"{CONTENT}.hit-reads-what-was-written",
    ("KV-MEM-01", "KV-OP-19"),
    "A block that serves a hit, or is copied for one, holds what the request asked for in each range of its slots, or "
    "a step that was scheduled before writes it there.",
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
        "it is owed": lambda u: (
            happens(u, Hold) & (u.owed[u.at_block] != 0) & (u.written[u.at_block] != u.owed[u.at_block])
        ),
        "a beginning was written": lambda u: (
            happens(u, Read)
            & (u.content[u.at_block] == 0)
            & (u.part[u.at_content] != 0)
            & (u.written[u.at_block] == u.part[u.at_content])
        ),
    },
)

_LOADED = {"it arrives out of turn": lambda u: happens(u, Provide) & (u.out_of_turn == 1)}


def _arrives(u: Any) -> Any:
    state = after(u)
    return implies(happens(u, Provide), (will_have(state, u.at_block) == u.at_content) & (state.late[u.at_block] == 0))


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
            lambda state, at: (state.filled[at.block] != 0) & (at.content != 0) & _names(state, at),
        ),
    ),
    _LOADED,
)

OBLIGATIONS = (
    KNOWN_IS_WRITTEN,
    COUNTED_IS_WRITTEN,
    WANTED_IS_WRITTEN,
    BRINGS,
    OWED_IS_HELD,
    LATE_IS_IN_TURN,
    STAYS,
    READS,
    ARRIVES,
)
