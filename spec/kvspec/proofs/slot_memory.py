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
from kvspec.pool.state import HELD, Operands, State, in_pool, is_cached
from kvspec.pool.transitions import (
    DRAFT,
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
    is_counted,
    one_less,
    will_have,
)
from kvspec.symbolic import implies, negated

CONTENT, BLOCKS, COPIES = "content-and-cached-map", "blocks-and-references", "partial-hits"

TAKEN, WRITES, AIMED, HELD_BY, TAKES_BACK = Take.effect, Computed.effect, Aim.effect, Hold.effect, TakeBack.effect
FILLS = Fill.effect
MAY_REGISTER, MAY_BEGIN, MAY_HOLD, MAY_AIM = (
    Register.precondition,
    Begin.precondition,
    Hold.precondition,
    Aim.precondition,
)
"""What these do, where nothing is broken."""


def _names(state: State, at: Operands) -> Any:
    return (state.named[at.entry] == at.block) & (at.block != 0)


_REGISTERED_EARLY = unguarded(
    "registered-before-it-is-scheduled",
    "A block becomes known to hold what its request does not count as computed.",
    Register,
    lambda state, at: MAY_REGISTER(state, at) & (state.filled[at.block] == 0) & (state.part[at.content] != 0),
)
_DRAFT_IS_KNOWN = unguarded(
    "drafts-become-known",
    "A block becomes known to hold drafts, which may be taken back.",
    Register,
    lambda state, at: (
        MAY_REGISTER(state, at)
        & _names(state, at)
        & (state.filled[at.block] == 0)
        & (state.counts[at.entry] == at.block)
        & (state.has[at.entry] == state.part[at.content])
        & (state.part[at.content] != 0)
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
    lambda state, at: _names(state, at) & (state.filled[at.block] == 0) & (at.content != 0) & (at.other != DRAFT),
)
_FAILED_AND_NEEDED = broken(
    "lost-while-it-is-needed",
    "What a load did not bring is gone for other requests, too, that count it as computed.",
    TakeBack,
    lambda state, at: evolve(TAKES_BACK(state, at), written=state.written.put(at.block, at.content)),
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
        _FAILED_AND_NEEDED,
        unguarded(
            "full-and-not-written-to-its-end",
            "A block becomes known to hold what ends before its last slots.",
            Register,
            lambda state, at: (
                MAY_REGISTER(state, at)
                & (state.filled[at.block] == 0)
                & (is_counted(state, at) | (state.part[at.content] == 0))
            ),
        ),
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


def _counted(state: State, at: Operands, what: Any) -> Any:
    return {"has": state.has.put(at.entry, what), "counts": state.counts.put(at.entry, at.block)}


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
        _FAILED_AND_NEEDED,
        broken(
            "a-hit-counts-more",
            "A hit counts as computed what its block does not hold.",
            Hold,
            lambda state, at: evolve(HELD_BY(state, at), **_counted(state, at, at.content)),
        ),
        broken(
            "a-copy-brings-more",
            "The slots after the end of a copy count as computed.",
            Aim,
            lambda state, at: evolve(AIMED(state, at), **_counted(state, at, state.wants[at.copy])),
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
            happens(u, TakeBack) & (u.tentative[u.at_entry] != 0) & (u.any_entry == u.at_entry)
        ),
        "what a load did not bring is computed again": lambda u: (
            happens(u, Compute) & (u.has[u.at_entry] != 0) & (u.named.count(u.at_block) == 2)
        ),
        "another one takes its place": lambda u: (
            happens(u, Compute) & (u.owed[u.at_block] != 0) & (u.owed[u.at_block] != u.at_content)
        ),
        "a block that is not cached": lambda u: (
            (u.counts[u.any_entry] != 0) & (u.content[u.named[u.any_entry]] == 0) & (u.begun[u.named[u.any_entry]] == 0)
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
    {"the source is evicted meanwhile": lambda u: (u.wants[u.any_copy] != 0) & (u.fixed[u.reads[u.any_copy]] != 0)},
)


_READ_BY_ANOTHER = unguarded(
    "hit-on-anything",
    "Any block of the pool serves a hit.",
    Hold,
    lambda state, at: MAY_HOLD(state, at) & (at.content != 0) & (state.part[at.content] != 0),
)

SHARED_IS_FIXED = inductive(
    BLOCKS,
    invariants.shared_is_fixed,
    ("KV-MEM-01",),
    "What several tables name was known to the cache in each range of its slots, since it was allocated.",
    (_READ_BY_ANOTHER,),
    {"a second table names it": lambda u: happens(u, Hold) & (u.named.count(u.at_block) == 1)},
)

COMPUTED_IS_FIXED = inductive(
    BLOCKS,
    invariants.computed_is_fixed,
    ("KV-MEM-01",),
    "What was known of a block is what each request that names it has computed there, or computes there again after a "
    "load that failed; so no request computes anything else there. No draft is among it.",
    (
        _REGISTERED_EARLY,
        _DRAFT_IS_KNOWN,
        _READ_BY_ANOTHER,
        broken(
            "a-hit-counts-nothing",
            "A request does not know that a block of its hit is written, and may compute something else there.",
            Hold,
            lambda state, at: evolve(HELD_BY(state, at), has=state.has.put(at.entry, 0)),
        ),
    ),
    {
        "it becomes known": lambda u: happens(u, Register) & (u.any_entry == u.at_entry),
        "two requests lose it": lambda u: (
            happens(u, TakeBack)
            & (u.fixed[u.at_block] != 0)
            & (u.named[u.any_entry] == u.at_block)
            & (u.any_entry != u.at_entry)
            & (u.counts[u.any_entry] == 0)
        ),
    },
)

FILLED_IS_NOT_OWED = inductive(
    BLOCKS,
    invariants.filled_is_not_owed,
    ("KV-MEM-04",),
    "No step that is scheduled or in flight still has to write a block that another node writes.",
    (
        unguarded(
            "computed-while-loaded",
            "A step computes for a request whose blocks another node still writes.",
            Compute,
            lambda state, at: _names(state, at) & (state.has[at.entry] == 0) & (at.content != 0),
        ),
        unguarded(
            "copied-while-loaded",
            "A copy brings something to where another node still writes.",
            Aim,
            lambda state, at: MAY_AIM(state, at) & (at.content == state.wants[at.copy]),
        ),
    ),
    {
        "another node begins to write": lambda u: happens(u, Fill) & (u.owed[u.at_block] != 0),
        "a copy ends before that": lambda u: happens(u, Aim) & (u.filled[u.at_block] != 0),
    },
)

FILLED_IS_UNKNOWN = inductive(
    BLOCKS,
    invariants.filled_is_unknown,
    ("KV-MEM-01",),
    "Nothing is known to the cache of a block that another node writes.",
    (
        unguarded(
            "known-while-loaded",
            "A block becomes known while another node writes it.",
            Register,
            lambda state, at: MAY_REGISTER(state, at) & is_counted(state, at) & (state.part[at.content] != 0),
        ),
        unguarded(
            "begun-while-loaded",
            "A boundary becomes an entry of a block that another node writes.",
            Begin,
            lambda state, at: MAY_BEGIN(state, at) & (is_counted(state, at) | (state.part[at.content] == 0)),
        ),
        broken(
            "filled-with-what-is-known",
            "A block that another node writes from now on is known to hold what it held.",
            Fill,
            lambda state, at: evolve(FILLS(state, at), content=state.content),
        ),
    ),
    {"another node begins to write what was cached": lambda u: happens(u, Fill) & (u.content[u.at_block] != 0)},
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
    """What may be read at the arbitrary block is still there, or still owed, unless the block was allocated again, or
    what a load was to bring there is taken back."""
    at, state, now = anywhere(u), before(u), after(u)
    allocated = happens(u, Take, Fill, TakeBack) & (u.at_block == at.block)
    known = state.fixed[at.block]
    kept = (will_have(now, at.block) == known) & (now.fixed[at.block] == known)
    return implies((at.block != 0) & (known != 0) & (will_have(state, at.block) == known), kept | allocated)


STAYS = of_every_step(
    f"{CONTENT}.written-stays",
    ("KV-MEM-01",),
    "What a hit could read stays in its block until the block is allocated again, and so as long as a table names it, "
    "a copy reads it or the cache lists it; unless it is what a load that failed was to bring.",
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
        "it is computed": lambda u: happens(u, Computed) & (u.fixed[u.at_block] != 0) & (u.any_block == u.at_block),
        "it is released": lambda u: happens(u, Drop) & (u.any_block == u.at_block) & (u.fixed[u.at_block] != 0),
    },
)


def _reads_what_was_written(u: Any) -> Any:
    state, part = after(u), u.part[u.at_content]
    return implies(happens(u, Hold, Read) & (part != 0), will_have(state, u.at_block) == part)


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


def _is_its_own(state: State, u: Any) -> Any:
    names = (state.named[u.any_entry] == u.any_block) & (u.any_block != 0)
    return names & (state.refs[u.any_block] == 1) & negated(is_cached(state, u.any_block))


def _stays_its_own(u: Any) -> Any:
    state, later = before(u), after(u)
    # If the other entry names the block, it does so in addition to this one.
    state.named.put(u.at_entry, 0).sees(u.any_entry, state.named[u.any_entry])
    by_another = _is_its_own(state, u) & (u.at_entry != u.any_entry)
    same = (later.owed[u.any_block] == state.owed[u.any_block]) | happens(u, Computed)
    return implies(by_another, _is_its_own(later, u) & same & (later.has[u.any_entry] == state.has[u.any_entry]))


OWN = of_every_step(
    "attention-kinds.own-block-stays-its-own",
    ("KV-MEM-01",),
    "As long as one table entry alone names a block of which nothing is known, nothing that is done for another entry "
    "changes that, and no step is scheduled for another that writes the block: a running state may be there.",
    _stays_its_own,
    (
        _HIT_ON_ANYTHING,
        unguarded(
            "allocated-while-it-is-held",
            "Any block of the pool is allocated.",
            Take,
            lambda state, at: in_pool(state, at.block) & (state.named[at.entry] == 0),
        ),
    ),
    {
        "its state is written": lambda u: (
            happens(u, Computed) & _is_its_own(before(u), u) & (u.at_block == u.any_block) & (u.at_entry != u.any_entry)
        )
    },
)

OBLIGATIONS = (
    OWN,
    KNOWN_IS_WRITTEN,
    COUNTED_IS_WRITTEN,
    WANTED_IS_WRITTEN,
    SHARED_IS_FIXED,
    COMPUTED_IS_FIXED,
    FILLED_IS_NOT_OWED,
    FILLED_IS_UNKNOWN,
    BRINGS,
    OWED_IS_HELD,
    LATE_IS_IN_TURN,
    STAYS,
    READS,
    ARRIVES,
)
