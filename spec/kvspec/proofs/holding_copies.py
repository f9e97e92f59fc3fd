"""Chapter 09: the blocks of a copy are held until the worker has copied.

The pool may be of any size, with any number of copies: see ``kvspec.pool``.
"""

from __future__ import annotations

from typing import Any

from attrs import evolve

from kvspec.pool import invariants
from kvspec.pool.holders import Aim, Drop, Read, ReadDone
from kvspec.pool.induction import before, broken, happens, inductive, of_every_step, unguarded
from kvspec.pool.state import HELD, Operands, State, is_cached
from kvspec.symbolic import implies, negated

CHAPTER = "partial-hits"

DISPATCHED = ReadDone.effect
"""What a dispatch does, where nothing is broken."""


def _read_holds_nothing(state: State, at: Operands) -> State:
    return evolve(state, reads=state.reads.put(at.copy, at.block))


def _dispatch_frees_twice(state: State, at: Operands) -> State:
    after = DISPATCHED(state, at)
    return evolve(after, refs=after.refs.put(at.block, after.refs[at.block] - 1))


SOURCE = inductive(
    CHAPTER,
    invariants.source_is_held,
    ("KV-INV-09", "KV-OP-19"),
    "The source of a copy is held until the copy is dispatched.",
    (
        broken("source-is-not-held", "A copy does not hold its source.", Read, _read_holds_nothing),
        broken("dispatch-releases-twice", "A dispatch takes two references.", ReadDone, _dispatch_frees_twice),
    ),
    {
        "one of two copies of one source is dispatched": lambda u: (
            happens(u, ReadDone) & (u.reads[u.any_copy] == u.at_block) & (u.any_copy != u.at_copy)
        )
    },
)

DESTINATION_NAMED = inductive(
    CHAPTER,
    invariants.destination_is_named,
    ("KV-INV-09", "KV-OP-19"),
    "A table names the destination of a copy until the copy is dispatched: no request gives up a block in a step that "
    "copies into it.",
    (
        unguarded(
            "given-up-before-the-dispatch",
            "A request may end while something is still copied into its block.",
            Drop,
            lambda state, at: (state.named[at.entry] == at.block) & (at.block != 0),
        ),
    ),
    {"another block is given up": lambda u: happens(u, Drop) & (u.writes[u.any_copy] != 0)},
)

DESTINATION_HELD = inductive(
    CHAPTER,
    invariants.destination_is_held,
    ("KV-INV-09",),
    "The destination of a copy is held until the copy is dispatched.",
    (
        unguarded(
            "copied-anywhere",
            "A copy may go into a block that nobody holds.",
            Aim,
            lambda state, at: (state.reads[at.copy] != 0) & (state.writes[at.copy] == 0) & (at.block != 0),
        ),
    ),
    {
        "a destination is the source of another copy": lambda u: (
            (u.writes[u.any_copy] == u.reads[u.at_copy]) & (u.writes[u.any_copy] != 0) & (u.writes[u.at_copy] != 0)
        )
    },
)


def _is_own(u: Any) -> Any:
    state, block = before(u), u.at_block
    # If another entry names the block, it does so beside this one.
    state.named.put(u.at_entry, 0).sees(u.any_entry, block)
    alone = implies(state.named[u.any_entry] == block, u.any_entry == u.at_entry)
    unread = (state.reads[u.any_copy] != block) & (state.reads[u.at_copy] != block)
    return alone & unread & (state.where[block] == HELD) & negated(is_cached(state, block))


OWN = of_every_step(
    f"{CHAPTER}.destination-is-own",
    ("KV-OP-19",),
    "A copy goes into a block that its request alone holds and no hit uses, and never into its own source.",
    lambda u: implies(happens(u, Aim), _is_own(u)),
    (
        unguarded(
            "copied-into-what-is-shared",
            "A copy may go into a block that several tables name.",
            Aim,
            lambda state, at: (state.reads[at.copy] != 0) & (state.named[at.entry] == at.block) & (at.block != 0),
        ),
    ),
    {"another copy is pending": lambda u: happens(u, Aim) & (u.writes[u.any_copy] != 0)},
)

OBLIGATIONS = (SOURCE, DESTINATION_NAMED, DESTINATION_HELD, OWN)
