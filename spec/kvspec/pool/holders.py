"""What happens to the holders of a block: the entries that name it, and the copies that read it."""

from __future__ import annotations

from typing import Any

from attrs import evolve

from kvspec.pool.contents import forgotten
from kvspec.pool.state import FREE, HELD, WAITING, Operands, State, in_pool
from kvspec.pool.transition import Transition
from kvspec.symbolic import either


def one_more(state: State, block: Any) -> State:
    """One more holder of ``block``, which waits nowhere then."""
    return evolve(state, refs=state.refs.put(block, state.refs[block] + 1), where=state.where.put(block, HELD))


def one_less(state: State, block: Any) -> State:
    """One holder of ``block`` fewer; without any, it waits where the pin says."""
    waits = either(state.pinned[block] != 0, WAITING, FREE)
    where = state.where.put(block, either(state.refs[block] == 1, waits, HELD))
    return evolve(state, refs=state.refs.put(block, state.refs[block] - 1), where=where)


def _holds(state: State, at: Operands) -> Any:
    """Whether the cached map lists the block for the content asked for."""
    return (at.content != 0) & (state.listed[at.content, at.block] == at.block)


def _begins(state: State, at: Operands) -> Any:
    """Whether the map of the entries lists the block, which has one, for the content asked for."""
    return (at.content != 0) & (state.begins[at.content, at.block] == at.block) & (state.begun[at.block] != 0)


class Take(Transition):
    """A free block is handed out to a table entry, and what it held is forgotten."""

    @staticmethod
    def guard(state: State, at: Operands) -> Any:
        return (state.where[at.block] == FREE) & (state.named[at.entry] == 0)

    @staticmethod
    def effect(state: State, at: Operands) -> State:
        after = forgotten(state, at.block)
        return evolve(
            after,
            named=after.named.put(at.entry, at.block),
            refs=after.refs.put(at.block, 1),
            where=after.where.put(at.block, HELD),
        )


class Hold(Transition):
    """A table entry names a block as well that is known to hold the content asked for: a hit."""

    @staticmethod
    def guard(state: State, at: Operands) -> Any:
        return in_pool(state, at.block) & _holds(state, at) & (state.named[at.entry] == 0)

    @staticmethod
    def effect(state: State, at: Operands) -> State:
        after = one_more(state, at.block)
        return evolve(after, named=after.named.put(at.entry, at.block))


class Read(Transition):
    """A copy holds its source, which holds the content asked for or begins with it: a hit that ends inside a block."""

    @staticmethod
    def guard(state: State, at: Operands) -> Any:
        unused = (state.reads[at.copy] == 0) & (state.writes[at.copy] == 0)
        return in_pool(state, at.block) & (_holds(state, at) | _begins(state, at)) & unused

    @staticmethod
    def effect(state: State, at: Operands) -> State:
        after = one_more(state, at.block)
        return evolve(after, reads=after.reads.put(at.copy, at.block))


class Aim(Transition):
    """A copy gets its destination: a block that one table entry names, that nobody else holds and no hit uses."""

    @staticmethod
    def guard(state: State, at: Operands) -> Any:
        pending = (state.reads[at.copy] != 0) & (state.writes[at.copy] == 0)
        own = (state.named[at.entry] == at.block) & (state.refs[at.block] == 1)
        unused = (state.content[at.block] == 0) & (state.begun[at.block] == 0)
        return pending & (at.block != 0) & own & unused

    @staticmethod
    def effect(state: State, at: Operands) -> State:
        return evolve(state, writes=state.writes.put(at.copy, at.block))


class Move(Transition):
    """A table names a block at another place: a running state that goes on behind it."""

    @staticmethod
    def guard(state: State, at: Operands) -> Any:
        return (state.named[at.entry] == at.block) & (at.block != 0) & (state.named[at.other] == 0)

    @staticmethod
    def effect(state: State, at: Operands) -> State:
        return evolve(state, named=state.named.put(at.entry, 0).put(at.other, at.block))


class Drop(Transition):
    """A table entry gives up its block. No request does in a step in which something is copied into the block."""

    @staticmethod
    def guard(state: State, at: Operands) -> Any:
        return (state.named[at.entry] == at.block) & (at.block != 0) & (state.writes.count(at.block) == 0)

    @staticmethod
    def effect(state: State, at: Operands) -> State:
        after = one_less(state, at.block)
        return evolve(after, named=after.named.put(at.entry, 0))


class ReadDone(Transition):
    """A copy is dispatched, and gives up its source."""

    @staticmethod
    def guard(state: State, at: Operands) -> Any:
        return (state.reads[at.copy] == at.block) & (at.block != 0) & (state.writes[at.copy] != 0)

    @staticmethod
    def effect(state: State, at: Operands) -> State:
        after = one_less(state, at.block)
        return evolve(after, reads=after.reads.put(at.copy, 0), writes=after.writes.put(at.copy, 0))
