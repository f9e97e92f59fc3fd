"""Whether a world's key can be trusted: states that it takes for the same must have the same future.

An explorer that merges two states never looks at what only the second could do. So pairs of states with equal keys are
drawn, and compared by one step: as many moves of every kind, with the same kinds of answers, to states with the same
keys. If that holds for all pairs, their whole futures are the same.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable, Iterator
from random import Random
from typing import Generic

from attrs import frozen

from kvgate.explore.world import Move, State, World


@frozen
class Unlike(Generic[State]):
    """Two states with the same key, and what one of them can do and the other cannot."""

    first: State
    second: State
    only_first: Counter[Hashable]
    only_second: Counter[Hashable]


def unlike(world: World[State, Move], *, states_max: int, pairs_max: int, seed: int = 0) -> Unlike[State] | None:
    """Two states near the initial one that share a key and not the future, if they are among the pairs drawn."""
    pairs = list(_pairs(world, states_max))
    for first, second in Random(seed).sample(pairs, min(pairs_max, len(pairs))):
        ours, theirs = _future(world, first), _future(world, second)
        if ours != theirs:
            return Unlike(first, second, ours - theirs, theirs - ours)
    return None


def _pairs(world: World[State, Move], states_max: int) -> Iterator[tuple[State, State]]:
    """Each state that is met again, with the one that was met first; breadth first, over ``states_max`` states."""
    initial = world.initial()
    known = {world.key(initial): initial}
    queue = deque([initial])
    while queue:
        state = queue.popleft()
        for move in world.moves(state):
            after = world.step(state, move).state
            first = known.setdefault(world.key(after), after)
            if first is not after:
                yield first, after
            elif len(known) <= states_max:
                queue.append(after)


def _future(world: World[State, Move], state: State) -> Counter[Hashable]:
    """What is wrong with a state, and what each of its moves comes to, names left out."""
    future: Counter[Hashable] = Counter(wrong.statement for wrong in world.violations_in(state))
    for move in world.moves(state):
        outcome = world.step(state, move)
        statements = tuple(wrong.statement for wrong in outcome.violations)
        future[type(move), type(outcome.answer), outcome.progress, statements, world.key(outcome.state)] += 1
    return future
