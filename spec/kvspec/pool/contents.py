"""What happens to what a block holds: it becomes known, is pinned, demoted and forgotten."""

from __future__ import annotations

from typing import Any

from attrs import evolve

from kvspec.pool.state import FREE, HELD, WAITING, Operands, State, in_pool, is_cached
from kvspec.pool.transition import Transition
from kvspec.symbolic import either


def forgotten(state: State, block: Any) -> State:
    """What ``block`` holds is not known any more, and so nothing is there to pin."""
    place = state.where[block]
    return evolve(
        state,
        content=state.content.put(block, 0),
        listed=state.listed.put((state.content[block], block), 0),
        begun=state.begun.put(block, 0),
        begins=state.begins.replaced(block, 0),
        pinned=state.pinned.put(block, 0),
        where=state.where.put(block, either(place == WAITING, FREE, place)),
    )


class Register(Transition):
    """A held block becomes known to hold a content."""

    @staticmethod
    def guard(state: State, at: Operands) -> Any:
        return (state.where[at.block] == HELD) & (state.content[at.block] == 0) & (at.content != 0)

    @staticmethod
    def effect(state: State, at: Operands) -> State:
        return evolve(
            state,
            content=state.content.put(at.block, at.content),
            listed=state.listed.put((at.content, at.block), at.block),
        )


class Begin(Transition):
    """A boundary inside a held block becomes an entry."""

    @staticmethod
    def guard(state: State, at: Operands) -> Any:
        return (state.where[at.block] == HELD) & (state.begins[at.content, at.block] == 0) & (at.content != 0)

    @staticmethod
    def effect(state: State, at: Operands) -> State:
        return evolve(
            state,
            begun=state.begun.put(at.block, state.begun[at.block] + 1),
            begins=state.begins.put((at.content, at.block), at.block),
        )


class Pin(Transition):
    """A held block is pinned if a hit could use it; its pin is taken back if not."""

    @staticmethod
    def guard(state: State, at: Operands) -> Any:
        return state.where[at.block] == HELD

    @staticmethod
    def effect(state: State, at: Operands) -> State:
        return evolve(state, pinned=state.pinned.put(at.block, either(is_cached(state, at.block), 1, 0)))


class Demote(Transition):
    """A pinned block that nobody holds becomes free; what it holds stays known."""

    @staticmethod
    def guard(state: State, at: Operands) -> Any:
        return state.where[at.block] == WAITING

    @staticmethod
    def effect(state: State, at: Operands) -> State:
        return evolve(state, pinned=state.pinned.put(at.block, 0), where=state.where.put(at.block, FREE))


class Forget(Transition):
    """A block is evicted by its id, whoever holds it."""

    @staticmethod
    def guard(state: State, at: Operands) -> Any:
        return in_pool(state, at.block)

    @staticmethod
    def effect(state: State, at: Operands) -> State:
        return forgotten(state, at.block)


class Reset(Transition):
    """Everything is forgotten, and nothing is pinned any more; only while nobody holds a block."""

    @staticmethod
    def guard(state: State, _at: Operands) -> Any:
        return state.where.count(HELD) == 0

    @staticmethod
    def effect(state: State, _at: Operands) -> State:
        return evolve(
            state,
            content=state.content.emptied(),
            listed=state.listed.emptied(),
            begun=state.begun.emptied(),
            begins=state.begins.emptied(),
            pinned=state.pinned.emptied(),
            where=state.where.replaced(WAITING, FREE),
        )
