"""The state of the blocks, as maps: who holds which, where each waits, what the cache lists, and what was written.

A map that does not mention a key has 0 there. An *entry* is one place in the block table of one request in one group.
Of the slots of a block one range is looked at, which is arbitrary: what is proved of it is so of each. What is written
there stands for the tokens up to its end.
A state leaves out in which order blocks wait, how far a request is, and which of several blocks serves a hit.
"""

from __future__ import annotations

from typing import Any

from attrs import frozen

from kvspec.maps import Map, filled
from kvspec.symbolic import Condition, Number

NOWHERE, HELD, FREE, WAITING = range(4)
"""Where a block is: not in the pool, in no queue, in the free queue, in the queue of the pinned ones."""


@frozen
class State:
    """All blocks. The null block is 0, and no block of the pool."""

    blocks: Number
    """How many blocks there are, the null block included."""
    out_of_turn: Number
    """1 if another node may write to blocks while a step in flight reads or writes them, else 0."""
    refs: Map
    """Block to its reference count."""
    named: Map
    """Table entry to the block that it names."""
    reads: Map
    """Pending copy to its source."""
    writes: Map
    """Pending copy to its destination, once it has one."""
    where: Map
    """Block to where it is."""
    pinned: Map
    """Block to 1 if it is pinned."""
    content: Map
    """Block to the content that it is known to hold."""
    listed: Map
    """Content and block to the block, if the cached map lists the block for the content."""
    begun: Map
    """Block to how many boundaries inside it are entries."""
    begins: Map
    """Content up to a boundary, and block, to the block, if the map of the entries lists it for the content."""
    uses: Map
    """Use by a step in flight to the block that the step reads or writes."""
    filled: Map
    """Block to 1 if another node writes it now."""
    part: Any
    """Content to what it has in the slot range that is looked at, or 0 if it ends before. No transition changes it."""
    written: Map
    """Block to what is in that range of its slots: what was written there last, independent of the cache."""
    owed: Map
    """Block to what a step that is scheduled or in flight writes there, and writes last."""
    late: Map
    """Block to 1 if a step in flight may still write it for a holder that it no longer has."""
    fixed: Map
    """Block to what was known of it in the range since it was allocated; 0 if nothing was that reaches it."""
    has: Map
    """Table entry to what its request has computed in that range of its block, drafts and partial blocks too; or what
    it computes there again."""
    counts: Map
    """Table entry to its block, if its request counts that as computed: not what it computes again."""
    tentative: Map
    """Table entry to 1 if that is of drafts, which may be taken back."""
    wants: Map
    """Pending copy to what it is to bring there."""


FIXED = ("blocks", "out_of_turn")
"""The maps that no transition changes."""
MAPS = {name: 2 if name in ("listed", "begins") else 1 for name in State.__annotations__ if name not in FIXED}
"""The maps of a state, and how many numbers a key of each has."""


@frozen
class Operands:
    """The operands of a transition. Those that it does not need are 0."""

    block: Any = 0
    entry: Any = 0
    other: Any = 0
    """The entry that a block moves to; or whether drafts are computed."""
    copy: Any = 0
    content: Any = 0
    """What becomes known or is asked for; or what is written into the slot range."""
    use: Any = 0


def initial(like: State) -> State:
    """A pool of as many blocks as ``like``, in which everything is free."""
    nothing = {name: getattr(like, name).emptied() for name in MAPS}
    return State(like.blocks, like.out_of_turn, **{**nothing, "where": filled(1, like.blocks, FREE), "part": like.part})


def in_pool(state: State, block: Number) -> Condition:
    """Whether there is such a block, and it is not the null block."""
    there: Condition = (block >= 1) & (block < state.blocks)
    return there


def is_cached(state: State, block: Number) -> Condition:
    """Whether ``block`` is known to hold something that a hit could use."""
    cached: Condition = (state.content[block] != 0) | (state.begun[block] != 0)
    return cached


def is_found(lists: Map, content: Number, block: Number) -> Condition:
    """Whether a map lists the block for the content: then a look-up may find it."""
    found: Condition = (block >= 1) & (lists[content, block] == block)
    return found


class Transition:
    """One thing that can happen to one block; what can happen, and what it does."""

    @staticmethod
    def guard(state: State, at: Operands) -> Condition:
        """Whether it can happen."""
        raise NotImplementedError

    @classmethod
    def precondition(cls, state: State, at: Operands) -> Condition:
        """What of the guard the invariants of holders, queues and maps rest on: nothing of what is in the slots."""
        return cls.guard(state, at)

    @staticmethod
    def effect(state: State, at: Operands) -> State:
        """The state after it."""
        raise NotImplementedError
