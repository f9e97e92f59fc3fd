"""Random walks over the worlds of tiny models: how a mechanism is driven for which no generator draws operations."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Any

from attrs import frozen

from kvgate.explore.world import World

MOVES_MAX = 60
"""How long a walk is at most."""


@frozen
class Walked:
    """What was walked, and what was found."""

    operations: int
    walks: int
    wrong: tuple[str, ...]
    """At most one: the first ends the run."""


def walk(
    worlds: Sequence[World[Any, Any]],
    operations: int,
    seed: int = 0,
    report: Callable[[int], None] = lambda _operations: None,
) -> Walked:
    """Walk through ``worlds`` in turn, each time from its beginning, until at least ``operations`` were performed."""
    draw = random.Random(seed)
    performed = 0
    assert all(list(world.moves(world.initial())) for world in worlds), "a world without a move has no walk"
    for walks, world in enumerate(cycle(worlds), start=1):
        state = world.initial()
        for _ in range(MOVES_MAX):
            moves = list(world.moves(state))
            if not moves:
                break
            move, performed = draw.choice(moves), performed + 1
            wrong: Sequence[str]
            try:
                outcome = world.step(state, move)
                state, seen = outcome.state, (*outcome.violations, *world.violations_in(outcome.state))
                wrong = [f"{each.statement}, {each.detail}" for each in seen]
            except Exception as error:
                wrong = [f"{type(error).__name__}: {error}"]
            if wrong:
                return Walked(performed, walks, (f"{world.name}, move {performed}, {move}: {wrong[0]}",))
        report(performed)
        if performed >= operations:
            return Walked(performed, walks, ())
    raise AssertionError("no world to walk through")
