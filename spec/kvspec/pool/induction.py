"""Obligations about the transition system: any state in which the invariants hold, and any one transition.

The maps are not known, so the pool may be of any size, with any number of requests and copies. An invariant is assumed
at every point that matters, made of the transition's operands, an arbitrary point, and the blocks that these name. This
assumes less than that it holds everywhere. The conclusion is shown at the arbitrary point, so it holds everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from attrs import evolve

from kvspec.obligation import AMap, Count, Mutant, Obligation, Patch, Unknown, only
from kvspec.pool.invariants import INVARIANTS, STRUCTURAL, Invariant, Point, conserved
from kvspec.pool.state import HELD, MAPS, Operands, State, Transition, initial
from kvspec.pool.transitions import TRANSITIONS
from kvspec.symbolic import RecordedPath, current_path, on

Step = Callable[[Any], Any]

ANY_STATE: Mapping[str, Unknown] = {
    "blocks": Count(1),
    "out_of_turn": Count(0, 1),
    **{name: AMap(arity) for name, arity in MAPS.items()},
    **{f"any_{name}": Count(0) for name in ("block", "entry", "copy", "content", "use")},
}
"""A state, and an arbitrary point in it."""
ANY_STEP: Mapping[str, Unknown] = {
    **ANY_STATE,
    "transition": Count(0, len(TRANSITIONS) - 1),
    **{f"at_{name}": Count(0) for name in ("block", "entry", "other", "copy", "content", "use")},
}
"""A transition, by its place in ``TRANSITIONS``, with its operands."""


def before(u: Any) -> State:
    """The state that the unknowns stand for."""
    return State(u.blocks, u.out_of_turn, **{name: getattr(u, name) for name in MAPS})


def operands(u: Any) -> Operands:
    """The operands of the transition."""
    return Operands(u.at_block, u.at_entry, u.at_other, u.at_copy, u.at_content, u.at_use)


def chosen(u: Any) -> type[Transition]:
    """The transition."""
    transition: type[Transition] = TRANSITIONS[u.transition]
    return transition


def after(u: Any) -> State:
    """The state after the transition."""
    return chosen(u).effect(before(u), operands(u))


def anywhere(u: Any) -> Point:
    """The arbitrary point."""
    return Point(u.any_block, u.any_entry, 0, u.any_copy, u.any_content, u.any_use)


def recalled(state: State, at: Point) -> None:
    """Every entry, read or write of a block is counted there, and so is a held block, and a boundary inside one."""
    keyed = (
        (state.named, at.entry),
        (state.counts, at.entry),
        (state.reads, at.copy),
        (state.writes, at.copy),
        (state.uses, at.use),
    )
    for holders, key in keyed:
        holders.sees(key, holders[key])
    state.where.sees(at.block, HELD)
    state.begins.sees((at.content, at.block), at.block)


def sound(state: State, points: Iterable[Point], invariants: Iterable[Invariant] = STRUCTURAL) -> Any:
    """That ``invariants`` hold at ``points``."""
    holds: Any = True
    for place, point in enumerate(points):
        recalled(state, point)
        for invariant in invariants:
            # It is said of no point in particular.
            if invariant is not conserved or place == 0:
                holds = invariant(state, point) & holds
    return holds


def points_of(state: State, own: Operands, some: Point) -> Iterator[Point]:
    """The points that matter to a transition with the operands ``own``, and to the arbitrary point ``some``."""
    yield own
    yield some
    yield evolve(some, block=own.block)
    yield evolve(own, content=state.content[own.block])
    yield evolve(some, block=state.reads[some.copy])
    yield evolve(some, block=state.writes[some.copy])
    yield evolve(some, block=state.uses[some.use])


def is_sound(u: Any, invariants: Sequence[Invariant] = STRUCTURAL) -> Any:
    """The invariants hold wherever it matters."""
    return is_sound_at(u, lambda state: points_of(state, operands(u), anywhere(u)), invariants)


def is_sound_at(u: Any, points: Callable[[State], Iterable[Point]], invariants: Sequence[Invariant]) -> Any:
    """The invariants hold at these points of the state; what is recalled with them is the same on every way."""
    path, key = current_path(), ("sound", *invariants)
    if key not in path.memory:
        recorded = RecordedPath()
        with on(recorded):  # type: ignore[arg-type]  # it stands for a path
            state = before(u)
            holds = sound(state, points(state), invariants)
        path.memory[key] = holds, recorded.facts
    holds, facts = path.memory[key]
    for fact in facts:
        path.fact(fact)
    return holds


def can_happen(u: Any) -> Any:
    """The invariants hold, and the transition can happen."""
    return is_sound(u, tuple(INVARIANTS)) & chosen(u).guard(before(u), operands(u))


def may_happen(u: Any) -> Any:
    """The invariants of holders, queues and maps hold, and so does what they rest on; in the slots may be anything."""
    return is_sound(u) & chosen(u).precondition(before(u), operands(u))


def happens(u: Any, *transitions: type[Transition]) -> Any:
    """That it is one of ``transitions`` that happens."""
    one: Any = False
    for each in transitions:
        one = (u.transition == TRANSITIONS.index(each)) | one
    return one


def each_happens() -> dict[str, Step]:
    """That every transition can happen, as witnesses."""

    def of(transition: type[Transition]) -> Step:
        return lambda u: happens(u, transition)

    return {f"{transition.__name__.lower()} happens": of(transition) for transition in TRANSITIONS}


def inductive(
    chapter: str,
    invariant: Invariant,
    statements: tuple[str, ...],
    title: str,
    mutants: tuple[Mutant, ...],
    witnesses: Mapping[str, Step],
) -> Obligation:
    """That ``invariant`` holds in the initial state, and is preserved by every transition."""

    def claim(u: Any) -> Any:
        at, state, later = anywhere(u), before(u), after(u)
        recalled(later, at)
        # If another entry names the block, it does so in addition to this one.
        state.named.put(u.at_entry, 0).sees(at.entry, state.named[at.entry])
        return invariant(initial(state), at) & invariant(later, at)

    name = f"{chapter}.{invariant.__name__.replace('_', '-')}"
    return of_every_step(name, statements, title, claim, mutants, witnesses, invariant in STRUCTURAL)


def of_every_step(
    name: str,
    statements: tuple[str, ...],
    title: str,
    claim: Step,
    mutants: tuple[Mutant, ...],
    witnesses: Mapping[str, Step],
    structural: bool = False,
) -> Obligation:
    """That ``claim`` is so of every transition from every sound state; if it is ``structural``, whatever is in the
    slots."""
    return Obligation(
        id=name,
        statements=statements,
        title=title,
        unknowns=ANY_STEP,
        assumes=may_happen if structural else can_happen,
        claim=claim,
        witnesses=witnesses,
        mutants=mutants,
    )


def broken(name: str, story: str, transition: type[Transition], effect: Callable[[State, Operands], State]) -> Mutant:
    """A mutant of what ``transition`` does."""
    return only(name, story, f"{transition.__module__}:{transition.__name__}.effect", staticmethod(effect))


def unguarded(name: str, story: str, transition: type[Transition], guard: Callable[[State, Operands], Any]) -> Mutant:
    """A mutant of when ``transition`` can happen."""
    names = ("guard", "precondition")
    targets = (f"{transition.__module__}:{transition.__name__}.{each}" for each in names)
    return Mutant(name, story, tuple(Patch(each, staticmethod(guard)) for each in targets))
