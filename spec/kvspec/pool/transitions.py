"""All transitions: every change of a block is one of these.

The content of a block becomes known, is pinned, demoted and forgotten. Its holders are the entries that name it and the
copies that read it. Steps in flight read and write it, and another node may write it. Its written content and its
cached content are separate.
"""

from __future__ import annotations

from typing import Any

from attrs import evolve

from kvspec.pool.state import FREE, HELD, WAITING, Operands, State, Transition, in_pool, is_cached, is_found
from kvspec.symbolic import either, negated


def forgotten(state: State, block: Any) -> State:
    """The content of ``block`` is not known any more, so it cannot be pinned."""
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


def will_have(state: State, block: Any) -> Any:
    """What the slot range of ``block`` holds once all steps are over that are scheduled; 0 if that is not known.

    Steps are computed in order: what is written for a former holder is written before all that is owed.
    """
    owed = state.owed[block]
    return either(owed != 0, owed, either(state.late[block] == 0, state.written[block], 0))


def is_counted(state: State, at: Operands) -> Any:
    """Whether the request of the entry counts as computed what the content has in the range: drafts are not sure."""
    counted = (state.counts[at.entry] == at.block) & (state.tentative[at.entry] == 0)
    return counted & (state.named[at.entry] == at.block) & (state.has[at.entry] == state.part[at.content])


def _fixes(state: State, at: Operands) -> Any:
    """The content that a hit may read from now on: nothing else is written there until the block is allocated again."""
    part = state.part[at.content]
    return state.fixed.put(at.block, either(part != 0, part, state.fixed[at.block]))


class Register(Transition):
    """A held block becomes known to hold a content, which reaches the range: a request counts it as computed there."""

    @staticmethod
    def precondition(state: State, at: Operands) -> Any:
        return (state.where[at.block] == HELD) & (state.content[at.block] == 0) & (at.content != 0)

    @staticmethod
    def guard(state: State, at: Operands) -> Any:
        own = is_counted(state, at) & (state.part[at.content] != 0)
        return Register.precondition(state, at) & (state.filled[at.block] == 0) & own

    @staticmethod
    def effect(state: State, at: Operands) -> State:
        return evolve(
            state,
            content=state.content.put(at.block, at.content),
            listed=state.listed.put((at.content, at.block), at.block),
            fixed=_fixes(state, at),
        )


class Begin(Transition):
    """A boundary inside a held block becomes an entry; a request counts as computed what is before it in the range."""

    @staticmethod
    def precondition(state: State, at: Operands) -> Any:
        return (state.where[at.block] == HELD) & (state.begins[at.content, at.block] == 0) & (at.content != 0)

    @staticmethod
    def guard(state: State, at: Operands) -> Any:
        own = is_counted(state, at) | (state.part[at.content] == 0)
        named = state.named[at.entry] == at.block
        return Begin.precondition(state, at) & (state.filled[at.block] == 0) & named & own

    @staticmethod
    def effect(state: State, at: Operands) -> State:
        return evolve(
            state,
            begun=state.begun.put(at.block, state.begun[at.block] + 1),
            begins=state.begins.put((at.content, at.block), at.block),
            fixed=_fixes(state, at),
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
    """A pinned block without a holder becomes free; its content stays known."""

    @staticmethod
    def guard(state: State, at: Operands) -> Any:
        return state.where[at.block] == WAITING

    @staticmethod
    def effect(state: State, at: Operands) -> State:
        return evolve(state, pinned=state.pinned.put(at.block, 0), where=state.where.put(at.block, FREE))


class Forget(Transition):
    """A block is evicted by its id, also if it is held."""

    @staticmethod
    def guard(state: State, at: Operands) -> Any:
        return in_pool(state, at.block)

    @staticmethod
    def effect(state: State, at: Operands) -> State:
        return forgotten(state, at.block)


class Reset(Transition):
    """Everything is forgotten, and nothing is pinned any more; only while no block is held."""

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
    return (at.content != 0) & is_found(state.listed, at.content, at.block)


def _begins(state: State, at: Operands) -> Any:
    """Whether the map of the entries lists the block, which has one, for the content asked for."""
    return (at.content != 0) & is_found(state.begins, at.content, at.block) & (state.begun[at.block] != 0)


def _counting(state: State, entry: Any, has: Any, block: Any, tentative: Any = 0) -> Any:
    """What the request of ``entry`` has there, and counts as computed in ``block``; in none if it is 0."""
    return {
        "has": state.has.put(entry, has),
        "counts": state.counts.put(entry, block),
        "tentative": state.tentative.put(entry, tentative),
    }


class Take(Transition):
    """A free block is allocated to a table entry, and what it held is forgotten."""

    @staticmethod
    def guard(state: State, at: Operands) -> Any:
        return (state.where[at.block] == FREE) & (state.named[at.entry] == 0)

    @staticmethod
    def effect(state: State, at: Operands) -> State:
        after = forgotten(state, at.block)
        # Pending writes for a former holder do no harm if they come before all others.
        owes = (after.late[at.block] != 0) | (after.owed[at.block] != 0)
        return evolve(
            after,
            owed=after.owed.put(at.block, 0),
            late=after.late.put(at.block, either(owes, 1, 0)),
            fixed=after.fixed.put(at.block, 0),
            **_counting(after, at.entry, 0, 0),
            named=after.named.put(at.entry, at.block),
            refs=after.refs.put(at.block, 1),
            where=after.where.put(at.block, HELD),
        )


class Fill(Take):
    """A free block is allocated to a table entry, and another node writes it from now on."""

    @staticmethod
    def effect(state: State, at: Operands) -> State:
        after = Take.effect(state, at)
        return evolve(after, filled=after.filled.put(at.block, 1))


def _is_open(state: State, at: Operands) -> Any:
    """Whether the entry names the block, and its request has computed nothing there, so that no hit reads it."""
    return (state.named[at.entry] == at.block) & (at.block != 0) & (state.has[at.entry] == 0)


class Provide(Transition):
    """Another node writes a block; after the steps in flight, where it does not write out of turn."""

    @staticmethod
    def guard(state: State, at: Operands) -> Any:
        in_turn = (state.out_of_turn != 0) | (state.late[at.block] == 0)
        return (state.filled[at.block] != 0) & in_turn & _is_open(state, at) & (at.content != 0)

    @staticmethod
    def effect(state: State, at: Operands) -> State:
        written = state.written.put(at.block, at.content)
        return evolve(state, written=written, **_counting(state, at.entry, at.content, at.block))


class Filled(Transition):
    """Another node has written a block, or has cancelled."""

    @staticmethod
    def guard(state: State, at: Operands) -> Any:
        return state.filled[at.block] != 0

    @staticmethod
    def effect(state: State, at: Operands) -> State:
        return evolve(state, filled=state.filled.put(at.block, 0))


DRAFT = 1
"""The other operand where a step computes drafts."""


class Compute(Transition):
    """A step is scheduled that writes a block which a table entry names, where its request has computed nothing yet, or
    computes the same again; or a draft is found to hold. A draft, for which ``other`` is ``DRAFT``, may fail."""

    @staticmethod
    def guard(state: State, at: Operands) -> Any:
        again = (state.has[at.entry] == at.content) & (at.other != DRAFT)
        named = (state.named[at.entry] == at.block) & (at.block != 0) & (state.filled[at.block] == 0)
        return named & (_is_open(state, at) | again) & (at.content != 0)

    @staticmethod
    def effect(state: State, at: Operands) -> State:
        tentative = either(at.other == DRAFT, 1, 0)
        is_there = will_have(state, at.block) == at.content
        owed = state.owed.put(at.block, either(is_there, state.owed[at.block], at.content))
        return evolve(state, owed=owed, **_counting(state, at.entry, at.content, at.block, tentative))


class TakeBack(Transition):
    """A request counts no longer what was computed in the range: drafts that failed, or what a load was to bring.

    After such a load it computes the same again. Once nothing rests on what is in the range, anything may be there.
    """

    @staticmethod
    def guard(state: State, at: Operands) -> Any:
        return (state.named[at.entry] == at.block) & (at.block != 0)

    @staticmethod
    def effect(state: State, at: Operands) -> State:
        draft = state.tentative[at.entry] != 0
        after = evolve(state, **_counting(state, at.entry, either(draft, 0, state.has[at.entry]), 0))
        needed = is_cached(after, at.block) | (after.counts.count(at.block) >= 1) | (after.reads.count(at.block) >= 1)
        kept = draft | needed
        return evolve(
            after,
            owed=after.owed.put(at.block, either(kept, after.owed[at.block], 0)),
            written=after.written.put(at.block, either(kept, after.written[at.block], at.content)),
        )


class Computed(Transition):
    """The step has written it. Steps are computed in order: what is written late was written before."""

    @staticmethod
    def guard(state: State, at: Operands) -> Any:
        return (at.block != 0) & (state.owed[at.block] != 0) & (state.late[at.block] == 0)

    @staticmethod
    def effect(state: State, at: Operands) -> State:
        return evolve(
            state,
            owed=state.owed.put(at.block, 0),
            written=state.written.put(at.block, state.owed[at.block]),
        )


class Overwrite(Transition):
    """A step that was scheduled for a former holder of a block writes it and overwrites its content."""

    @staticmethod
    def guard(state: State, at: Operands) -> Any:
        return state.late[at.block] != 0

    @staticmethod
    def effect(state: State, at: Operands) -> State:
        return evolve(state, written=state.written.put(at.block, at.content), late=state.late.put(at.block, 0))


class Use(Transition):
    """A step is dispatched that reads or writes a block which a table entry names, and which no other node writes."""

    @staticmethod
    def guard(state: State, at: Operands) -> Any:
        named = (state.named[at.entry] == at.block) & (at.block != 0)
        return named & (state.filled[at.block] == 0) & (state.uses[at.use] == 0)

    @staticmethod
    def effect(state: State, at: Operands) -> State:
        return evolve(state, uses=state.uses.put(at.use, at.block))


class Used(Transition):
    """The step is over, or it is known that it does not reach the block."""

    @staticmethod
    def guard(state: State, at: Operands) -> Any:
        return (state.uses[at.use] == at.block) & (at.block != 0)

    @staticmethod
    def effect(state: State, at: Operands) -> State:
        return evolve(state, uses=state.uses.put(at.use, 0))


def may_be_released(state: State, block: Any) -> Any:
    """Whether a holder may release ``block``: no other node writes it, and the last holder waits for steps in flight.

    Steps are computed in order, so they wait for none of them where no other node writes out of turn.
    """
    over = (state.uses.count(block) == 0) & (state.owed[block] == 0)
    unused = (state.out_of_turn == 0) | over | (state.refs[block] != 1)
    return (state.filled[block] == 0) & unused


class Hold(Transition):
    """A table entry names a block as well that is known to hold the content asked for: a hit."""

    @staticmethod
    def precondition(state: State, at: Operands) -> Any:
        return in_pool(state, at.block) & (state.named[at.entry] == 0)

    @staticmethod
    def guard(state: State, at: Operands) -> Any:
        return Hold.precondition(state, at) & _holds(state, at)

    @staticmethod
    def effect(state: State, at: Operands) -> State:
        after = one_more(state, at.block)
        return evolve(
            after,
            named=after.named.put(at.entry, at.block),
            **_counting(after, at.entry, state.part[at.content], at.block),
        )


class Read(Transition):
    """A copy holds its source, which holds the content asked for or begins with it: a hit that ends inside a block."""

    @staticmethod
    def precondition(state: State, at: Operands) -> Any:
        return in_pool(state, at.block) & (state.reads[at.copy] == 0) & (state.writes[at.copy] == 0)

    @staticmethod
    def guard(state: State, at: Operands) -> Any:
        return Read.precondition(state, at) & (_holds(state, at) | _begins(state, at))

    @staticmethod
    def effect(state: State, at: Operands) -> State:
        after = one_more(state, at.block)
        return evolve(
            after,
            reads=after.reads.put(at.copy, at.block),
            wants=after.wants.put(at.copy, state.part[at.content]),
        )


class Aim(Transition):
    """A copy gets its destination: a block that one table entry names, that has no other holder and that no hit uses.

    It is ordered with the steps. It brings what it wants, or nothing where it ends before the range: there another node
    may write.
    """

    @staticmethod
    def precondition(state: State, at: Operands) -> Any:
        pending = (state.reads[at.copy] != 0) & (state.writes[at.copy] == 0)
        return pending & (state.named[at.entry] == at.block) & (at.block != 0)

    @staticmethod
    def guard(state: State, at: Operands) -> Any:
        unused = (state.refs[at.block] == 1) & negated(is_cached(state, at.block))
        brings = (at.content == 0) | ((at.content == state.wants[at.copy]) & (state.filled[at.block] == 0))
        return Aim.precondition(state, at) & _is_open(state, at) & unused & brings

    @staticmethod
    def effect(state: State, at: Operands) -> State:
        brings = at.content != 0
        return evolve(
            state,
            writes=state.writes.put(at.copy, at.block),
            owed=state.owed.put(at.block, either(brings, at.content, state.owed[at.block])),
            **_counting(state, at.entry, at.content, either(brings, at.block, 0)),
        )


class Move(Transition):
    """A table names a block at another place: a running state that moves to a later one."""

    @staticmethod
    def guard(state: State, at: Operands) -> Any:
        return (state.named[at.entry] == at.block) & (at.block != 0) & (state.named[at.other] == 0)

    @staticmethod
    def effect(state: State, at: Operands) -> State:
        return evolve(
            state,
            named=state.named.put(at.entry, 0).put(at.other, at.block),
            has=state.has.put(at.entry, 0).put(at.other, state.has[at.entry]),
            counts=state.counts.put(at.entry, 0).put(at.other, state.counts[at.entry]),
            tentative=state.tentative.put(at.entry, 0).put(at.other, state.tentative[at.entry]),
        )


class Drop(Transition):
    """A table entry releases its block. No request does so in a step in which something is copied into the block."""

    @staticmethod
    def precondition(state: State, at: Operands) -> Any:
        own = (state.named[at.entry] == at.block) & (at.block != 0)
        return own & (state.writes.count(at.block) == 0)

    @staticmethod
    def guard(state: State, at: Operands) -> Any:
        return Drop.precondition(state, at) & may_be_released(state, at.block)

    @staticmethod
    def effect(state: State, at: Operands) -> State:
        after = one_less(state, at.block)
        return evolve(after, named=after.named.put(at.entry, 0), **_counting(after, at.entry, 0, 0))


class ReadDone(Transition):
    """A copy is dispatched, and releases its source."""

    @staticmethod
    def precondition(state: State, at: Operands) -> Any:
        return (state.reads[at.copy] == at.block) & (at.block != 0)

    @staticmethod
    def guard(state: State, at: Operands) -> Any:
        over = (state.writes[at.copy] != 0) & may_be_released(state, at.block)
        return ReadDone.precondition(state, at) & over

    @staticmethod
    def effect(state: State, at: Operands) -> State:
        after = one_less(state, at.block)
        return evolve(
            after,
            reads=after.reads.put(at.copy, 0),
            writes=after.writes.put(at.copy, 0),
            wants=after.wants.put(at.copy, 0),
        )


TRANSITIONS: tuple[type[Transition], ...] = (
    Take,
    Fill,
    Provide,
    Filled,
    Compute,
    TakeBack,
    Computed,
    Overwrite,
    Use,
    Used,
    Hold,
    Read,
    Aim,
    Move,
    Drop,
    ReadDone,
    Pin,
    Demote,
    Forget,
    Register,
    Begin,
    Reset,
)
"""In the order of a block's life. A proof picks one by its place here."""
