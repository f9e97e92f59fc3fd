"""Chapter 09: what is copied for a hit that ends inside a block, from where, to where, and how long both are held.

A hit ends at a multiple of the unit, and the unit divides the block. Whether the group has a draft layer is open
throughout. The blocks of a copy are held until the worker has copied: this is proved for a pool of any size, with any
number of copies (``kvspec.pool``).
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from attrs import evolve

from kvreference import hit_lookup
from kvreference.answers import Copy, Hit, Partial
from kvreference.geometry import Group
from kvreference.holdings import Holdings
from kvspec.obligation import AMap, Count, Lemma, Obligation, Unknown, only
from kvspec.pool import invariants
from kvspec.pool.induction import before, broken, happens, inductive, of_every_step, unguarded
from kvspec.pool.state import HELD, Operands, State, is_cached
from kvspec.pool.transitions import Aim, Drop, Read, ReadDone
from kvspec.proofs.hit_lookup import full_of
from kvspec.proofs.lemmas import REMAINDER
from kvspec.symbolic import implies, negated

SIZES: dict[str, Unknown] = {"block": Count(1), "unit": Count(1), "lookahead": Count(0, 1), "hit": Count(1)}


def whole_units(u: Any) -> Any:
    """The unit divides the block, and the hit is whole units."""
    return (u.block % u.unit == 0) & (u.hit % u.unit == 0)


def binds(_geometry: Any, its: Group) -> dict[str, int] | None:
    """A group inside of whose blocks a hit may end."""
    if not its.copies:
        return None
    return {"block": its.block_size_tokens, "unit": its.unit, "lookahead": int(its.lookahead)}


class SomeFound(hit_lookup._Found):
    """The cached blocks of such a group: unknown ones, and one that begins with what must match."""

    def __init__(self, u: Any) -> None:
        self.group = full_of(u)
        self.index = 0
        self.blocks = u.blocks
        self.begins: int = u.begins

    def _beginning(self, _matched_tokens: int) -> int:
        return self.begins


def partial(u: Any) -> Partial | None:
    """The copied tokens, by the code that runs."""
    return SomeFound(u).partial(u.hit)


def _exactly(u: Any) -> Any:
    copied = partial(u)
    if copied is None:
        return u.hit % u.block == 0
    return (u.hit // u.block * u.block + copied.tokens == u.hit) & (copied.tokens >= 1) & (copied.tokens < u.block)


FOUND = {**SIZES, "blocks": AMap(), "begins": Count(1)}

EXACTLY = Obligation(
    id="partial-hits.exactly-what-is-inside",
    statements=("KV-OP-19",),
    title="A copy takes exactly the tokens of the hit that lie after its full blocks: at least one, and less than "
    "a block; and there is none if the hit ends where a block does.",
    unknowns=FOUND,
    assumes=whole_units,
    claim=_exactly,
    witnesses={"inside a block": lambda u: partial(u) is not None and (u.hit > u.block) & (u.unit >= 2)},
    mutants=(
        only(
            "look-ahead-is-copied",
            "What must match is copied, and not what is served.",
            "kvreference.hit_lookup:_Found.partial",
            lambda self, hit_tokens: (
                Partial(0, 1, self.group.tokens_matched(hit_tokens) % self.group.block_size_tokens)
                if hit_tokens % self.group.block_size_tokens
                else None
            ),
        ),
    ),
    binds=binds,
)


def _source_holds_it(u: Any) -> Any:
    copied = partial(u)
    if copied is None:
        return True
    matched = full_of(u).tokens_matched(u.hit)
    place = u.hit // u.block
    # A block that begins with the first `matched` tokens holds those from the start of the block in which they end.
    begun = (copied.source == u.begins) & ((matched - 1) // u.block == place) & negated(matched % u.block == 0)
    whole = (copied.source == u.blocks[place]) & (matched == (place + 1) * u.block)
    return (begun | whole) & (matched >= u.hit)


SOURCE = Obligation(
    id="partial-hits.source-holds-it",
    statements=("KV-OP-19", "KV-OP-02", "KV-MEM-01"),
    title="The source of a copy holds the block in which the hit ends, at least as far as the hit: it is that "
    "block, full, or one that begins with all that must match.",
    unknowns=FOUND,
    assumes=whole_units,
    claim=_source_holds_it,
    lemmas=lambda u: (Lemma(REMAINDER, {"number": u.hit, "block": u.block, "unit": u.unit}),),
    witnesses={
        "a full block": lambda u: partial(u) is not None and ((u.hit + u.unit) % u.block == 0) & (u.lookahead == 1),
        "a block that begins so": lambda u: partial(u) is not None and ((u.hit + u.unit) % u.block > 0) & (u.unit > 1),
    },
    mutants=(
        only(
            "block-before",
            "The full block before the one in which the hit ends is taken as source.",
            "kvreference.hit_lookup:_Found.partial",
            lambda self, hit_tokens: (
                Partial(
                    0,
                    self.blocks[hit_tokens // self.group.block_size_tokens - 1],
                    hit_tokens % self.group.block_size_tokens,
                )
                if hit_tokens % self.group.block_size_tokens
                else None
            ),
        ),
    ),
    binds=binds,
)


def copy(u: Any) -> Copy:
    """The copy that serves the hit, by the code that runs."""
    hit = Hit(u.hit, (), (Partial(0, 1, u.hit % u.block),))
    pool = SimpleNamespace(touch=list)
    tables: Any = {1: [SimpleNamespace(blocks=u.table)]}
    holdings: Any = SimpleNamespace(groups=(full_of(u),), pool=pool, copies=[], tables=tables)
    Holdings._read(holdings, hit)
    Holdings._aim(holdings, 1, hit)
    made: Copy = holdings.copies[0]
    return made


def _aims_before(self: Any, request: int, hit: Hit) -> None:
    place = hit.tokens // self.groups[0].block_size_tokens - 1
    self.copies[0] = Copy(0, 1, self.tables[request][0].blocks[place], 1)


DESTINATION = Obligation(
    id="partial-hits.into-the-own-block",
    statements=("KV-OP-19", "KV-INV-09", "KV-MEM-01"),
    title="A copy goes into the request's own block after the full ones of the hit, into which the first token "
    "after the hit is computed.",
    unknowns={**SIZES, "table": AMap()},
    assumes=lambda u: whole_units(u) & (u.hit % u.block > 0),
    claim=lambda u: (
        (copy(u).destination == u.table[u.hit // u.block])
        & (u.hit // u.block * u.block <= u.hit)
        & (u.hit < (u.hit // u.block + 1) * u.block)
        & (copy(u).tokens < u.block)
    ),
    witnesses={"after full blocks": lambda u: (u.hit > u.block) & (u.unit >= 2)},
    mutants=(
        only(
            "into-a-block-of-the-hit",
            "The copy goes into the last full block of the hit, which others read.",
            "kvreference.holdings:Holdings._aim",
            lambda self, request, hit: _aims_before(self, request, hit),
        ),
    ),
    binds=binds,
)


COPIED = (EXACTLY, SOURCE, DESTINATION)


CHAPTER = "partial-hits"

DISPATCHED = ReadDone.effect
"""What a dispatch does, where nothing is broken."""


def _read_holds_nothing(state: State, at: Operands) -> State:
    return evolve(state, reads=state.reads.put(at.copy, at.block))


def _dispatch_frees_twice(state: State, at: Operands) -> State:
    after = DISPATCHED(state, at)
    return evolve(after, refs=after.refs.put(at.block, after.refs[at.block] - 1))


SOURCE_HELD = inductive(
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
    "A table names the destination of a copy until the copy is dispatched: no request frees a block in a step that "
    "copies into it.",
    (
        unguarded(
            "given-up-before-the-dispatch",
            "A request may end while something is still copied into its block.",
            Drop,
            lambda state, at: (state.named[at.entry] == at.block) & (at.block != 0),
        ),
    ),
    {"another block is released": lambda u: happens(u, Drop) & (u.writes[u.any_copy] != 0)},
)

DESTINATION_HELD = inductive(
    CHAPTER,
    invariants.destination_is_held,
    ("KV-INV-09",),
    "The destination of a copy is held until the copy is dispatched.",
    (
        unguarded(
            "copied-anywhere",
            "A copy may go into a block that is not held.",
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
    # If another entry names the block, it does so in addition to this one.
    state.named.put(u.at_entry, 0).sees(u.any_entry, block)
    alone = implies(state.named[u.any_entry] == block, u.any_entry == u.at_entry)
    unread = (state.reads[u.any_copy] != block) & (state.reads[u.at_copy] != block)
    return alone & unread & (state.where[block] == HELD) & negated(is_cached(state, block))


OWN = of_every_step(
    f"{CHAPTER}.destination-is-own",
    ("KV-OP-19",),
    "A copy goes into a block that only its request holds and no hit uses, and never into its own source.",
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

HELD_COPIES = (SOURCE_HELD, DESTINATION_NAMED, DESTINATION_HELD, OWN)
OBLIGATIONS = (*COPIED, *HELD_COPIES)
