"""Chapter 03: the cached map and the blocks agree, and what is allocated is forgotten.

The pool may be of any size: see ``kvspec.pool``.
"""

from __future__ import annotations

from typing import Any

from attrs import evolve

from kvspec.pool import invariants
from kvspec.pool.induction import after, before, broken, happens, inductive, of_every_step, unguarded
from kvspec.pool.state import FREE, HELD, Operands, State, in_pool, is_cached
from kvspec.pool.transitions import Demote, Fill, Forget, Hold, Read, Reset, Take, forgotten
from kvspec.symbolic import implies, negated

CHAPTER = "content-and-cached-map"


def _take_forgets_nothing(state: State, at: Operands) -> State:
    return evolve(
        state,
        named=state.named.put(at.entry, at.block),
        refs=state.refs.put(at.block, 1),
        where=state.where.put(at.block, HELD),
    )


def _forget_leaves_map(state: State, at: Operands) -> State:
    return evolve(forgotten(state, at.block), listed=state.listed)


def _forget_leaves_entries(state: State, at: Operands) -> State:
    return evolve(forgotten(state, at.block), begins=state.begins)


MAP_AGREES = inductive(
    CHAPTER,
    invariants.map_agrees,
    ("KV-INV-05",),
    "In every reachable state the cached map lists a block for a content if and only if the block holds that content.",
    (broken("eviction-leaves-the-map", "An evicted block stays in the cached map.", Forget, _forget_leaves_map),),
    {
        "a cached block is evicted": lambda u: happens(u, Forget) & (u.content[u.at_block] != 0),
        "two blocks hold the same": lambda u: (
            (u.content[u.at_block] == u.content[u.any_block])
            & (u.content[u.any_block] != 0)
            & (u.at_block != u.any_block)
        ),
    },
)

ENTRIES_AGREE = inductive(
    CHAPTER,
    invariants.entries_agree,
    ("KV-INV-05", "KV-OP-18"),
    "In every reachable state a block has as many entries inside as the map of the entries lists for it.",
    (
        broken(
            "eviction-leaves-the-entries",
            "An evicted block is still found by the boundaries inside it.",
            Forget,
            _forget_leaves_entries,
        ),
    ),
    {"a block with two entries is evicted": lambda u: happens(u, Forget) & (u.begun[u.at_block] == 2)},
)


def _is_forgotten(u: Any) -> Any:
    state, block = after(u), u.at_block
    listed = (state.listed[u.any_content, block] == block) | (state.begins[u.any_content, block] == block)
    return negated(is_cached(state, block)) & negated(listed & (u.any_content != 0)) & (state.pinned[block] == 0)


FORGOTTEN = of_every_step(
    f"{CHAPTER}.handed-out-is-forgotten",
    ("KV-OP-10", "KV-OP-18"),
    "A block that is allocated, or evicted by its id, is not cached any more, has no entries, and is not pinned.",
    lambda u: implies(happens(u, Take, Fill, Forget), _is_forgotten(u)),
    (
        broken("take-does-not-forget", "A block keeps its content when it is allocated.", Take, _take_forgets_nothing),
        broken("eviction-leaves-the-map", "An evicted block stays in the cached map.", Forget, _forget_leaves_map),
    ),
    {
        "a cached block is allocated": lambda u: (
            happens(u, Take) & (u.content[u.at_block] != 0) & (u.begun[u.at_block] >= 2)
        )
    },
)


def _was_lost(u: Any) -> Any:
    return (before(u).content[u.any_block] != 0) & (after(u).content[u.any_block] != before(u).content[u.any_block])


ONLY_THESE_FORGET = of_every_step(
    f"{CHAPTER}.only-these-forget",
    ("KV-OP-10", "KV-OP-12", "KV-OP-16"),
    "What a block holds is lost only when it is allocated, evicted by its id, or with everything at a reset.",
    lambda u: implies(_was_lost(u), (happens(u, Take, Fill, Forget) & (u.any_block == u.at_block)) | happens(u, Reset)),
    (
        broken(
            "demotion-forgets",
            "A demoted block is not cached any more.",
            Demote,
            lambda state, at: forgotten(state, at.block),
        ),
    ),
    {
        "a cached block is demoted": lambda u: (
            happens(u, Demote) & (u.content[u.any_block] != 0) & (u.any_block == u.at_block)
        )
    },
)


RESET_DONE = Reset.effect
"""What a reset does, where nothing is broken."""


def _serves(u: Any) -> Any:
    """The block is known to hold what was asked for; to the source of a copy, a beginning is enough."""
    state, block, asked = after(u), u.at_block, u.at_content
    holds = (asked != 0) & (state.content[block] == asked)
    begins = (asked != 0) & (state.begins[asked, block] == block)
    return implies(happens(u, Hold), holds) & implies(happens(u, Read), holds | begins)


def _hold_takes_any(state: State, at: Operands) -> Any:
    return in_pool(state, at.block) & is_cached(state, at.block) & (state.named[at.entry] == 0)


def _read_takes_any(state: State, at: Operands) -> Any:
    unused = (state.reads[at.copy] == 0) & (state.writes[at.copy] == 0)
    return in_pool(state, at.block) & is_cached(state, at.block) & unused


SERVES = of_every_step(
    f"{CHAPTER}.hit-holds-what-was-asked",
    ("KV-OP-19", "KV-MEM-01"),
    "A block that serves a hit is known to hold the content that was asked for; one that is copied for a hit, to hold "
    "it or to begin with it.",
    _serves,
    (
        unguarded("hit-on-anything-cached", "Any cached block serves a hit.", Hold, _hold_takes_any),
        unguarded("copy-of-anything-cached", "A beginning of any cached block is copied.", Read, _read_takes_any),
    ),
    {
        "another block holds it too": lambda u: (
            happens(u, Hold) & (u.content[u.any_block] == u.at_content) & (u.any_block != u.at_block)
        ),
        "a block that is not full is copied": lambda u: happens(u, Read) & (u.content[u.at_block] == 0),
    },
)


def _all_forgotten(u: Any) -> Any:
    state, block = after(u), u.any_block
    kept = (state.refs[block] == u.refs[block]) & (state.named[u.any_entry] == u.named[u.any_entry])
    free = implies((block >= 1) & (block < u.blocks), state.where[block] == FREE) & (state.pinned[block] == 0)
    unlisted = (state.listed[u.any_content, block] == 0) & (state.begins[u.any_content, block] == 0)
    return negated(is_cached(state, block)) & unlisted & (u.refs[block] == 0) & kept & free


RESET = of_every_step(
    f"{CHAPTER}.reset-forgets-all",
    ("KV-OP-11",),
    "A reset happens while no block is held; no block is cached or pinned after it, and all are free.",
    lambda u: implies(happens(u, Reset), _all_forgotten(u)),
    (
        unguarded("reset-under-holders", "A reset happens while blocks are held.", Reset, lambda state, at: True),
        broken(
            "reset-keeps-the-pinned",
            "A reset leaves the pinned blocks in their queue.",
            Reset,
            lambda state, at: evolve(state, content=state.content.emptied(), begun=state.begun.emptied()),
        ),
        broken(
            "reset-leaves-pins",
            "A reset frees the pinned blocks, and their pins stay.",
            Reset,
            lambda state, at: evolve(RESET_DONE(state, at), pinned=state.pinned),
        ),
        broken(
            "reset-leaves-the-map",
            "A reset makes the blocks forget, and the cached map still lists them.",
            Reset,
            lambda state, at: evolve(RESET_DONE(state, at), listed=state.listed),
        ),
    ),
    {"something is pinned": lambda u: happens(u, Reset) & (u.pinned[u.any_block] != 0)},
)

OBLIGATIONS = (MAP_AGREES, ENTRIES_AGREE, FORGOTTEN, ONLY_THESE_FORGET, SERVES, RESET)
