"""Random walks over the worlds of tiny models: how a mechanism is driven for which no generator draws operations."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Any

from attrs import frozen

from kvgate.explore.world import World
from kvreference.snapshot import Violation

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
    for walks, world in enumerate(cycle(worlds), start=1):
        state = world.initial()
        for _ in range(MOVES_MAX):
            moves = list(world.moves(state))
            if not moves:
                break
            move, performed = draw.choice(moves), performed + 1
            wrong: Sequence[Violation]
            try:
                outcome = world.step(state, move)
                state, wrong = outcome.state, (*outcome.violations, *world.violations_in(outcome.state))
            except Exception as error:
                wrong = [Violation("KV-SYS-01", f"{type(error).__name__}: {error}")]
            if wrong:
                where = f"{world.name}, move {performed}, {move}"
                return Walked(performed, walks, (f"{where}: {wrong[0].statement}, {wrong[0].detail}",))
        report(performed)
        if performed >= operations:
            return Walked(performed, walks, ())
    raise AssertionError("there is no world to walk through")
