"""The invariants of every state, for any one block, table entry, pending copy and content: a *point*.

Each is proved to be inductive in ``kvspec.proofs``, and evaluated on the states of the reference by
``kvspec.refinement``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import Any, TypeAlias

from attrs import frozen

from kvspec.pool.state import FREE, HELD, NOWHERE, WAITING, Operands, State, in_pool, is_cached
from kvspec.pool.transitions import will_have
from kvspec.symbolic import either, implies, negated

Point: TypeAlias = Operands
"""The place that an invariant is about."""
Invariant: TypeAlias = Callable[[State, Point], Any]


class About(Enum):
    """The parts of a point that an invariant reads."""

    POOL = "nothing"
    BLOCK = "the block"
    CONTENT = "the block and the content"
    COPY = "the copy"
    ENTRY = "the entry"


@frozen
class Law:
    """The guarantee that an invariant belongs to, and what it is about."""

    statement: str
    about: About


def in_one_place(state: State, at: Point) -> Any:
    """A block of the pool is held, free or waits as pinned; what is not a block of the pool is in none of these."""
    place = state.where[at.block]
    return ((place != NOWHERE) == in_pool(state, at.block)) & (place >= NOWHERE) & (place <= WAITING)


def conserved(state: State, _at: Point) -> Any:
    """Held, free and waiting blocks are all blocks but the null block."""
    return state.where.count(HELD) + state.where.count(FREE) + state.where.count(WAITING) == state.blocks - 1


def counts_holders(state: State, at: Point) -> Any:
    """A block counts as many references as table entries name it and copies read it."""
    holders = state.named.count(at.block) + state.reads.count(at.block)
    return implies(at.block != 0, state.refs[at.block] == holders)


def held_if_referenced(state: State, at: Point) -> Any:
    """A block is in no queue if and only if it counts a reference, and no count is negative."""
    references = state.refs[at.block]
    return ((state.where[at.block] == HELD) == (references >= 1)) & (references >= 0)


def free_if_unpinned(state: State, at: Point) -> Any:
    """A block in the free queue is not pinned."""
    return implies(state.where[at.block] == FREE, state.pinned[at.block] == 0)


def waits_if_pinned(state: State, at: Point) -> Any:
    """A block in the pinned queue is pinned."""
    return implies(state.where[at.block] == WAITING, state.pinned[at.block] != 0)


def pinned_is_cached(state: State, at: Point) -> Any:
    """A pinned block holds something that a hit could use."""
    return implies(state.pinned[at.block] != 0, is_cached(state, at.block))


def map_agrees(state: State, at: Point) -> Any:
    """The cached map lists a block for a content if and only if the block holds it."""
    lists = state.listed[at.content, at.block]
    return implies(at.content != 0, lists == either(state.content[at.block] == at.content, at.block, 0))


def entries_agree(state: State, at: Point) -> Any:
    """A block has as many entries inside as the map of the entries lists for it."""
    lists = state.begins[at.content, at.block]
    return ((lists == 0) | (lists == at.block)) & implies(
        at.block != 0, state.begun[at.block] == state.begins.count(at.block)
    )


def null_is_nothing(state: State, at: Point) -> Any:
    """A number that is not a block of the pool, such as the null block, holds nothing and is not pinned."""
    cached = (state.content[at.block] != 0) | (state.begun[at.block] != 0)
    return in_pool(state, at.block) | (negated(cached) & (state.pinned[at.block] == 0))


def source_is_held(state: State, at: Point) -> Any:
    """The source of a pending copy counts a reference."""
    source = state.reads[at.copy]
    return (source == 0) | (state.refs[source] >= 1)


def destination_is_named(state: State, at: Point) -> Any:
    """A pending copy that has a destination has a source, and a table entry names its destination."""
    destination = state.writes[at.copy]
    return (destination == 0) | ((state.reads[at.copy] != 0) & (state.named.count(destination) >= 1))


def destination_is_held(state: State, at: Point) -> Any:
    """The destination of a pending copy counts a reference."""
    destination = state.writes[at.copy]
    return (destination == 0) | (state.refs[destination] >= 1)


def used_is_held(state: State, at: Point) -> Any:
    """Where another node may write out of turn, a block that a step in flight reads or writes counts a reference."""
    used = (state.out_of_turn != 0) & (state.uses.count(at.block) != 0)
    return implies((at.block != 0) & used, state.refs[at.block] >= 1)


def filled_is_held(state: State, at: Point) -> Any:
    """A block that another node writes counts a reference."""
    return implies(state.filled[at.block] != 0, state.refs[at.block] >= 1)


def filled_is_unused(state: State, at: Point) -> Any:
    """Where it may write out of turn, no step in flight reads or writes a block that another node writes."""
    filled = (state.out_of_turn != 0) & (state.filled[at.block] != 0)
    return implies((at.block != 0) & filled, state.uses.count(at.block) == 0)


def known_is_written(state: State, at: Point) -> Any:
    """The cached content of a block was written there, or a step that is scheduled or in flight writes it."""
    full = state.content[at.block] == at.content
    known = (full | (state.begins[at.content, at.block] == at.block)) & (at.block != 0) & (at.content != 0)
    part = state.part[at.content]
    there = (will_have(state, at.block) == part) & (state.fixed[at.block] == part)
    return implies(known & (part != 0), there) & implies(known & full, part != 0)


def counted_is_written(state: State, at: Point) -> Any:
    """What a request counts as computed is in the block that it names, or a scheduled step writes it there."""
    block, has, counts = state.named[at.entry], state.has[at.entry], state.counts[at.entry]
    there = (counts == block) & (has != 0) & (will_have(state, block) == has)
    return implies(counts != 0, there) & implies(block == 0, has == 0)


def shared_is_fixed(state: State, at: Point) -> Any:
    """What several tables name was known in the range."""
    return implies((at.block != 0) & (state.named.count(at.block) >= 2), state.fixed[at.block] != 0)


def computed_is_fixed(state: State, at: Point) -> Any:
    """What was known of a block is what each request that names it has computed there, and is sure of."""
    block, has = state.named[at.entry], state.has[at.entry]
    known = (block != 0) & (state.fixed[block] != 0)
    return implies(known, (has == state.fixed[block]) & (state.tentative[at.entry] == 0))


def wanted_is_written(state: State, at: Point) -> Any:
    """What a pending copy is to bring is in its source, or a step that is scheduled before it writes it there."""
    source, wants = state.reads[at.copy], state.wants[at.copy]
    there = (will_have(state, source) == wants) & (state.fixed[source] == wants)
    return implies((source != 0) & (wants != 0), there)


def filled_is_not_owed(state: State, at: Point) -> Any:
    """No step computes a block that another node writes."""
    return implies((at.block != 0) & (state.filled[at.block] != 0), state.owed[at.block] == 0)


def filled_is_unknown(state: State, at: Point) -> Any:
    """Of a block that another node writes nothing is known to the cache."""
    return implies((at.block != 0) & (state.filled[at.block] != 0), negated(is_cached(state, at.block)))


def owed_is_held(state: State, at: Point) -> Any:
    """Where another node may write out of turn, a block that a step still has to write counts a reference."""
    owed = (state.out_of_turn != 0) & (state.owed[at.block] != 0)
    return implies((at.block != 0) & owed, state.refs[at.block] >= 1)


def late_is_in_turn(state: State, at: Point) -> Any:
    """Where another node may write out of turn, no step writes a block for a former holder."""
    return implies(at.block != 0, (state.out_of_turn == 0) | (state.late[at.block] == 0))


INVARIANTS: Mapping[Invariant, Law] = MappingProxyType(
    {
        in_one_place: Law("KV-INV-02", About.BLOCK),
        conserved: Law("KV-INV-03", About.POOL),
        counts_holders: Law("KV-INV-01", About.BLOCK),
        held_if_referenced: Law("KV-INV-02", About.BLOCK),
        free_if_unpinned: Law("KV-INV-02", About.BLOCK),
        waits_if_pinned: Law("KV-INV-07", About.BLOCK),
        pinned_is_cached: Law("KV-INV-07", About.BLOCK),
        map_agrees: Law("KV-INV-05", About.CONTENT),
        entries_agree: Law("KV-INV-05", About.CONTENT),
        null_is_nothing: Law("KV-INV-06", About.BLOCK),
        source_is_held: Law("KV-INV-09", About.COPY),
        destination_is_named: Law("KV-INV-09", About.COPY),
        destination_is_held: Law("KV-INV-09", About.COPY),
        used_is_held: Law("KV-MEM-04", About.BLOCK),
        filled_is_held: Law("KV-MEM-04", About.BLOCK),
        filled_is_unused: Law("KV-MEM-04", About.BLOCK),
        known_is_written: Law("KV-MEM-01", About.CONTENT),
        owed_is_held: Law("KV-MEM-04", About.BLOCK),
        late_is_in_turn: Law("KV-MEM-04", About.BLOCK),
        counted_is_written: Law("KV-MEM-01", About.ENTRY),
        wanted_is_written: Law("KV-MEM-01", About.COPY),
        shared_is_fixed: Law("KV-MEM-01", About.BLOCK),
        computed_is_fixed: Law("KV-MEM-01", About.ENTRY),
        filled_is_not_owed: Law("KV-MEM-04", About.BLOCK),
        filled_is_unknown: Law("KV-MEM-01", About.BLOCK),
    }
)
"""All of them. Together they are inductive: each is preserved if all hold before."""

STRUCTURAL: Sequence[Invariant] = tuple(each for each, law in INVARIANTS.items() if law.statement.startswith("KV-INV"))
"""Those of holders, queues and maps, which say nothing of what is in the slots: inductive by themselves, where only the
preconditions of the transitions are kept."""
